package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/guard"
	"btools/lib/jsonrpc"
	book "btools/lib/sessions"
	"btools/lib/virtual"
)

// endpoint is a request of DevTools, by its path below a browser's address.
type endpoint int

const (
	unknown endpoint = iota
	version
	list
	newPage
	protocol
	activate
	closePage
	toBrowser
	toPage
)

// parsePath returns the endpoint of a path below a browser's address, and the
// target in it. A slash at the end is ignored, as Chrome does.
func parsePath(path string) (ep endpoint, target string) {
	path = strings.TrimSuffix(path, "/")
	switch path {
	case "/json/version":
		return version, ""
	case "/json", "/json/list":
		return list, ""
	case "/json/new":
		return newPage, ""
	case "/json/protocol":
		return protocol, ""
	case "", "/devtools/browser":
		return toBrowser, ""
	}
	for prefix, ep := range map[string]endpoint{"/json/activate/": activate, "/json/close/": closePage,
		"/devtools/browser/": toBrowser, "/devtools/page/": toPage} {
		if target, ok := strings.CutPrefix(path, prefix); ok && target != "" {
			return ep, target
		}
	}
	return unknown, ""
}

// refusal refuses a request that no session could answer.
func refusal(r *http.Request, ep endpoint) *guard.Refusal {
	upgrade := strings.EqualFold(r.Header.Get("Upgrade"), "websocket") // not to HTTP/2, which a client may offer
	switch {
	case ep == unknown || (ep == toBrowser || ep == toPage) && !upgrade:
		return guard.Refuse(http.StatusNotFound, guard.NotFound, "DevTools has no path %q", r.URL.Path)
	case upgrade && ep != toBrowser && ep != toPage:
		return guard.Refuse(http.StatusNotFound, guard.NotFound, "there is no WebSocket at the path %q", r.URL.Path)
	case ep == newPage && r.Method != http.MethodPut:
		return guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest,
			"/json/new must be requested with PUT, not %s",
			r.Method)
	case ep != newPage && r.Method != http.MethodGet:
		return guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest, "%s must be requested with GET, not %s",
			r.URL.Path, r.Method)
	case r.ContentLength != 0:
		return guard.Refuse(http.StatusRequestEntityTooLarge, control.BadRequest, "a DevTools request has no body")
	}
	return nil
}

// Trace records what the clients of a session send and get.
type Trace interface {
	// Connection begins a WebSocket with this path. The function gets each message.
	Connection(path string) func(toClient bool, message []byte, size int64)
	Close() error
}

// Serve answers a request to a session as a browser's endpoint would. base is
// the session's own path, such as /session/NAME. For a WebSocket, it returns
// when that has ended. The caller has checked the request and has removed
// secrets from it. A trace, if it is not nil, records WebSockets.
//
// If it returns an error, nothing has been answered: the session's Chrome has
// just died, and another session may take its place.
func Serve(w http.ResponseWriter, r *http.Request, s *virtual.Session, base string, trace Trace) error {
	opened := strings.TrimPrefix(r.URL.Path, base)
	ep, target := parsePath(opened)
	if no := refusal(r, ep); no != nil {
		no.WriteResponse(w)
		return nil
	}
	switch ep {
	case newPage, activate, closePage: // the others are a monitor's, too
		s.Touch()
	}
	at := "ws://" + r.Host + base + "/devtools/"
	switch ep {
	case version:
		id := "whole" // any ID works
		if base != "" {
			id = path.Base(base)
		}
		writeJSON(w, versionOf(s.Browser().Version(), at+"browser/"+id))
	case list:
		infos := []targetInfo{}
		s.ReadTitles(r.Context())
		for _, info := range s.Targets() {
			infos = append(infos, newTargetInfo(info, at))
		}
		writeJSON(w, infos)
	case newPage:
		serveNewPage(w, r, s, at)
	case protocol:
		serveProtocol(w, r, s.Browser().Addr())
	case activate:
		writeOutcome(w, target, "Target activated", s.Activate(r.Context(), target))
	case closePage:
		writeOutcome(w, target, "Target is closing", s.CloseTarget(r.Context(), target))
	case toBrowser:
		return serveWebSocket(w, r, s, "", opened, trace)
	case toPage:
		return serveWebSocket(w, r, s, target, opened, trace)
	}
	return nil
}

// serveWebSocket serves a WebSocket to the browser, or to a target.
func serveWebSocket(
	w http.ResponseWriter, r *http.Request, s *virtual.Session, target, path string, trace Trace,
) error {
	k, err := s.Connect(r.Context(), target)
	switch {
	case virtual.IsNoTarget(err):
		writeText(w, http.StatusInternalServerError, "No such target id: "+target) // as Chrome
	case err != nil && died(r.Context(), s):
		return err
	case err != nil:
		writeError(w, err)
	default:
		if trace != nil {
			k.Trace = func() func(bool, []byte, int64) { return trace.Connection(path) }
		}
		k.Accept(w, r) // which has answered the client with any error
	}
	return nil
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

// versionOf returns the content of /json/version, given Chrome's answer to
// Browser.getVersion.
func versionOf(v json.RawMessage, ws string) any {
	agent := jsonrpc.GetString(v, "userAgent")
	_, webKit, _ := strings.Cut(agent, "AppleWebKit/")
	webKit, _, _ = strings.Cut(webKit, " ")
	return struct {
		Browser         string
		ProtocolVersion string `json:"Protocol-Version"`
		UserAgent       string `json:"User-Agent"`
		V8Version       string `json:"V8-Version"`
		WebKitVersion   string `json:"WebKit-Version"`
		WSURL           string `json:"webSocketDebuggerUrl"`
	}{
		jsonrpc.GetString(v, "product"), jsonrpc.GetString(v, "protocolVersion"), agent,
		jsonrpc.GetString(v, "jsVersion"),
		fmt.Sprintf("%s (%s)", webKit, jsonrpc.GetString(v, "revision")), ws,
	}
}

// targetInfo is a target in /json/list. Chrome's link to a front end is left
// out: front ends belong to no session.
type targetInfo struct {
	Description string `json:"description"`
	ID          string `json:"id"`
	ParentID    string `json:"parentId,omitempty"`
	Title       string `json:"title"`
	Type        string `json:"type"`
	URL         string `json:"url"`
	WSURL       string `json:"webSocketDebuggerUrl"`
}

func newTargetInfo(info json.RawMessage, at string) targetInfo {
	get := func(name string) string { return jsonrpc.GetString(info, name) }
	id := get("targetId")
	return targetInfo{ID: id, ParentID: get("parentFrameId"), Title: get("title"), Type: get("type"), URL: get("url"),
		WSURL: at + "page/" + id}
}

// newPageURL returns the URL of a request to /json/new.
func newPageURL(r *http.Request) string {
	address, err := url.PathUnescape(r.URL.RawQuery)
	if err != nil || address == "" {
		return "about:blank"
	}
	return address
}

// serveNewPage answers /json/new.
func serveNewPage(w http.ResponseWriter, r *http.Request, s *virtual.Session, at string) {
	address := newPageURL(r)
	if err := s.Browser().CheckURL(address); err != nil {
		guard.Refuse(http.StatusForbidden, guard.Forbidden, "%v", err).WriteResponse(w)
		return
	}
	id, err := s.NewPage(r.Context(), address)
	if err != nil {
		writeError(w, err)
		return
	}
	if s.Has(r.Context(), id) { // it is listed now
		for _, info := range s.Targets() {
			if l := newTargetInfo(info, at); l.ID == id {
				writeJSON(w, l)
				return
			}
		}
	}
	writeJSON(w, targetInfo{ID: id, Type: "page", URL: address, WSURL: at + "page/" + id}) // and gone already
}

// writeOutcome answers what happened to a target, in Chrome's words.
func writeOutcome(w http.ResponseWriter, target, done string, err error) {
	switch {
	case virtual.IsNoTarget(err):
		writeText(w, http.StatusNotFound, "No such target id: "+target)
	case err != nil:
		writeText(w, http.StatusInternalServerError, err.Error())
	default:
		writeText(w, http.StatusOK, done)
	}
}

// writeJSON answers with JSON, formatted as Chrome does.
func writeJSON(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", "   ")
	if err != nil {
		panic(err) // of strings
	}
	setHeaders(w, int64(len(b)+1))
	w.Write(append(b, '\n'))
}

// writeText answers with a line, with the content type that Chrome uses.
func writeText(w http.ResponseWriter, status int, line string) {
	setHeaders(w, int64(len(line)))
	w.WriteHeader(status)
	io.WriteString(w, line)
}

func setHeaders(w http.ResponseWriter, length int64) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
	if length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
}

// writeError answers with the reason why there is no session, or no page.
func writeError(w http.ResponseWriter, err error) {
	e, status := control.ErrorOf(err), http.StatusBadGateway
	var own *jsonrpc.Error
	switch {
	case e.Code == control.BadRequest:
		status = http.StatusBadRequest
	case e.Code == guard.NotFound:
		status = http.StatusNotFound
	case e.Code == control.SessionLimit, errors.Is(err, book.ErrClosed), errors.Is(err, book.ErrEnded):
		status = http.StatusServiceUnavailable
	case errors.As(err, &own):
		status = http.StatusInternalServerError
	}
	(&guard.Refusal{Status: status, Error: e}).WriteResponse(w)
}
