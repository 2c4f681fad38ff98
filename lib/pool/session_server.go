package pool

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/guard"
	"btools/lib/lazy"
	"btools/lib/record"
	"btools/lib/virtual/sessions"
)

// sessionServer serves the sessions of a pool's leases. It runs as long as the
// service, so that a client that comes back after the end of its lease gets an
// answer.
type sessionServer struct {
	service *Service
	addr    string // host:port
	guard   guard.Guard
	limit   guard.Limit
}

// maxConnections limits the connections of a session server; each lease has its
// own limit.
const maxConnections = 8192

// sessionPath is the path that precedes the ID of a lease.
const sessionPath = "/session/"

// sessionServerLocked returns the session server of a pool, and starts it if
// necessary.
func (v *Service) sessionServerLocked(pool string) (*sessionServer, error) {
	if p := v.sessionServers[pool]; p != nil {
		return p, nil
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot open the endpoint of %s: %w", pool, err)
	}
	p := &sessionServer{service: v, addr: l.Addr().String(),
		guard: guard.Guard{NoPages: true, Browsers: guard.NewBrowsers(v.State)},
		limit: guard.Limit{Max: maxConnections}}
	v.sessionServers[pool] = p
	server := &http.Server{
		Handler: p, ConnState: p.limit.State, ConnContext: guard.ConnContext,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(v.Log.Handler(), slog.LevelDebug), DisableGeneralOptionsHandler: true,
	}
	v.running.Go(func() { server.Serve(p.limit.Listener(l)) })
	v.running.Go(func() {
		<-v.ctx.Done()
		server.Close()
	})
	return p, nil
}

// leaseID matches the IDs that newLeaseID makes.
var leaseID = lazy.Regexp(`^lease_[0-9]+_[a-z0-9]{16}$`)

// ServeHTTP serves a request to a session.
func (p *sessionServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if no := p.guard.Check(r); no != nil {
		p.service.Log.Debug("refused", "client", r.RemoteAddr, "path", r.URL.Path, "why", no.Error.Message)
		no.WriteResponse(w)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, sessionPath)
	id, _, _ := strings.Cut(rest, "/")
	if !ok || !leaseID().MatchString(id) {
		e := control.Errorf(guard.NotFound, "there is no browser at %q: each lease has its own path",
			printable(r.URL.Path))
		e.Hint = "use the http_url or the ws_url of a lease, which contain its ID; Puppeteer drops it from a browserURL"
		(&guard.Refusal{Status: http.StatusNotFound, Error: e}).WriteResponse(w)
		return
	}
	if no := p.service.checkUser(r, id); no != nil {
		no.WriteResponse(w)
		return
	}
	p.guard.StripCredentials(r)
	h := &hijacked{ResponseWriter: w}
	if err := p.serve(h, r, id); err != nil {
		(&guard.Refusal{Status: httpStatus(err), Error: control.ErrorOf(err)}).WriteResponse(w)
	}
	if h.conn != nil {
		p.limit.Drop(h.conn) // the server does not see the end of a hijacked connection
	}
}

// serve serves a request to a lease's session. If Chrome ends just then, it
// tries the next one. If it returns an error, it has not written a response.
func (p *sessionServer) serve(w http.ResponseWriter, r *http.Request, lease string) (err error) {
	guid, isDownload := sessions.ParseDownloads(strings.TrimPrefix(r.URL.Path, sessionPath+lease+"/"))
	if isDownload {
		if files, ok := p.service.downloadsOfHibernated(lease); ok {
			serveDownloads(w, r, files, guid)
			return nil
		}
	}
	const tries = 2
	for range tries {
		s, done, none := p.service.useSession(r.Context(), lease)
		if none != nil {
			return none
		}
		if isDownload {
			serveDownloads(w, r, s.Downloads(), guid)
		} else {
			err = sessions.Serve(w, r, s, sessionPath+lease, nil)
		}
		done()
		if err == nil {
			break
		}
	}
	return err
}

// hijacked records the connection that became a WebSocket.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

func (h *hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	h.conn = conn
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (h *hijacked) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// setAddresses sets the addresses of a lease's session.
func (p *sessionServer) setAddresses(i *record.Instance, lease string) {
	host, port, _ := net.SplitHostPort(p.addr)
	i.Host = host
	i.Port, _ = strconv.Atoi(port)
	i.HTTPURL = "http://" + p.addr + sessionPath + lease
	i.WSURL = "ws://" + p.addr + sessionPath + lease + "/devtools/browser/" + lease
}
