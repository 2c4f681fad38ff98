package coordinator

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"btools/lib/guard"
	"btools/lib/jsonrpc"
)

const (
	sessionHeader = "Mcp-Session-Id"
	// forgottenAfter is how long a session lives that nobody asks for anything
	// and nobody listens to.
	forgottenAfter = time.Hour
	// keepAlive is how often a stream that has nothing to say says so.
	keepAlive = 15 * time.Second
	// maxKept bounds what waits for a host that does not listen, in messages.
	maxKept = 1024
)

// ServeHTTP serves many hosts by streamable HTTP, each with a session of its
// own, until the listener is closed.
func (c *Coordinator) ServeHTTP(l net.Listener, g *guard.Guard, log *slog.Logger) {
	f := &httpFront{c: c, sessions: map[string]*httpSession{}}
	s := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if no := g.Check(r); no != nil {
				no.Answer(w)
				return
			}
			f.serve(w, r)
		}),
	}
	if err := s.Serve(guard.Limit(l, 1024)); !errors.Is(err, net.ErrClosed) {
		log.Error("HTTP is no longer served: " + err.Error())
	}
	s.Close()
}

// httpFront are the sessions by HTTP.
type httpFront struct {
	c        *Coordinator
	mu       sync.Mutex
	sessions map[string]*httpSession // "": of requests that know no sessions
}

// httpSession is a session and the streams that its host listens to.
type httpSession struct {
	*Session
	mu      sync.Mutex
	answers map[string]*stream // by the ID of the request that it is the answer to
	open    []*stream          // those of requests, by age
	listens *stream            // that of GET; nil: none
	kept    [][]byte           // for the next GET
	forget  *time.Timer
}

// stream is what one HTTP response is still to say.
type stream struct {
	more chan struct{} // has one element if there is something
	all  [][]byte
	last bool // nothing comes after all
}

func newStream() *stream { return &stream{more: make(chan struct{}, 1)} }

// addLocked has the stream say a message, the last one or not.
func (st *stream) addLocked(message []byte, last bool) {
	st.all = append(st.all, message)
	st.last = st.last || last
	select {
	case st.more <- struct{}{}:
	default:
	}
}

// route gives a message of the session to the stream that it belongs to: an
// answer to that of its request, anything else to the oldest request that is
// being answered, else to who listens.
func (s *httpSession) route(message []byte) {
	m, err := jsonrpc.Parse(message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && m.IsResponse() {
		key := string(m.ID)
		if st := s.answers[key]; st != nil {
			delete(s.answers, key)
			st.addLocked(message, true)
		}
		return
	}
	switch {
	case len(s.open) > 0:
		s.open[0].addLocked(message, false)
	case s.listens != nil:
		s.listens.addLocked(message, false)
	case len(s.kept) < maxKept:
		s.kept = append(s.kept, message)
	}
}

// session makes a session.
func (f *httpFront) session(id string) *httpSession {
	s := &httpSession{answers: map[string]*stream{}}
	s.Session = f.c.NewSession(s.route)
	s.forget = time.AfterFunc(forgottenAfter, func() { f.end(id) })
	f.sessions[id] = s
	return s
}

// end ends a session, and reports whether there was one.
func (f *httpFront) end(id string) bool {
	f.mu.Lock()
	s := f.sessions[id]
	delete(f.sessions, id)
	f.mu.Unlock()
	if s == nil {
		return false
	}
	s.forget.Stop()
	s.mu.Lock()
	for _, st := range append([]*stream{s.listens}, s.open...) {
		if st != nil {
			st.last = true
			select {
			case st.more <- struct{}{}:
			default:
			}
		}
	}
	s.mu.Unlock()
	s.Close()
	return true
}

func httpError(w http.ResponseWriter, status, code int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(jsonrpc.Failure(nil, jsonrpc.Errorf(code, format, args...)), '\n'))
}

func (f *httpFront) serve(w http.ResponseWriter, r *http.Request) {
	if p := strings.TrimSuffix(r.URL.Path, "/"); p != "/mcp" && p != "" {
		httpError(w, http.StatusNotFound, jsonrpc.InvalidRequest, "MCP is at /mcp")
		return
	}
	id := r.Header.Get(sessionHeader)
	switch r.Method {
	case http.MethodPost:
		f.post(w, r, id)
	case http.MethodGet:
		if s := f.known(w, id); s != nil {
			f.listen(w, r, s)
		}
	case http.MethodDelete:
		if !f.end(id) || id == "" {
			httpError(w, http.StatusNotFound, jsonrpc.InvalidRequest, "there is no such session")
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "POST, GET, DELETE")
		httpError(w, http.StatusMethodNotAllowed, jsonrpc.InvalidRequest, "MCP has POST, GET and DELETE, not %s", r.Method)
	}
}

// known is the session with the ID; if there is none it says so.
func (f *httpFront) known(w http.ResponseWriter, id string) *httpSession {
	f.mu.Lock()
	s := f.sessions[id]
	f.mu.Unlock()
	switch {
	case id == "":
		httpError(w, http.StatusBadRequest, jsonrpc.InvalidRequest, "the header %s is missing: initialize gives it", sessionHeader)
		return nil
	case s == nil:
		httpError(w, http.StatusNotFound, jsonrpc.InvalidRequest, "there is no such session (any more): initialize again")
		return nil
	}
	s.forget.Reset(forgottenAfter)
	return s
}

// post takes one message. The answer to a request is a stream of what comes
// before it, and of it.
func (f *httpFront) post(w http.ResponseWriter, r *http.Request, id string) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, jsonrpc.MaxLine))
	if err != nil {
		httpError(w, http.StatusRequestEntityTooLarge, jsonrpc.InvalidRequest, "cannot read the request: %v", err)
		return
	}
	if !json.Valid(body) {
		httpError(w, http.StatusBadRequest, jsonrpc.ParseError, "this is no JSON: %s", clip(body))
		return
	}
	m, err := jsonrpc.Parse(body)
	if err != nil {
		httpError(w, http.StatusBadRequest, jsonrpc.InvalidRequest, "this is no request: %v", err)
		return
	}
	var s *httpSession
	switch {
	case m.Method == "initialize" && id == "":
		id = rand.Text()
		f.mu.Lock()
		s = f.session(id)
		f.mu.Unlock()
		w.Header().Set(sessionHeader, id)
	case id == "" && (isModern(m.Params) || m.Method == "server/discover"):
		f.mu.Lock()
		if s = f.sessions[""]; s == nil {
			s = f.session("")
		}
		f.mu.Unlock()
		s.forget.Reset(forgottenAfter)
		if m.ID != nil { // those of several hosts may be the same
			f.stateless(w, r, s, m)
			return
		}
	default:
		if s = f.known(w, id); s == nil {
			return
		}
	}
	if !m.IsRequest() {
		s.Handle(body)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	f.stream(w, r, s, string(m.ID), body, nil)
}

// stateless answers a request of a host without a session, under an ID of our
// own.
func (f *httpFront) stateless(w http.ResponseWriter, r *http.Request, s *httpSession, m *jsonrpc.Message) {
	own := json.RawMessage(`"` + rand.Text() + `"`)
	theirs := m.ID
	rename := func(message []byte) []byte {
		if got, err := jsonrpc.Parse(message); err == nil && got.IsResponse() {
			return got.WithID(theirs)
		}
		return message
	}
	f.stream(w, r, s, string(own), m.WithID(own), rename)
}

// stream hands a request over and says what comes of it.
func (f *httpFront) stream(w http.ResponseWriter, r *http.Request, s *httpSession, id string, body []byte, rename func([]byte) []byte) {
	st := newStream()
	s.mu.Lock()
	if s.answers[id] != nil {
		s.mu.Unlock()
		httpError(w, http.StatusBadRequest, jsonrpc.InvalidRequest, "a request with the id %s is being answered already", clip([]byte(id)))
		return
	}
	s.answers[id] = st
	s.open = append(s.open, st)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.answers, id)
		for i, o := range s.open {
			if o == st {
				s.open = append(s.open[:i:i], s.open[i+1:]...)
			}
		}
	}()
	s.Handle(body)
	s.say(w, r, st, rename)
}

// listen says what belongs to no request.
func (f *httpFront) listen(w http.ResponseWriter, r *http.Request, s *httpSession) {
	st := newStream()
	s.mu.Lock()
	if s.listens != nil {
		s.mu.Unlock()
		httpError(w, http.StatusConflict, jsonrpc.InvalidRequest, "somebody listens to this session already")
		return
	}
	s.listens = st
	for _, message := range s.kept {
		st.addLocked(message, false)
	}
	s.kept = nil
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listens = nil
		s.kept = append(st.all, s.kept...) // what was not said
	}()
	s.say(w, r, st, nil)
}

// say writes a stream as server-sent events, until its last message.
func (s *httpSession) say(w http.ResponseWriter, r *http.Request, st *stream, rename func([]byte) []byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	flush()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		s.mu.Lock()
		all, last := st.all, st.last
		st.all = nil
		s.mu.Unlock()
		for _, message := range all {
			if rename != nil {
				message = rename(message)
			}
			if _, err := w.Write(append(append([]byte("event: message\ndata: "), message...), "\n\n"...)); err != nil {
				return
			}
		}
		if len(all) > 0 && flush() != nil || last {
			return
		}
		select {
		case <-st.more:
		case <-alive.C:
			s.forget.Reset(forgottenAfter)
			if _, err := io.WriteString(w, ": alive\n\n"); err != nil || flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
