package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"btools/lib/cdp/single"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// ServeWhole answers a request as the endpoint of a whole browser does that has
// only one WebSocket. For a WebSocket, it returns when that has ended; opened is
// called before. The caller has checked the request and has removed secrets from it.
func ServeWhole(w http.ResponseWriter, r *http.Request, b *single.Browser, opened func(*websocket.Conn)) {
	ep, target := parsePath(r.URL.Path)
	if no := refusal(r, ep); no != nil {
		no.WriteResponse(w)
		return
	}
	at := "ws://" + r.Host + "/devtools/"
	var answer any
	var err error
	switch ep {
	case version:
		var v json.RawMessage
		v, err = b.Version(r.Context())
		answer = versionOf(v, at+"browser/whole") // any ID works
	case list:
		answer, err = targetsOf(r.Context(), b, at)
	case newPage:
		answer, err = openPage(r, b, at)
	case protocol:
		writeProtocol(w)
		return
	case activate:
		writeTargetOutcome(w, r, b, target, "Target.activateTarget", "Target activated")
		return
	case closePage:
		writeTargetOutcome(w, r, b, target, "Target.closeTarget", "Target is closing")
		return
	case toBrowser: // whatever its ID is
		connectWhole(w, r, b, "", opened)
		return
	case toPage:
		connectWhole(w, r, b, target, opened)
		return
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, answer)
}

// connectWhole serves a WebSocket to the browser, or to a target.
func connectWhole(
	w http.ResponseWriter, r *http.Request, b *single.Browser, target string, opened func(*websocket.Conn),
) {
	c, err := b.Connect(r.Context(), target)
	switch {
	case isNoTarget(err):
		writeText(w, http.StatusInternalServerError, "No such target id: "+target) // as Chrome
		return
	case err != nil:
		writeError(w, err)
		return
	}
	conn, err := websocket.Accept(w, r)
	if err != nil { // which it has answered
		c.Close()
		return
	}
	opened(conn)
	c.Serve(conn)
}

// isNoTarget reports whether Chrome's error says that there is no such target.
func isNoTarget(err error) bool {
	var e *jsonrpc.Error
	return errors.As(err, &e) && e.Code == jsonrpc.InvalidParams
}

// targetsOf returns the targets of a browser.
func targetsOf(ctx context.Context, b *single.Browser, at string) ([]targetInfo, error) {
	got, err := b.Call(ctx, "Target.getTargets", map[string]any{})
	infos := []targetInfo{}
	for info := range jsonrpc.Elements(jsonrpc.Get(got, "targetInfos")) {
		infos = append(infos, newTargetInfo(info, at))
	}
	return infos, err
}

// openPage opens a page for /json/new.
func openPage(r *http.Request, b *single.Browser, at string) (targetInfo, error) {
	address := newPageURL(r)
	got, err := b.Call(r.Context(), "Target.createTarget", map[string]string{"url": address})
	if err != nil {
		return targetInfo{}, err
	}
	id := jsonrpc.GetString(got, "targetId")
	infos, err := targetsOf(r.Context(), b, at)
	for _, info := range infos {
		if info.ID == id {
			return info, nil
		}
	}
	return targetInfo{ID: id, Type: "page", URL: address, WSURL: at + "page/" + id}, err // and gone already
}

// writeTargetOutcome sends a command for a target and answers what came of it,
// in Chrome's words.
func writeTargetOutcome(w http.ResponseWriter, r *http.Request, b *single.Browser, target, method, done string) {
	_, err := b.Call(r.Context(), method, map[string]string{"targetId": target})
	switch {
	case isNoTarget(err):
		writeText(w, http.StatusNotFound, "No such target id: "+target)
	case err != nil:
		writeText(w, http.StatusInternalServerError, err.Error())
	default:
		writeText(w, http.StatusOK, done)
	}
}
