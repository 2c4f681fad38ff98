package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/fleet/book"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/virtual"
)

// Prefix begins the path of each named session.
const Prefix = "/session/"

// Answer answers a request to the port that all sessions share. The paths of
// named sessions begin with /session/NAME. The port's own /json/version returns
// the address of a new anonymous session, and a WebSocket to /devtools/browser
// gets a session that ends with it. With Root, all of these belong to that
// session instead.
func (f *Fleet) Answer(w *front.Response, r *http.Request) error {
	path := strings.TrimPrefix(r.URL.Path, f.Base)
	if below, ok := strings.CutPrefix(path, Prefix); ok {
		name, rest, _ := strings.Cut(below, "/")
		return f.answerNamed(w, r, name, f.Base+Prefix+name, "/"+rest)
	}
	if f.Root != "" {
		return f.answerNamed(w, r, f.Root, f.Base, path)
	}
	d, no := front.ReadDevTools(r, path, false)
	if no != nil {
		return no
	}
	switch {
	case d.Endpoint == front.Version && r.UserAgent() == "chromedriver":
		// It takes the pages of /json/list, of which the port itself has none, and would
		// wait for one for a minute. It shows its user the name of a browser that it
		// does not know.
		front.WriteJSON(w, map[string]string{"Browser": "bproxy share serves chromedriver with --root-session NAME"})
		return nil
	case d.Endpoint == front.Version, d.Endpoint == front.Protocol:
		return f.answerShared(w, r, d)
	case d.Endpoint == front.List:
		front.WriteJSON(w, []string{})
		return nil
	case d.Endpoint == front.ToBrowser && d.Target == "":
		return f.answer(w, r, Key{Name: rand.Text(), Kind: book.Single}, d, f.Base)
	case d.Endpoint == front.ToBrowser:
		return f.answer(w, r, Key{Name: d.Target, Kind: book.Anonymous}, d, f.Base)
	}
	e := control.Errorf(guard.NotFound, "%s belongs to a session: on this port, each client has a browser of its own",
		r.URL.Path)
	e.Hint = "request " + f.Base + "/session/NAME" + path
	return e
}

// answerNamed answers a request at a path below the address of a named session. Only a
// valid one for DevTools creates the session.
func (f *Fleet) answerNamed(w http.ResponseWriter, r *http.Request, name, base, path string) error {
	if guid, ok := front.ParseDownloads(path); ok {
		files, err := f.DownloadsOf(name)
		if err != nil {
			return err
		}
		return front.ServeDownloads(w, r, files, guid)
	}
	d, no := front.ReadDevTools(r, path, false)
	if no != nil {
		return no
	}
	return f.answer(w, r, Key{Name: name}, d, base)
}

// answer answers a request to a session.
func (f *Fleet) answer(w http.ResponseWriter, r *http.Request, k Key, d front.DevTools, base string) error {
	if err := CheckName(k.Name); err != nil {
		return &guard.Refusal{Status: http.StatusBadRequest, Reason: control.ErrorOf(err)}
	}
	return Serve(w, r, d, base, func() (*virtual.Session, Trace, func(), error) {
		e, s, err := f.use(r.Context(), k, nil)
		switch {
		case errors.Is(err, ErrClosed), errors.Is(err, ErrEnded):
			return nil, nil, nil, front.Unavailable(err)
		case err != nil:
			return nil, nil, nil, err
		}
		return VirtualOf(s), e.trace, e.Leave, nil
	})
}

// answerShared answers requests whose answer is the same for all sessions.
func (f *Fleet) answerShared(w http.ResponseWriter, r *http.Request, d front.DevTools) error {
	b, chrome, err := f.Chrome(r.Context(), nil)
	if err != nil {
		return err
	}
	defer chrome.Ended(nil)
	if d.Endpoint == front.Protocol {
		return front.ServeProtocol(w, r, b.Addr())
	}
	front.WriteVersion(w, b.Version(), "ws://"+r.Host+f.Base+"/devtools/browser/"+rand.Text())
	return nil
}

// Trace records what the clients of a session send and get.
type Trace interface {
	// Connection begins a WebSocket with this path. The function gets each message.
	Connection(path string) func(toClient bool, message []byte, size int64)
	Close() error
}

// Serve answers a request to a session whose address ends with base. use returns the
// session for it, which is in use until done is called, and a trace that records its
// WebSockets, unless that is nil. If the session's Chrome has just died, another session
// may take its place: use is called again.
func Serve(
	w http.ResponseWriter, r *http.Request, d front.DevTools, base string,
	use func() (s *virtual.Session, trace Trace, done func(), err error),
) error {
	for try := 1; ; try++ {
		s, trace, done, err := use()
		if err != nil {
			return err
		}
		err = d.Serve(w, r, session{s, trace, strings.TrimPrefix(r.URL.Path, base)}, base)
		again := err != nil && try < attempts && d.IsSocket() && died(r.Context(), s)
		done()
		if !again {
			return err
		}
	}
}

// died reports whether a session to which a connection failed ends with its
// Chrome. The client may notice that first.
func died(ctx context.Context, s *virtual.Session) bool {
	select {
	case <-s.Browser().Done():
		return true
	case <-ctx.Done():
	case <-time.After(deathTimeout):
	}
	return false
}

// session answers DevTools requests for a session.
type session struct {
	*virtual.Session
	trace Trace
	path  string // of the request, below the session's
}

// Version returns the version of the session's Chrome.
func (s session) Version(context.Context) (json.RawMessage, error) { return s.Browser().Version(), nil }

// Addr returns the address of the session's Chrome.
func (s session) Addr() string { return s.Browser().Addr() }

// IsNoTarget reports whether an error says that the session has no such target.
func (s session) IsNoTarget(err error) bool { return virtual.IsNoTarget(err) }

// Targets returns the targets of the session. It is no use of it: monitors ask for them.
func (s session) Targets(ctx context.Context) ([]json.RawMessage, error) {
	s.ReadTitles(ctx)
	return s.Session.Targets(), nil
}

// NewPage opens a page, unless no session may open its URL.
func (s session) NewPage(ctx context.Context, url string) (string, error) {
	s.Touch()
	if err := s.Browser().CheckURL(url); err != nil {
		return "", guard.Refuse(http.StatusForbidden, guard.Forbidden, "%v", err)
	}
	return s.Session.NewPage(ctx, url)
}

// OnTarget executes a command on a target of the session.
func (s session) OnTarget(ctx context.Context, method, target string) error {
	s.Touch()
	return s.Session.OnTarget(ctx, method, target)
}

// Connect serves a WebSocket to the session, or to one of its targets.
func (s session) Connect(w http.ResponseWriter, r *http.Request, target string) error {
	k, err := s.Session.Connect(r.Context(), target)
	if err != nil {
		return err
	}
	if s.trace != nil {
		k.Trace = func() func(bool, []byte, int64) { return s.trace.Connection(s.path) }
	}
	k.Accept(w, r) // which has answered the client with any error
	return nil
}

// CheckName returns an error for an invalid session name.
func CheckName(name string) error {
	ok := 1 <= len(name) && len(name) <= maxName && name != "." && name != ".."
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if ok {
		return nil
	}
	return control.Errorf(control.BadRequest,
		"%q is not a session name: use 1 to %d letters, digits, \".\", \"_\" and \"-\", but not \".\" or \"..\"",
		clip(name), maxName)
}

const maxName = 64

// clip shortens an invalid name for a message.
func clip(name string) string {
	if len(name) <= maxName {
		return name
	}
	return name[:maxName] + "…"
}
