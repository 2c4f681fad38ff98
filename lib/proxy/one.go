package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/exit"
	"btools/lib/launcher"
	"btools/lib/liveness"
	"btools/lib/record"
	"btools/lib/virtual"
	"btools/lib/virtual/sessions"
	"btools/lib/websocket"
)

// OneConnection is a browser of another program that gets a single WebSocket,
// which all clients share: its user is asked to allow each. To the rest of the
// proxy it is an endpoint within this process.
type OneConnection struct {
	find    func() (record.Instance, error)
	browser *single.Browser
	server  *http.Server
	conns   *handover
	work    sync.WaitGroup
}

// consentWait is how long a client waits for the WebSocket. It is shorter than
// answerTimeout, so that the client learns the reason.
const consentWait = answerTimeout - 5*time.Second

// NewOneConnection returns the browser that find finds, at each attempt to
// connect. Nothing is asked of it before the first client comes.
func NewOneConnection(find func() (record.Instance, error)) *OneConnection {
	o := &OneConnection{find: find, conns: newHandover()}
	o.browser = single.New(func(ctx context.Context) (*websocket.Conn, error) {
		i, err := find()
		if err != nil {
			return nil, err
		}
		path, err := socketPath(ctx, i)
		if err != nil {
			return nil, &exit.Error{Code: exit.Unavailable,
				Err: fmt.Errorf("it does not tell the address of its WebSocket: %w", err),
				Hint: "a Chrome that asks its user has it in the file DevToolsActivePort beside its profiles, " +
					"which --target takes, too"}
		}
		return websocket.Dial(ctx, "ws://"+launcher.Addr(i)+path)
	})
	o.server = &http.Server{ReadHeaderTimeout: headTimeout, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { sessions.ServeWhole(w, r, o.browser) })}
	return o
}

// start starts the endpoint; close ends it, and the WebSocket.
func (o *OneConnection) start() {
	o.work.Go(func() { o.server.Serve(o.conns) })
}

func (o *OneConnection) close() {
	o.server.Close()
	o.browser.Close()
	o.work.Wait()
}

// At returns the instance as the proxy sees it, with the path of the endpoint
// within this process.
func (o *OneConnection) At(i record.Instance) record.Instance {
	addr := launcher.Addr(i)
	i.HTTPURL, i.WSURL = "http://"+addr, "ws://"+addr+"/devtools/browser/whole"
	return i
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
		b.Refuse(launcher.Addr(i))
	}
	return b, err
}

// dial connects a client to the endpoint.
func (o *OneConnection) dial(ctx context.Context) (net.Conn, error) {
	if err := o.await(ctx); err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	if err := o.conns.give(ctx, theirs); err != nil {
		ours.Close()
		theirs.Close()
		return nil, err
	}
	return ours, nil
}

// handover is a listener for connections within this process.
type handover struct {
	conns chan net.Conn
	ctx   context.Context // ends with Close
	end   context.CancelFunc
}

func newHandover() *handover {
	h := &handover{conns: make(chan net.Conn)}
	h.ctx, h.end = context.WithCancel(context.Background())
	return h
}

func (h *handover) give(ctx context.Context, c net.Conn) error {
	select {
	case h.conns <- c:
		return nil
	case <-h.ctx.Done():
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.ctx.Done():
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error {
	h.end()
	return nil
}

func (h *handover) Addr() net.Addr { return &net.TCPAddr{} }

// errNotAsked means that a browser was not asked for its health.
var errNotAsked = fmt.Errorf("%w: nothing is connected to it", liveness.ErrNotChecked)

// check asks the browser for an answer over the WebSocket, without opening one.
func (o *OneConnection) check(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v", within))
	defer cancel()
	asked, err := o.browser.Check(ctx)
	if !asked {
		return errNotAsked
	}
	return err
}
