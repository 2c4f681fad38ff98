package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/mcp/oauth"
)

// remote is a child at a URL as a program: each message that is written to its input is
// posted, and what comes back is its output. (The client transport of mcp-go encodes each
// message anew, from its own types: numbers and members that these do not have would be
// lost, and messages of the server arrive without an order.)
type remote struct {
	shown  string
	url    string
	name   string
	header http.Header
	login  *oauth.Store // nil: there is none
	client *http.Client

	in     *io.PipeReader
	toIt   *io.PipeWriter
	fromIt *io.PipeReader
	out    *io.PipeWriter
	ctx    context.Context
	end    context.CancelCauseFunc // with the reason; nil: it was stopped
	over   chan error
	work   sync.WaitGroup

	mu      sync.Mutex
	session string // "": the server has none
	version string // of the protocol, once it is agreed on
	posts   map[string]context.CancelFunc
}

// RemoteError is why a child at a URL has ended.
type RemoteError struct {
	Text   string
	Denied bool   // it needs a login
	advice string // how bmcp is given that
}

func (e *RemoteError) Error() string { return e.Text + e.advice }

const (
	// dialTimeout is how long a connection may take.
	dialTimeout = 10 * time.Second
	// linger is how long a stream may go on after the answer that it is for.
	linger = time.Second
	// cancelGrace is how long a server may still answer a request that was cancelled.
	cancelGrace = 10 * time.Second
	// leaveTimeout is how long the end of a session may take.
	leaveTimeout = time.Second
	// reconnect is the least time between two streams of the server's own messages,
	// maxReconnect the longest.
	reconnect, maxReconnect = time.Second, 30 * time.Second
	// leastRetry is the least time between two streams of one answer, whatever the server asks for.
	leastRetry = 100 * time.Millisecond
)

// connect is a Starter, of children at a URL. It connects when there is something to send.
func connect(spec *Spec) (Program, error) {
	header, err := spec.header()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	r := &remote{shown: spec.Shown(), name: spec.Name, url: spec.URL, header: header, over: make(chan error, 1),
		client: &http.Client{Transport: transport, CheckRedirect: stay}, posts: map[string]context.CancelFunc{}}
	if spec.Login != nil && spec.Login.Has(spec.URL) && header.Get("Authorization") == "" {
		r.login = spec.Login
	}
	r.in, r.toIt = io.Pipe()
	r.fromIt, r.out = io.Pipe()
	r.ctx, r.end = context.WithCancelCause(context.Background())
	go r.run()
	return r, nil
}

func (r *remote) Input() io.WriteCloser               { return r.toIt }
func (r *remote) Output() io.ReadCloser               { return r.fromIt }
func (r *remote) TryWrite() func([]byte) (int, error) { return nil }
func (r *remote) Ended() <-chan error                 { return r.over }
func (r *remote) Kill()                               { r.End() }
func (r *remote) Sweep() error                        { return nil }
func (r *remote) Free()                               {}
func (r *remote) PID() int                            { return 0 }

func (r *remote) End() {
	r.fail(nil)
	r.fromIt.Close()
}

// stay refuses a redirection to where the secrets of the URL are not to go.
func stay(req *http.Request, via []*http.Request) error {
	from := via[0]
	switch {
	case req.URL.Scheme != from.URL.Scheme || req.URL.Host != from.URL.Host:
		return fmt.Errorf("it redirects to %s, another server", shownURL(req.URL.String()))
	case req.Method != from.Method || len(via) > 5:
		return fmt.Errorf("it redirects to %s", shownURL(req.URL.String()))
	}
	return nil
}

// fail ends the child, unless it has ended. Its reason is nil if it was stopped.
func (r *remote) fail(why error) {
	r.end(why)
	r.in.CloseWithError(io.EOF)
}

// lost ends the child, as its server cannot be reached.
func (r *remote) lost(err error) {
	if known, ok := errors.AsType[*RemoteError](err); ok {
		r.fail(known)
		return
	}
	var u *url.Error
	if errors.As(err, &u) { // whose text has the whole URL
		err = u.Err
	}
	r.fail(&RemoteError{Text: fmt.Sprintf("cannot reach %s: %v", r.shown, err)})
}

// run posts what is written to the input, until that is closed or the server is lost.
func (r *remote) run() {
	lines := jsonrpc.NewReader(r.in)
	for {
		line, err := lines.Line()
		if err != nil {
			break
		}
		if m, err := jsonrpc.Parse(line); err == nil {
			r.send(m)
		}
	}
	r.fail(nil)
	r.work.Wait()
	why := context.Cause(r.ctx)
	if errors.Is(why, context.Canceled) {
		why = nil
		r.leave()
	}
	r.out.Close()
	r.client.CloseIdleConnections()
	r.over <- why
}

// send posts a message. It returns when the message is written, so that the server gets
// messages in their order, but does not wait for an answer: a notice that cancels a
// request is not to wait behind that.
func (r *remote) send(m *jsonrpc.Message) {
	ctx, cancel := context.WithCancel(r.ctx)
	id := string(m.ID)
	if m.IsRequest() {
		r.mu.Lock()
		r.posts[id] = cancel
		r.mu.Unlock()
	}
	if m.Method == "notifications/cancelled" {
		r.mu.Lock()
		drop := r.posts[string(jsonrpc.Get(m.Params, "requestId"))]
		r.mu.Unlock()
		if drop != nil {
			time.AfterFunc(cancelGrace, drop)
		}
	}
	greets := m.Method == "notifications/initialized" // before which nothing may be asked
	written := make(chan struct{})
	wrote := sync.OnceFunc(func() { close(written) })
	r.work.Go(func() {
		defer wrote()
		defer cancel()
		traced := ctx
		if !greets {
			traced = httptrace.WithClientTrace(ctx,
				&httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { wrote() }})
		}
		r.post(traced, m)
		if m.IsRequest() {
			r.mu.Lock()
			delete(r.posts, id)
			r.mu.Unlock()
		}
	})
	<-written
	if greets {
		r.work.Go(r.listen)
	}
}

// request makes a request with the headers of the session.
func (r *remote) request(ctx context.Context, method string, body []byte) (*http.Request, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url, reader)
	if err != nil {
		return nil, err
	}
	req.Header = r.header.Clone()
	if r.login != nil {
		token, err := r.login.Token(r.ctx, r.url) // a call that is cancelled does not end it
		switch {
		case err != nil:
			return nil, &RemoteError{Text: fmt.Sprintf("the login at %s cannot be used, bmcp auth %s logs in again: %v",
				r.shown, r.name, err)}
		case token != "": // else it has been ended meanwhile
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session != "" {
		req.Header.Set("Mcp-Session-Id", r.session)
	}
	if r.version != "" {
		req.Header.Set("MCP-Protocol-Version", r.version)
	}
	return req, nil
}

// post sends a message and copies what comes back.
func (r *remote) post(ctx context.Context, m *jsonrpc.Message) {
	req, err := r.request(ctx, http.MethodPost, m.Raw)
	if err != nil {
		r.lost(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := r.client.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			r.lost(err)
		}
		return
	}
	defer res.Body.Close()
	r.mu.Lock()
	had := r.session != ""
	if id := res.Header.Get("Mcp-Session-Id"); id != "" && !had {
		r.session = id
	}
	r.mu.Unlock()
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode >= 300:
		r.refused(res, m, had)
	case !m.IsRequest(): // it is accepted
	case kind == "text/event-stream":
		r.stream(ctx, res.Body, m.ID)
	default:
		body, err := io.ReadAll(io.LimitReader(res.Body, jsonrpc.MaxLine+1))
		if err != nil {
			if ctx.Err() == nil {
				r.lost(err)
			}
			return
		}
		if !r.answers(body, m.ID) {
			r.refuse(m, fmt.Sprintf("%s answers with %s, which is not an answer of MCP", r.shown, kind))
		}
	}
}

// refused handles an answer to a message that is not a success. Had says that there was
// a session before.
func (r *remote) refused(res *http.Response, m *jsonrpc.Message, had bool) {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxPart))
	if m.IsRequest() && r.answers(body, m.ID) {
		return
	}
	why := fmt.Sprintf("%s answers %s", r.shown, res.Status)
	if text := jsonrpc.GetString(body, "error", "message"); text != "" && json.Valid(body) {
		why += ": " + jsonrpc.Clip([]byte(text))
	}
	e := &RemoteError{Denied: res.StatusCode == http.StatusUnauthorized}
	switch code := res.StatusCode; {
	case e.Denied && r.login != nil:
		e.advice = fmt.Sprintf(": it does not accept the login any more, bmcp auth %s logs in again", r.name)
	case e.Denied:
		e.advice = fmt.Sprintf(": it needs a login, by bmcp auth %s, or a token, as token_file or headers of "+
			"[child.%s] in --config", r.name, r.name)
	case code == http.StatusForbidden, code >= http.StatusBadGateway && code <= http.StatusGatewayTimeout:
	case had && (code == http.StatusNotFound || code == http.StatusGone),
		had && m.IsRequest() && code == http.StatusBadRequest:
		why += ": it has ended the session"
	case m.IsRequest() && code == http.StatusNotFound, m.Method == "notifications/initialized":
	default: // it concerns this message alone
		if m.IsRequest() {
			r.refuse(m, why)
		}
		return
	}
	e.Text = why
	r.fail(e)
}

// refuse answers a request with an error.
func (r *remote) refuse(m *jsonrpc.Message, why string) {
	r.write(jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.InternalError, "%s", why)))
}

// answers writes the answer to a request, if it is that.
func (r *remote) answers(body []byte, id json.RawMessage) bool {
	m, err := jsonrpc.Parse(bytes.TrimSpace(body))
	if err != nil || !m.IsResponse() || string(m.ID) != string(id) {
		return false
	}
	r.deliver(m)
	return true
}

// deliver writes a message of the server.
func (r *remote) deliver(m *jsonrpc.Message) {
	r.mu.Lock()
	if r.version == "" { // it is the answer to initialize
		r.version = jsonrpc.GetString(m.Result, "protocolVersion")
	}
	r.mu.Unlock()
	r.write(m.Raw)
}

// write writes a message as a line, unchanged if it is one.
func (r *remote) write(message []byte) {
	if bytes.ContainsAny(message, "\r\n") {
		var line bytes.Buffer
		if json.Compact(&line, message) != nil {
			return
		}
		message = line.Bytes()
	}
	r.out.Write(append(message[:len(message):len(message)], '\n'))
}

// stream copies the messages of a stream until it has the answer to a request, and goes
// on with another stream if this one ends before.
func (r *remote) stream(ctx context.Context, body io.ReadCloser, id json.RawMessage) {
	var e events
	for {
		answered := false
		err := e.read(body, func(data []byte) {
			m, err := jsonrpc.Parse(data)
			if err != nil {
				return
			}
			r.deliver(m)
			if m.IsResponse() && string(m.ID) == string(id) {
				answered = true
				time.AfterFunc(linger, func() { body.Close() })
			}
		})
		body.Close()
		switch {
		case answered || ctx.Err() != nil:
			return
		case errors.Is(err, jsonrpc.ErrTooLong):
			r.fail(&RemoteError{Text: fmt.Sprintf("%s: %v", r.shown, err)})
			return
		case e.last == "":
			r.fail(&RemoteError{Text: fmt.Sprintf("%s has ended the stream of an answer before it", r.shown)})
			return
		}
		if !r.pause(ctx, max(e.retry, leastRetry)) {
			return
		}
		res, err := r.get(ctx, e.last)
		if err == nil && res.StatusCode != http.StatusOK {
			res.Body.Close()
			err = fmt.Errorf("it answers %s where the stream of an answer goes on", res.Status)
		}
		if err != nil {
			if ctx.Err() == nil {
				r.lost(err)
			}
			return
		}
		body = res.Body
	}
}

func (r *remote) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// get asks for a stream, after the event with the ID last.
func (r *remote) get(ctx context.Context, last string) (*http.Response, error) {
	req, err := r.request(ctx, http.MethodGet, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	return r.client.Do(req)
}

// listen copies the messages that the server sends by itself, if it has a stream for them.
func (r *remote) listen() {
	var e events
	delay := reconnect
	for {
		res, err := r.get(r.ctx, e.last)
		if err != nil {
			if r.ctx.Err() == nil {
				r.lost(err)
			}
			return
		}
		switch code := res.StatusCode; {
		case code == http.StatusOK:
			delay = reconnect
			e.read(res.Body, func(data []byte) {
				if m, err := jsonrpc.Parse(data); err == nil {
					r.deliver(m)
				}
			})
		case code >= http.StatusInternalServerError && code != http.StatusNotImplemented:
			delay = min(2*delay, maxReconnect) // what has to be answered tells whether it is away
		case code == http.StatusNotFound && r.hasSession():
			r.fail(&RemoteError{Text: fmt.Sprintf("%s answers %s: it has ended the session", r.shown, res.Status)})
		default: // it has none
			res.Body.Close()
			return
		}
		res.Body.Close()
		if !r.pause(r.ctx, max(delay, min(e.retry, maxReconnect))) {
			return
		}
	}
}

func (r *remote) hasSession() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session != ""
}

// leave ends the session.
func (r *remote) leave() {
	if !r.hasSession() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if req, err := r.request(ctx, http.MethodDelete, nil); err == nil {
		if res, err := r.client.Do(req); err == nil {
			res.Body.Close()
		}
	}
}
