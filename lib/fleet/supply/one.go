package supply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/virtual"
	"btools/lib/websocket"
)

// OneConnection is a browser of another program that gets a single WebSocket,
// which all clients share: its user is asked to allow each.
type OneConnection struct {
	*single.Browser
	find func() (record.Instance, error)
}

// consentWait is how long a client waits for the WebSocket. It is shorter than the time
// that a browser has for an answer, so that the client learns the reason.
const consentWait = 25 * time.Second

// NewOneConnection returns the browser that find finds, at each attempt to
// connect. Nothing is asked of it before the first client comes.
func NewOneConnection(find func() (record.Instance, error)) *OneConnection {
	return &OneConnection{find: find, Browser: single.New(func(ctx context.Context) (*websocket.Conn, error) {
		i, err := find()
		if err != nil {
			return nil, err
		}
		path, err := SocketPath(ctx, i)
		if err != nil {
			return nil, &exit.Error{Code: exit.Unavailable,
				Err: fmt.Errorf("it does not tell the address of its WebSocket: %w", err),
				Hint: "a Chrome that asks its user has it in the file DevToolsActivePort beside its profiles, " +
					"which --target takes, too"}
		}
		return websocket.Dial(ctx, "ws://"+sibling.Addr(i)+path)
	})}
}

// AwaitConsent waits, for a client, until the WebSocket is open.
func (o *OneConnection) AwaitConsent(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, consentWait,
		fmt.Errorf("its user has not allowed the connection within %v; the question stays open", consentWait))
	defer cancel()
	err := o.Await(ctx)
	var refused *websocket.RefusedError
	if errors.As(err, &refused) {
		return &exit.Error{Code: exit.Unavailable, Err: err,
			Hint: "its user must allow remote debugging; a later connection asks again"}
	}
	return err
}

// open opens the browser for sessions.
func (o *OneConnection) open(ctx context.Context, log *slog.Logger) (*virtual.Browser, error) {
	if err := o.AwaitConsent(ctx); err != nil {
		return nil, err
	}
	b, err := virtual.OpenOn(ctx, virtual.Over(o.Browser), log)
	if i, unknown := o.find(); err == nil && unknown == nil {
		b.Refuse(sibling.Addr(i))
	}
	return b, err
}

// ping asks the browser for an answer over the WebSocket, without opening one.
func (o *OneConnection) ping(ctx context.Context) error {
	asked, err := o.Check(ctx)
	if !asked {
		return ErrNotAsked
	}
	return err
}
