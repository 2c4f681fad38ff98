package front

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/front/eventlog"
)

const sessionHeader = "Mcp-Session-Id"

// HTTP serves many hosts by streamable HTTP, each with a session of its own. What it
// returns ends that: the open requests are answered; it is an error if a host does not
// read its answer.
func HTTP(hosts Hosts, l net.Listener, port *front.Front, limits Limits) (end func() error) {
	f := newHTTPFront(hosts, limits)
	port.Pages, port.Limit.Max = &fromPages, 1024
	port.Routes = []front.Route{{Answer: func(w *front.Response, r *http.Request) error {
		f.serve(w, r)
		return nil
	}}}
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	var unread error
	serving.Go(func() {
		if err := port.Serve(ctx, func(s *http.Server) { unread = f.close(s) }, l); err != nil {
			port.Log.Error("HTTP is no longer served: " + err.Error())
		}
	})
	return func() error {
		stop()
		serving.Wait()
		return unread
	}
}

// close ends all sessions and the server. It returns an error if a host does not read its
// last answers.
func (f *httpFront) close(s *http.Server) error {
	f.mu.Lock()
	f.ended = true
	all := slices.Collect(maps.Values(f.sessions))
	f.mu.Unlock()
	served := make(chan struct{})
	go func() {
		defer close(served)
		var wg sync.WaitGroup
		for _, session := range all {
			wg.Go(func() { f.end(session) })
		}
		wg.Wait()
		f.serving.Wait()
	}()
	err := f.flow.await(served, f.limits.Flush)
	if err == nil { // the ends of the answers are written, too
		flush, cancel := context.WithTimeout(context.Background(), f.limits.Linger)
		s.Shutdown(flush)
		cancel()
	}
	s.Close()
	<-served
	if err != nil {
		err = fmt.Errorf("cannot write the last messages to a host: %w", err)
	}
	return err
}

// fromPages is what web pages may ask, if their origin may.
var fromPages = guard.CORS{
	Methods: "POST, GET, DELETE",
	Headers: []string{"Accept", "Authorization", "Content-Type", "Last-Event-ID"},
	Prefix:  "Mcp-",
	Exposed: sessionHeader,
}

var errStopping = jsonrpc.Errorf(jsonrpc.InternalError, "bmcp is stopping")

// httpFront are the sessions by HTTP.
type httpFront struct {
	hosts    Hosts
	limits   Limits
	mu       sync.Mutex
	sessions map[string]*httpSession // "": of requests that know no sessions
	ended    bool
	serving  sync.WaitGroup // requests, and the ends of sessions that make room
	flow     flow
}

func newHTTPFront(hosts Hosts, limits Limits) *httpFront {
	f := &httpFront{hosts: hosts, limits: limits, sessions: map[string]*httpSession{}}
	f.flow.timeout = limits.Write
	return f
}

// answering answers a request that has been read, which the end waits for.
func (f *httpFront) answering(w http.ResponseWriter, answer func()) {
	f.mu.Lock()
	ended := f.ended
	if !ended {
		f.serving.Add(1)
	}
	f.mu.Unlock()
	if ended {
		httpError(w, http.StatusServiceUnavailable, nil, errStopping)
		return
	}
	defer f.serving.Done()
	answer()
}

// httpSession is a host and the streams that it listens to.
type httpSession struct {
	Host
	front    *httpFront
	log      *eventlog.Log
	id       string
	used     time.Time // under the front's lock
	forget   *time.Timer
	presence presence
}

// session returns the session with the ID, and makes one if there is none; nil if
// too many are in use.
func (f *httpFront) session(id string) *httpSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sessions[id]; s != nil {
		return s
	}
	if f.ended || len(f.sessions) >= f.limits.Sessions && id != "" && !f.makeRoomLocked() {
		return nil
	}
	s := &httpSession{id: id, used: time.Now(), log: eventlog.New(id == "", eventlog.DefaultLimits), front: f}
	s.Host = f.hosts.New(func(to json.RawMessage, last bool, message []byte) {
		s.log.Add(string(to), last, message)
	}, id == "")
	if s.presence.lost = s.Away; id != "" { // else it is not one host
		s.presence.grace = f.limits.Lost
	}
	s.forget = time.AfterFunc(f.limits.SessionIdle, func() { f.end(s) })
	s.log.Alive = s.alive
	f.sessions[id] = s
	return s
}

// alive restarts the time after which an unused session ends.
func (s *httpSession) alive() { s.forget.Reset(s.front.limits.SessionIdle) }

// makeRoomLocked ends the session that has been unused for the longest time.
func (f *httpFront) makeRoomLocked() bool {
	var oldest *httpSession
	for id, s := range f.sessions {
		if id != "" && (oldest == nil || s.used.Before(oldest.used)) && s.log.Idle() {
			oldest = s
		}
	}
	if oldest == nil {
		return false
	}
	delete(f.sessions, oldest.id)
	f.serving.Go(func() { f.end(oldest) })
	return true
}

// end ends a session.
func (f *httpFront) end(s *httpSession) {
	f.mu.Lock()
	if f.sessions[s.id] == s {
		delete(f.sessions, s.id)
	}
	f.mu.Unlock()
	s.forget.Stop()
	s.presence.close()
	s.Close()
	s.log.Close()
}

// failure is the answer to a message that is refused.
func failure(id json.RawMessage, err error) []byte {
	var e *jsonrpc.Error
	errors.As(err, &e) // they all are
	return jsonrpc.Failure(id, e)
}

func notJSON(text []byte) error {
	return jsonrpc.Errorf(jsonrpc.ParseError, "not valid JSON: %s", jsonrpc.Clip(text))
}

func httpError(w http.ResponseWriter, status int, id json.RawMessage, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(failure(id, err), '\n'))
}

func (f *httpFront) serve(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimSuffix(r.URL.Path, "/") {
	case "/mcp", "":
	case "/health", "/healthz":
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"status":"ok"}`+"\n")
		return
	default:
		httpError(w, http.StatusNotFound, nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "MCP is at /mcp"))
		return
	}
	id := r.Header.Get(sessionHeader)
	switch r.Method {
	case http.MethodPost:
		f.post(w, r, id)
	case http.MethodGet:
		if s := f.known(w, id); s != nil {
			f.answering(w, func() { s.get(w, r) })
		}
	case http.MethodDelete:
		if s := f.known(w, id); s != nil {
			f.answering(w, func() {
				f.end(s)
				w.WriteHeader(http.StatusNoContent)
			})
		}
	default:
		w.Header().Set("Allow", "POST, GET, DELETE")
		httpError(w, http.StatusMethodNotAllowed, nil,
			jsonrpc.Errorf(jsonrpc.InvalidRequest, "MCP has POST, GET and DELETE, not %s", r.Method))
	}
}

// known returns the session with the ID; if there is none, it answers the request
// with an error.
func (f *httpFront) known(w http.ResponseWriter, id string) *httpSession {
	f.mu.Lock()
	s := f.sessions[id]
	if s != nil {
		s.used = time.Now()
	}
	f.mu.Unlock()
	switch {
	case id == "":
		httpError(w, http.StatusBadRequest, nil,
			jsonrpc.Errorf(jsonrpc.InvalidRequest, "the header %s is missing: initialize gives it", sessionHeader))
		return nil
	case s == nil:
		httpError(w, http.StatusNotFound, nil,
			jsonrpc.Errorf(jsonrpc.InvalidRequest, "there is no such session (any more): initialize again"))
		return nil
	}
	s.alive()
	s.presence.seen()
	return s
}

// post takes one message. The answer to a request is a stream of what comes
// before it, and of it.
func (f *httpFront) post(w http.ResponseWriter, r *http.Request, id string) {
	var s *httpSession
	if id != "" {
		if s = f.known(w, id); s == nil {
			return
		}
		if v := r.Header.Get(mcp.HeaderProtocolVersion); v != "" && !slices.Contains(mcp.ValidProtocolVersions, v) {
			httpError(w, http.StatusBadRequest, nil,
				jsonrpc.Errorf(jsonrpc.InvalidRequest, "the protocol version %q is not spoken here", v))
			return
		}
	}
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(f.limits.Read))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, jsonrpc.MaxLine))
	if err != nil {
		httpError(w, http.StatusRequestEntityTooLarge, nil,
			jsonrpc.Errorf(jsonrpc.InvalidRequest, "cannot read the request: %v", err))
		return
	}
	http.NewResponseController(w).SetReadDeadline(time.Time{})
	var line bytes.Buffer // as one line, which is what children read
	if err := json.Compact(&line, body); err != nil {
		httpError(w, http.StatusBadRequest, nil, notJSON(body))
		return
	}
	f.answering(w, func() { f.message(w, r, s, line.Bytes()) })
}

// message takes a message, or an array of them. The session is nil if none is
// named.
func (f *httpFront) message(w http.ResponseWriter, r *http.Request, s *httpSession, line []byte) {
	if line[0] == '[' && s != nil {
		f.postBatch(w, r, s, line)
		return
	}
	m, err := jsonrpc.Parse(line)
	if err != nil {
		httpError(w, http.StatusBadRequest, nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "not a request: %v", err))
		return
	}
	switch {
	case string(m.ID) == "null":
		httpError(w, http.StatusBadRequest, nil,
			jsonrpc.Errorf(jsonrpc.InvalidRequest, "the id of a request is a string or a number"))
		return
	case isStatelessByHTTP(m, r.Header.Get(mcp.HeaderProtocolVersion), s != nil):
		f.stateless(w, r, m)
		return
	case s == nil && m.Method == "initialize" && m.IsRequest():
		if params := jsonrpc.Get(m.Raw, "params"); len(params) == 0 || params[0] != '{' {
			httpError(w, http.StatusBadRequest, m.ID,
				jsonrpc.Errorf(jsonrpc.InvalidParams, "initialize has an object of parameters"))
			return
		}
		id := rand.Text()
		if s = f.session(id); s == nil {
			httpError(w, http.StatusServiceUnavailable, m.ID,
				jsonrpc.Errorf(jsonrpc.InternalError, "there are too many sessions: end one by DELETE"))
			return
		}
		w.Header().Set(sessionHeader, id)
	case s == nil:
		f.known(w, "") // reports that none is named
		return
	}
	s.answer(w, r, m.ID, m)
}

// postBatch takes an array of messages.
func (f *httpFront) postBatch(w http.ResponseWriter, r *http.Request, s *httpSession, array []byte) {
	messages, errs, err := batch(s, array, f.limits.Batch)
	if err = cmp.Or(err, errors.Join(errs...)); err != nil {
		httpError(w, http.StatusBadRequest, nil, err)
		return
	}
	s.answer(w, r, nil, messages...)
}

// answer answers the requests among messages by one stream.
func (s *httpSession) answer(w http.ResponseWriter, r *http.Request, id json.RawMessage, messages ...*jsonrpc.Message) {
	var ids []string
	for _, m := range messages {
		if m.IsRequest() {
			ids = append(ids, string(m.ID))
		}
	}
	if len(ids) == 0 {
		for _, m := range messages {
			s.Handle(m, nil)
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if most := s.front.limits.Requests; s.Open() >= most {
		httpError(w, http.StatusTooManyRequests, id, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"too many requests of this session are being answered (limit %d)", most))
		return
	}
	st, taken := s.log.Begin(nil, ids...)
	if st == nil {
		httpError(w, http.StatusBadRequest, id,
			jsonrpc.Errorf(jsonrpc.InvalidRequest, "a request with the id %s is being answered already",
				jsonrpc.Clip([]byte(taken))))
		return
	}
	listener := s.log.Listen(st)
	for _, m := range messages {
		s.Handle(m, nil)
	}
	s.stream(w, r, listener)
}

// get streams the messages that belong to no request. A host that reconnects gets
// what it has missed of a stream, and the rest of it.
func (s *httpSession) get(w http.ResponseWriter, r *http.Request) {
	event := r.Header.Get("Last-Event-Id")
	if event == "" {
		s.stream(w, r, s.log.ListenGeneral())
		return
	}
	listener, err := s.log.Resume(event)
	if err != nil {
		httpError(w, http.StatusBadRequest, nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "%v", err))
		return
	}
	s.stream(w, r, listener)
}

// stream answers with a stream of events, until its end or until the host is
// gone.
func (s *httpSession) stream(w http.ResponseWriter, r *http.Request, l *eventlog.Listener) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache, no-transform")
	w.WriteHeader(http.StatusOK)
	out := s.front.flow.to(w)
	defer out.end()
	s.presence.begin()
	cut := l.Write(r.Context(), out, takesEmptyEvents(r.Header.Get(mcp.HeaderProtocolVersion)))
	s.presence.end(cut && r.Method == http.MethodGet)
}
