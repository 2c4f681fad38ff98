package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/exit"
	"btools/lib/launcher"
	"btools/lib/liveness"
	"btools/lib/record"
	"btools/lib/virtual"
	"btools/lib/virtual/sessions"
	"btools/lib/websocket"
)

// OneConnection is a browser of another program that gets a single WebSocket,
// which all clients share: its user is asked to allow each.
type OneConnection struct {
	find    func() (record.Instance, error)
	browser *single.Browser
}

// consentWait is how long a client waits for the WebSocket. It is shorter than
// answerTimeout, so that the client learns the reason.
const consentWait = answerTimeout - 5*time.Second

// NewOneConnection returns the browser that find finds, at each attempt to
// connect. Nothing is asked of it before the first client comes.
func NewOneConnection(find func() (record.Instance, error)) *OneConnection {
	return &OneConnection{find: find, browser: single.New(func(ctx context.Context) (*websocket.Conn, error) {
		i, err := find()
		if err != nil {
			return nil, err
		}
		path, err := socketPath(ctx, i)
		if err != nil {
			return nil, &exit.Error{Code: exit.Unavailable,
				Err: fmt.Errorf("it does not tell the address of its WebSocket: %w", err),
				Hint: "a Chrome that asks its user has it in the file DevToolsActivePort beside its profiles, " +
					"which --target takes, too"}
		}
		return websocket.Dial(ctx, "ws://"+launcher.Addr(i)+path)
	})}
}

// await waits until the WebSocket is open.
func (o *OneConnection) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, consentWait,
		fmt.Errorf("its user has not allowed the connection within %v; the question stays open", consentWait))
	defer cancel()
	err := o.browser.Await(ctx)
	var refused *websocket.RefusedError
	if errors.As(err, &refused) {
		return &exit.Error{Code: exit.Unavailable, Err: err,
			Hint: "its user must allow remote debugging; a later connection asks again"}
	}
	return err
}

// open opens the browser for sessions.
func (o *OneConnection) open(ctx context.Context, log *slog.Logger) (*virtual.Browser, error) {
	if err := o.await(ctx); err != nil {
		return nil, err
	}
	b, err := virtual.OpenOn(ctx, virtual.Over(o.browser), log)
	if i, unknown := o.find(); err == nil && unknown == nil {
		b.Refuse(launcher.Addr(i))
	}
	return b, err
}

// serveOne answers a request over the browser's only WebSocket.
func (p *Proxy) serveOne(w http.ResponseWriter, r *http.Request) {
	began, epoch := time.Now(), p.backend.currentEpoch()
	p.Guard.StripCredentials(r)
	g, err := p.backend.acquire(r.Context(), epoch)
	if err != nil {
		writeUnavailable(w, r, err)
		return
	}
	release := sync.OnceFunc(func() { p.backend.release(g) })
	defer release()
	if err := p.One.await(r.Context()); err != nil {
		writeUnavailable(w, r, noAnswer(err))
		return
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), p.answerTimeout,
		noAnswer(fmt.Errorf("no answer within %v", p.answerTimeout)))
	defer cancel()
	if isUpgrade(r) {
		w.Header().Set("Connection", "close") // if it is refused
	} else {
		r.Header.Del("Upgrade") // to something else
	}
	taken := RecordHijack(w)
	var t *tunnel // nil: there is none, or it was closed at once
	sessions.ServeWhole(taken, r.WithContext(ctx), p.One.browser, func(conn *websocket.Conn) {
		client := taken.Taken()
		in := newStamped(client)
		x := &tunnel{client: client, browser: client, lastUse: in.lastUse, done: make(chan struct{})}
		if !p.backend.addTunnel(g, x, epoch) {
			client.Close()
			return
		}
		t = x
		release()
		record := func(bool, []byte, int64) {}
		if p.Trace != nil {
			record = p.Trace.Connection(r.URL.Path)
		}
		conn.Trace = func(toClient bool, message []byte, size int64) {
			if !toClient {
				in.last.Store(time.Now().UnixNano())
			}
			record(toClient, message, size)
		}
	})
	if isCommand(r.URL.Path) {
		p.backend.noteUse(g)
	}
	if conn := taken.Taken(); conn != nil {
		p.limit.Drop(conn)
	}
	if t != nil {
		p.backend.removeTunnel(g, t)
	}
	p.Log.Debug("request", "client", r.RemoteAddr, "request", describe(r), "took_us", time.Since(began).Microseconds())
}

// errNotAsked means that a browser was not asked for its health.
var errNotAsked = fmt.Errorf("%w: nothing is connected to it", liveness.ErrNotChecked)

// check asks the browser for an answer over the WebSocket, without opening one.
func (o *OneConnection) check(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v", within))
	defer cancel()
	asked, err := o.browser.Check(ctx)
	if !asked {
		return errNotAsked
	}
	return err
}
