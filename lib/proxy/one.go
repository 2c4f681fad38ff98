package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/front"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// serveOne answers a request over the browser's only WebSocket.
func (p *Proxy) serveOne(w *front.Response, r *http.Request) error {
	d, no := front.ReadDevTools(r, r.URL.Path, false)
	if no != nil {
		return no
	}
	epoch := p.backend.epochAt(w.Arrived)
	g, err := p.acquire(r.Context(), epoch)
	if err != nil {
		return err
	}
	release := sync.OnceFunc(func() { p.Leave(g) })
	defer release()
	if err := p.Spec.One.AwaitConsent(r.Context()); err != nil {
		return noAnswer(err)
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), p.answerTimeout,
		noAnswer(fmt.Errorf("no answer within %v", p.answerTimeout)))
	defer cancel()
	if d.IsSocket() {
		w.Header().Set("Connection", "close") // if it is refused
	} else {
		r.Header.Del("Upgrade") // to something else
	}
	var t *tunnel // nil: there is none, or it was closed at once
	err = d.Serve(w, r.WithContext(ctx), whole{p.Spec.One.Browser, func(conn *websocket.Conn) {
		client := w.Taken()
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
	}}, "")
	if d.IsCommand() {
		g.NoteUse()
	}
	if t != nil {
		p.backend.removeTunnel(g, t)
	}
	return err
}

// whole answers DevTools requests for a browser over its only WebSocket.
type whole struct {
	*single.Browser
	opened func(*websocket.Conn) // is called before a WebSocket of a client is served
}

// Addr returns "": a browser that asks its user does not answer requests.
func (b whole) Addr() string { return "" }

// IsNoTarget reports whether Chrome's error says that there is no such target.
func (b whole) IsNoTarget(err error) bool {
	var e *jsonrpc.Error
	return errors.As(err, &e) && e.Code == jsonrpc.InvalidParams
}

// Targets returns the targets of the browser.
func (b whole) Targets(ctx context.Context) ([]json.RawMessage, error) {
	got, err := b.Call(ctx, "Target.getTargets", map[string]any{})
	return slices.Collect(jsonrpc.Elements(jsonrpc.Get(got, "targetInfos"))), err
}

// NewPage opens a page.
func (b whole) NewPage(ctx context.Context, url string) (string, error) {
	got, err := b.Call(ctx, "Target.createTarget", map[string]string{"url": url})
	return jsonrpc.GetString(got, "targetId"), err
}

// OnTarget executes a command on a target.
func (b whole) OnTarget(ctx context.Context, method, target string) error {
	_, err := b.Call(ctx, method, map[string]string{"targetId": target})
	return err
}

// Connect serves a WebSocket to the browser, or to a target.
func (b whole) Connect(w http.ResponseWriter, r *http.Request, target string) error {
	c, err := b.Browser.Connect(r.Context(), target)
	if err != nil {
		return err
	}
	conn, err := websocket.Accept(w, r)
	if err != nil { // which it has answered
		c.Close()
		return nil
	}
	b.opened(conn)
	c.Serve(conn)
	return nil
}
