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
	"btools/lib/virtual"
	"btools/lib/virtual/policy"
)

// what is asked for at an address below a browser's.
type what int

const (
	unknown what = iota
	version
	list
	newPage
	protocol
	activate
	closePage
	toBrowser
	toPage
)

// asked tells what a path below a browser's address asks for, and of what. A
// slash at its end means nothing, as to Chrome.
func asked(path string) (is what, of string) {
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
	for prefix, is := range map[string]what{"/json/activate/": activate, "/json/close/": closePage, "/devtools/browser/": toBrowser, "/devtools/page/": toPage} {
		if of, ok := strings.CutPrefix(path, prefix); ok && of != "" {
			return is, of
		}
	}
	return unknown, ""
}

// refusal refuses a request that no session could answer.
func refusal(r *http.Request, is what) *guard.Refusal {
	upgrade := r.Header.Get("Upgrade") != ""
	switch {
	case is == unknown || (is == toBrowser || is == toPage) && !upgrade:
		return guard.Refuse(http.StatusNotFound, guard.NotFound, "DevTools has no path %q", r.URL.Path)
	case upgrade && is != toBrowser && is != toPage:
		return guard.Refuse(http.StatusNotFound, guard.NotFound, "no WebSocket has the path %q", r.URL.Path)
	case is == newPage && r.Method != http.MethodPut:
		return guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest, "/json/new wants PUT, not %s", r.Method)
	case is != newPage && r.Method != http.MethodGet:
		return guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest, "%s wants GET, not %s", r.URL.Path, r.Method)
	case r.ContentLength != 0:
		return guard.Refuse(http.StatusRequestEntityTooLarge, control.BadRequest, "no request of DevTools has a body")
	}
	return nil
}

// Serve answers a request whose path is below a session's own, which is base,
// such as /session/NAME: what a browser's endpoint has, for this session alone.
// Of a WebSocket, it returns when that has ended. Who may ask is judged before,
// and secrets are removed from the request.
//
// With an error nothing is answered: the session's Chrome has just died, and
// another session may take its place.
func Serve(w http.ResponseWriter, r *http.Request, s *virtual.Session, base string) error {
	is, of := asked(strings.TrimPrefix(r.URL.Path, base))
	if no := refusal(r, is); no != nil {
		no.WriteResponse(w)
		return nil
	}
	s.Touch()
	at := "ws://" + r.Host + base + "/devtools/"
	switch is {
	case version:
		id := "whole" // any will do
		if base != "" {
			id = path.Base(base)
		}
		answer(w, versionOf(s.Browser(), at+"browser/"+id))
	case list:
		infos := []listed{}
		for _, info := range s.Targets() {
			infos = append(infos, newListed(info, at))
		}
		answer(w, infos)
	case newPage:
		open(w, r, s, at)
	case protocol:
		giveProtocol(w, r, s.Browser())
	case activate:
		say(w, of, "Target activated", s.Activate(r.Context(), of))
	case closePage:
		say(w, of, "Target is closing", s.CloseTarget(r.Context(), of))
	case toBrowser:
		return connect(w, r, s, "")
	case toPage:
		return connect(w, r, s, of)
	}
	return nil
}

// connect serves a WebSocket: to the browser, or to a target.
func connect(w http.ResponseWriter, r *http.Request, s *virtual.Session, target string) error {
	k, err := s.Connect(r.Context(), target)
	switch {
	case virtual.IsNoTarget(err):
		text(w, http.StatusInternalServerError, "No such target id: "+target) // as Chrome
	case err != nil && died(r.Context(), s):
		return err
	case err != nil:
		fail(w, err)
	default:
		k.Accept(w, r) // which has told the client of an error
	}
	return nil
}

// died reports whether a session that can't be connected to ends with its
// Chrome: who connects may notice that first.
func died(ctx context.Context, s *virtual.Session) bool {
	select {
	case <-s.Browser().Done():
		return true
	case <-ctx.Done():
	case <-time.After(dying):
	}
	return false
}

// versionOf is what /json/version says.
func versionOf(b *virtual.Browser, ws string) any {
	v := b.Version()
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
		jsonrpc.GetString(v, "product"), jsonrpc.GetString(v, "protocolVersion"), agent, jsonrpc.GetString(v, "jsVersion"),
		fmt.Sprintf("%s (%s)", webKit, jsonrpc.GetString(v, "revision")), ws,
	}
}

// listed is a target in /json/list. Chrome's link to a front end is left out:
// it is no session's.
type listed struct {
	Description string `json:"description"`
	ID          string `json:"id"`
	ParentID    string `json:"parentId,omitempty"`
	Title       string `json:"title"`
	Type        string `json:"type"`
	URL         string `json:"url"`
	WSURL       string `json:"webSocketDebuggerUrl"`
}

func newListed(info json.RawMessage, at string) listed {
	get := func(name string) string { return jsonrpc.GetString(info, name) }
	id := get("targetId")
	return listed{ID: id, ParentID: get("parentFrameId"), Title: get("title"), Type: get("type"), URL: get("url"), WSURL: at + "page/" + id}
}

// open answers /json/new.
func open(w http.ResponseWriter, r *http.Request, s *virtual.Session, at string) {
	address, err := url.PathUnescape(r.URL.RawQuery)
	if err != nil || address == "" {
		address = "about:blank"
	}
	if err := policy.URL(address); err != nil {
		guard.Refuse(http.StatusForbidden, guard.Forbidden, "%v", err).WriteResponse(w)
		return
	}
	id, err := s.NewPage(r.Context(), address)
	if err != nil {
		fail(w, err)
		return
	}
	if s.Has(r.Context(), id) { // it is listed now
		for _, info := range s.Targets() {
			if l := newListed(info, at); l.ID == id {
				answer(w, l)
				return
			}
		}
	}
	answer(w, listed{ID: id, Type: "page", URL: address, WSURL: at + "page/" + id}) // and gone already
}

// say tells what became of a target, in Chrome's words.
func say(w http.ResponseWriter, target, done string, err error) {
	switch {
	case virtual.IsNoTarget(err):
		text(w, http.StatusNotFound, "No such target id: "+target)
	case err != nil:
		text(w, http.StatusInternalServerError, err.Error())
	default:
		text(w, http.StatusOK, done)
	}
}

// protocolBound is how long Chrome may take to describe its protocol.
const protocolBound = 30 * time.Second

// giveProtocol answers /json/protocol with Chrome's own.
func giveProtocol(w http.ResponseWriter, r *http.Request, b *virtual.Browser) {
	transport := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: protocolBound}
	ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+b.Addr()+"/json/protocol", nil)
	if err == nil {
		var resp *http.Response
		if resp, err = client.Do(ask); err == nil {
			defer resp.Body.Close()
			head(w, resp.ContentLength)
			w.WriteHeader(resp.StatusCode)
			io.Copy(w, resp.Body)
			return
		}
	}
	fail(w, fmt.Errorf("the browser does not answer: %w", err))
}

// answer answers with JSON, as Chrome writes it.
func answer(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", "   ")
	if err != nil {
		panic(err) // of strings
	}
	head(w, int64(len(b)+1))
	w.Write(append(b, '\n'))
}

// text answers with a line, of the type that Chrome gives it.
func text(w http.ResponseWriter, status int, line string) {
	head(w, int64(len(line)))
	w.WriteHeader(status)
	io.WriteString(w, line)
}

func head(w http.ResponseWriter, length int64) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
	if length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
}

// fail answers with the error for which there is no session, or no page.
func fail(w http.ResponseWriter, err error) {
	e, status := control.ErrorOf(err), http.StatusBadGateway
	var own *jsonrpc.Error
	switch {
	case e.Code == control.BadRequest:
		status = http.StatusBadRequest
	case e.Code == guard.NotFound:
		status = http.StatusNotFound
	case e.Code == control.SessionLimit, errors.Is(err, errClosed), errors.Is(err, errEnded):
		status = http.StatusServiceUnavailable
	case errors.As(err, &own):
		status = http.StatusInternalServerError
	}
	(&guard.Refusal{Status: status, Error: e}).WriteResponse(w)
}
