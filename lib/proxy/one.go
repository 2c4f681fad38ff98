package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/exit"
	"btools/lib/fleet/supply"
	"btools/lib/front"
	"btools/lib/jsonrpc"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/virtual"
	"btools/lib/websocket"
)

// OneConnection is a browser of another program that gets a single WebSocket,
// which all clients share: its user is asked to allow each.
type OneConnection struct {
	find    func() (record.Instance, error)
	browser *single.Browser
}

// consentWait is how long a client waits for the WebSocket. It is shorter than
// answerTimeout, so that the client learns the reason.
const consentWait = answerTimeout - 5*time.Second

// NewOneConnection returns the browser that find finds, at each attempt to
// connect. Nothing is asked of it before the first client comes.
func NewOneConnection(find func() (record.Instance, error)) *OneConnection {
	return &OneConnection{find: find, browser: single.New(func(ctx context.Context) (*websocket.Conn, error) {
		i, err := find()
		if err != nil {
			return nil, err
		}
		path, err := supply.SocketPath(ctx, i)
		if err != nil {
			return nil, &exit.Error{Code: exit.Unavailable,
				Err: fmt.Errorf("it does not tell the address of its WebSocket: %w", err),
				Hint: "a Chrome that asks its user has it in the file DevToolsActivePort beside its profiles, " +
					"which --target takes, too"}
		}
		return websocket.Dial(ctx, "ws://"+sibling.Addr(i)+path)
	})}
}

// await waits until the WebSocket is open.
func (o *OneConnection) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, consentWait,
		fmt.Errorf("its user has not allowed the connection within %v; the question stays open", consentWait))
	defer cancel()
	err := o.browser.Await(ctx)
	var refused *websocket.RefusedError
	if errors.As(err, &refused) {
		return &exit.Error{Code: exit.Unavailable, Err: err,
			Hint: "its user must allow remote debugging; a later connection asks again"}
	}
	return err
}

// open opens the browser for sessions.
func (o *OneConnection) open(ctx context.Context, log *slog.Logger) (*virtual.Browser, error) {
	if err := o.await(ctx); err != nil {
		return nil, err
	}
	b, err := virtual.OpenOn(ctx, virtual.Over(o.browser), log)
	if i, unknown := o.find(); err == nil && unknown == nil {
		b.Refuse(sibling.Addr(i))
	}
	return b, err
}

// serveOne answers a request over the browser's only WebSocket.
func (p *Proxy) serveOne(w *front.Response, r *http.Request) error {
	d, no := front.ReadDevTools(r, r.URL.Path, false)
	if no != nil {
		return no
	}
	epoch := p.backend.epochAt(w.Arrived)
	g, err := p.backend.acquire(r.Context(), epoch)
	if err != nil {
		return err
	}
	release := sync.OnceFunc(func() { p.backend.Leave(g) })
	defer release()
	if err := p.One.await(r.Context()); err != nil {
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
	err = d.Serve(w, r.WithContext(ctx), whole{p.One.browser, func(conn *websocket.Conn) {
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

// check asks the browser for an answer over the WebSocket, without opening one.
func (o *OneConnection) check(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v", within))
	defer cancel()
	asked, err := o.browser.Check(ctx)
	if !asked {
		return supply.ErrNotAsked
	}
	return err
}
