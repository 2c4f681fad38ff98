package front

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"btools/lib/control"
	"btools/lib/guard"
	"btools/lib/jsonrpc"
)

// DevTools is a request to a browser's debugging endpoint.
type DevTools struct {
	Endpoint Endpoint
	Target   string // the ID at the end of the path; "": none
}

// Endpoint is what a request of DevTools asks for.
type Endpoint int

// Endpoints.
const (
	Version Endpoint = iota
	List
	NewPage
	Protocol
	Activate
	Close
	ToBrowser // a WebSocket, as are the next two
	ToPage
	ToBiDi
	FrontEnd // a file of the front end
)

// endpoints are the paths of DevTools. One that ends with a slash precedes an ID.
var endpoints = []struct {
	path   string
	ep     Endpoint
	method string
	socket bool
	raw    bool // only a browser of its own has it
}{
	{"", ToBrowser, http.MethodGet, true, false},
	{"/devtools/browser", ToBrowser, http.MethodGet, true, false},
	{"/devtools/browser/", ToBrowser, http.MethodGet, true, false},
	{"/devtools/page/", ToPage, http.MethodGet, true, false},
	{"/session", ToBiDi, http.MethodGet, true, true},
	{"/session/", ToBiDi, http.MethodGet, true, true},
	{"/json/version", Version, http.MethodGet, false, false},
	{"/json", List, http.MethodGet, false, false},
	{"/json/list", List, http.MethodGet, false, false},
	{"/json/new", NewPage, http.MethodPut, false, false},
	{"/json/protocol", Protocol, http.MethodGet, false, false},
	{"/json/activate/", Activate, http.MethodGet, false, false},
	{"/json/close/", Close, http.MethodGet, false, false},
	{"/devtools/", FrontEnd, http.MethodGet, false, true},
}

// ReadDevTools returns what a request asks for at a path below a browser's address, or why
// it is refused. A slash at the end is ignored, as Chrome does. raw says that the browser
// itself answers.
func ReadDevTools(r *http.Request, path string, raw bool) (DevTools, *guard.Refusal) {
	path = strings.TrimSuffix(path, "/")
	upgrade := IsUpgrade(r)
	for _, e := range endpoints {
		target, below := strings.CutPrefix(path, e.path)
		if e.socket != upgrade || e.raw && !raw || !below || (target != "") != strings.HasSuffix(e.path, "/") {
			continue
		}
		switch {
		case r.ContentLength != 0:
			return DevTools{}, guard.Refuse(http.StatusRequestEntityTooLarge, control.BadRequest,
				"a DevTools request has no body")
		case r.Method != e.method:
			return DevTools{}, guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest,
				"%s must be requested with %s, not %s", r.URL.Path, e.method, r.Method)
		}
		return DevTools{e.ep, target}, nil
	}
	if upgrade {
		return DevTools{}, guard.Refuse(http.StatusNotFound, guard.NotFound, "there is no WebSocket at the path %q",
			r.URL.Path)
	}
	return DevTools{}, guard.Refuse(http.StatusNotFound, guard.NotFound, "DevTools has no path %q", r.URL.Path)
}

// IsSocket reports whether the request is for a WebSocket.
func (d DevTools) IsSocket() bool { return ToBrowser <= d.Endpoint && d.Endpoint <= ToBiDi }

// IsCommand reports whether the request changes the browser's pages. Others, such as those
// of a monitor, are no use of it.
func (d DevTools) IsCommand() bool {
	return d.Endpoint == NewPage || d.Endpoint == Activate || d.Endpoint == Close
}

// IsUpgrade reports whether a request asks for a WebSocket. It may offer HTTP/2, too.
func IsUpgrade(r *http.Request) bool {
	return HasToken(r.Header, "Connection", "upgrade") && HasToken(r.Header, "Upgrade", "websocket")
}

// HasToken reports whether a header lists a token.
func HasToken(h http.Header, name, token string) bool {
	return slices.ContainsFunc(h[name], func(list string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(t string) bool {
			return strings.EqualFold(strings.TrimSpace(t), token)
		})
	})
}

// Browser is a browser whose debugging endpoint is answered in its place.
type Browser interface {
	// Version returns Chrome's answer to Browser.getVersion.
	Version(ctx context.Context) (json.RawMessage, error)
	// Targets returns the TargetInfo of each target.
	Targets(ctx context.Context) ([]json.RawMessage, error)
	// NewPage opens a page and returns the ID of its target.
	NewPage(ctx context.Context, url string) (string, error)
	// OnTarget executes a command whose only parameter is a target.
	OnTarget(ctx context.Context, method, target string) error
	// Connect serves a WebSocket to a target, or to the browser if target is "". If it
	// returns an error, it has answered nothing.
	Connect(w http.ResponseWriter, r *http.Request, target string) error
	// IsNoTarget reports whether an error says that there is no such target.
	IsNoTarget(err error) bool
	// Addr returns the host:port of Chrome's own endpoint; "": it has none.
	Addr() string
}

// Serve answers a request as the debugging endpoint of a browser does whose address ends
// with base. For a WebSocket, it returns when that has ended. If it returns an error, it
// has answered nothing.
func (d DevTools) Serve(w http.ResponseWriter, r *http.Request, b Browser, base string) error {
	at := "ws://" + r.Host + base + "/devtools/"
	switch d.Endpoint {
	case Version:
		v, err := b.Version(r.Context())
		if err != nil {
			return err
		}
		id := "whole" // any ID works
		if base != "" {
			id = path.Base(base)
		}
		WriteVersion(w, v, at+"browser/"+id)
	case List:
		infos, err := b.Targets(r.Context())
		if err != nil {
			return err
		}
		listed := []target{}
		for _, info := range infos {
			listed = append(listed, newTarget(info, at))
		}
		WriteJSON(w, listed)
	case NewPage:
		return serveNewPage(w, r, b, at)
	case Protocol:
		return ServeProtocol(w, r, b.Addr())
	case Activate:
		d.writeOutcome(w, b, "Target activated", b.OnTarget(r.Context(), "Target.activateTarget", d.Target))
	case Close:
		d.writeOutcome(w, b, "Target is closing", b.OnTarget(r.Context(), "Target.closeTarget", d.Target))
	case ToBrowser: // whatever its ID is
		return b.Connect(w, r, "")
	case ToPage:
		err := b.Connect(w, r, d.Target)
		if err == nil || !b.IsNoTarget(err) {
			return err
		}
		writeText(w, http.StatusInternalServerError, "No such target id: "+d.Target) // as Chrome
	}
	return nil
}

// serveNewPage answers /json/new.
func serveNewPage(w http.ResponseWriter, r *http.Request, b Browser, at string) error {
	address, err := url.PathUnescape(r.URL.RawQuery)
	if err != nil || address == "" {
		address = "about:blank"
	}
	id, err := b.NewPage(r.Context(), address)
	if err != nil {
		return err
	}
	infos, err := b.Targets(r.Context())
	if err != nil {
		return err
	}
	for _, info := range infos {
		if l := newTarget(info, at); l.ID == id {
			WriteJSON(w, l)
			return nil
		}
	}
	WriteJSON(w, target{ID: id, Type: "page", URL: address, WSURL: at + "page/" + id}) // and gone already
	return nil
}

// writeOutcome answers what happened to a target, in Chrome's words.
func (d DevTools) writeOutcome(w http.ResponseWriter, b Browser, done string, err error) {
	switch {
	case err == nil:
		writeText(w, http.StatusOK, done)
	case b.IsNoTarget(err):
		writeText(w, http.StatusNotFound, "No such target id: "+d.Target)
	default:
		writeText(w, http.StatusInternalServerError, err.Error())
	}
}

// WriteVersion answers /json/version, given Chrome's answer to Browser.getVersion and the
// address of the WebSocket.
func WriteVersion(w http.ResponseWriter, v json.RawMessage, ws string) {
	get := func(name string) string { return jsonrpc.GetString(v, name) }
	_, webKit, _ := strings.Cut(get("userAgent"), "AppleWebKit/")
	webKit, _, _ = strings.Cut(webKit, " ")
	WriteJSON(w, struct {
		Browser         string
		ProtocolVersion string `json:"Protocol-Version"`
		UserAgent       string `json:"User-Agent"`
		V8Version       string `json:"V8-Version"`
		WebKitVersion   string `json:"WebKit-Version"`
		WSURL           string `json:"webSocketDebuggerUrl"`
	}{get("product"), get("protocolVersion"), get("userAgent"), get("jsVersion"),
		fmt.Sprintf("%s (%s)", webKit, get("revision")), ws})
}

// target is a target in /json/list. Chrome's link to a front end is left out: front ends
// belong to no session.
type target struct {
	Description string `json:"description"`
	ID          string `json:"id"`
	ParentID    string `json:"parentId,omitempty"`
	Title       string `json:"title"`
	Type        string `json:"type"`
	URL         string `json:"url"`
	WSURL       string `json:"webSocketDebuggerUrl"`
}

func newTarget(info json.RawMessage, at string) target {
	get := func(name string) string { return jsonrpc.GetString(info, name) }
	id := get("targetId")
	return target{ID: id, ParentID: get("parentFrameId"), Title: get("title"), Type: get("type"), URL: get("url"),
		WSURL: at + "page/" + id}
}

// WriteJSON answers with JSON, formatted as Chrome does.
func WriteJSON(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", "   ")
	if err != nil {
		panic(err) // of strings
	}
	writeText(w, http.StatusOK, string(append(b, '\n')))
}

// writeText answers with a text, with the content type that Chrome uses.
func writeText(w http.ResponseWriter, status int, text string) {
	setHeaders(w, int64(len(text)))
	w.WriteHeader(status)
	io.WriteString(w, text)
}

func setHeaders(w http.ResponseWriter, length int64) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
	if length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
}
