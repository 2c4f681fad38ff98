// Package front is what each program has at its port for HTTP: who may connect, which
// route answers, how an error is answered, the requests of DevTools, and downloads. It
// knows neither browsers nor their users: routes bring those.
package front

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/control"
	"btools/lib/guard"
)

// Bounds of connections.
const (
	maxHead     = 64 << 10 // bytes of a request's head
	headTimeout = 10 * time.Second
	idleTimeout = 2 * time.Minute // of a kept-alive connection
	// lingerTimeout is that of kept-alive connections when another process has the listeners.
	lingerTimeout = 500 * time.Millisecond
)

// Front is the handler of a port. Set its fields before use.
type Front struct {
	// Guard checks each request before its route is found.
	Guard guard.Guard
	// Pages, if not nil, is what web pages of an allowed origin may do.
	Pages *guard.CORS
	// Routes are tried in this order.
	Routes []Route
	// Limit bounds the connections.
	Limit Limit
	// TLS is how connections are encrypted; nil: they are not.
	TLS *tls.Config
	// ReadTimeout and WriteTimeout bound a whole request and its answer; 0: nothing does.
	ReadTimeout, WriteTimeout time.Duration
	// Followed, if not nil, is called each time the tokens' file has been looked at.
	Followed func()
	// Left, if not nil, is closed when another process has the listeners: connections that are used go on.
	Left <-chan struct{}
	// Successor, if not nil, then answers their requests, and those that had to wait.
	Successor http.Handler
	Log       *slog.Logger

	active atomic.Int64
}

// Route is a row of the table of a front.
type Route struct {
	// Path is the path of the route; if it ends with a slash, those below it and the one
	// without the slash are included; "": all.
	Path string
	// Get says that the route has GET and HEAD only.
	Get bool
	// Guard, if not nil, checks a request in place of the front's, and removes nothing from it.
	Guard func(r *http.Request) *guard.Guard
	// Secret says that the rest of the path is a secret, which is not logged.
	Secret bool
	// Answer answers a request. If it returns an error, it has answered nothing.
	Answer func(w *Response, r *http.Request) error
}

// Response is the answer to a request.
type Response struct {
	http.ResponseWriter
	Arrived time.Time // before the request was checked
	taken   net.Conn
}

// Serve serves the listeners until the context ends or one of them fails. It then closes
// them, calls end, unless that is nil, which tells clients why, and closes the connections
// that are left.
func (f *Front) Serve(ctx context.Context, end func(*http.Server), listeners ...net.Listener) error {
	s := &http.Server{Handler: f, ReadHeaderTimeout: headTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHead,
		ReadTimeout: f.ReadTimeout, WriteTimeout: f.WriteTimeout,
		ConnState: f.Limit.state, ConnContext: guard.ConnContext,
		ErrorLog: slog.NewLogLogger(f.Log.Handler(), slog.LevelDebug), DisableGeneralOptionsHandler: true}
	failed := make(chan error, len(listeners))
	if known := f.Guard.Tokens; known != nil {
		following, stop := context.WithCancel(ctx)
		var follows sync.WaitGroup
		follows.Go(func() {
			known.Follow(following, func() {
				f.Limit.closeOthers(known.Has)
				if f.Followed != nil {
					f.Followed()
				}
			})
		})
		defer follows.Wait()
		defer stop()
	}
	var accepting sync.WaitGroup
	for _, l := range listeners {
		if f.TLS != nil {
			l = tls.NewListener(l, f.TLS)
		}
		accepting.Go(func() { failed <- s.Serve(f.Limit.listener(l)) })
	}
	closeAll := func() {
		for _, l := range listeners {
			l.Close()
		}
	}
	var err error
	select {
	case <-ctx.Done():
	case <-f.Left:
		closeAll()
		select { // who makes one request after the other does so once more, and is told to connect anew
		case <-ctx.Done():
		case <-time.After(lingerTimeout):
		}
		s.SetKeepAlivesEnabled(false) // who waits for no answer asks the other process
		<-ctx.Done()
	case err = <-failed:
	}
	closeAll()
	if end != nil {
		end(s)
	}
	s.Close()
	accepting.Wait()
	return err
}

// ServeHTTP answers one request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := &Response{ResponseWriter: w, Arrived: time.Now()}
	if f.Pages != nil && f.Guard.HandleCORS(w, r, *f.Pages) {
		return
	}
	f.active.Add(1)
	defer f.active.Add(-1)
	original := f.keep(r)
	f.closeIfLeft(w, r)
	err := f.answer(answer, r)
	if err != nil && f.hasLeft() && (err == errLeft || control.ErrorOf(err).Code == control.Stopping) {
		f.closeIfLeft(w, r)
		f.Successor.ServeHTTP(answer, original)
	} else if err != nil {
		answer.Refuse(r, err)
	}
	if answer.taken != nil {
		f.Limit.Drop(answer.taken)
	}
	path := r.URL.Path
	if route := f.route(path); route != nil && route.Secret {
		path = route.Path + "…"
	}
	f.Log.Debug("request", "client", r.RemoteAddr, "request", r.Method+" "+path, "refused", err,
		"took_us", time.Since(answer.Arrived).Microseconds())
}

// answer checks a request and has its route answer it.
func (f *Front) answer(w *Response, r *http.Request) error {
	route := f.route(r.URL.Path)
	if route != nil && route.Guard != nil {
		if no := route.Guard(r).Check(r); no != nil {
			return no
		}
	} else if no := f.Guard.Check(r); no != nil {
		return no
	} else {
		f.Guard.StripCredentials(r)
		if c, t := guard.TokenOf(r); t != nil {
			f.Limit.note(c, t)
		}
	}
	switch {
	case f.hasLeft() && (route == nil || !route.Secret):
		return errLeft
	case route == nil:
		return NoPath(r)
	case route.Get && r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		return guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest, "%s must be requested with GET, not %s",
			r.URL.Path, r.Method)
	}
	return route.Answer(w, r)
}

// route returns the route of a path; nil: there is none.
func (f *Front) route(path string) *Route {
	for k := range f.Routes {
		at := f.Routes[k].Path
		if at == "" || at == path || strings.HasSuffix(at, "/") && strings.HasPrefix(path+"/", at) {
			return &f.Routes[k]
		}
	}
	return nil
}

// NoPath returns the error for a path that means nothing.
func NoPath(r *http.Request) error {
	return control.Errorf(guard.NotFound, "there is nothing at the path %q", r.URL.Path)
}

// Hijack takes over the connection, which counts until the request has been answered.
func (w *Response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := w.Take()
	w.taken = conn
	return conn, buf, err
}

// Take takes over the connection, which counts until the caller gives it to Limit.Drop.
func (w *Response) Take() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Taken returns the connection that was hijacked; nil: none.
func (w *Response) Taken() net.Conn { return w.taken }

// ReadFrom writes what it reads: the kernel copies files.
func (w *Response) ReadFrom(from io.Reader) (int64, error) { return io.Copy(w.ResponseWriter, from) }

// Unwrap is for http.ResponseController.
func (w *Response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
