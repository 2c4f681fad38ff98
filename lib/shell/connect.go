package shell

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"btools/lib/background"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/state"
)

// Client makes calls.
type Client struct {
	Store *state.Store
	// Own is the socket of the service with the surroundings of the calls.
	Own string
	// Start is the command that runs that service in the background; nil: none is started.
	Start func() (*exec.Cmd, error)

	conn  *control.Client
	to    string          // the socket of the service that has the session; "": Own, or another one
	tried map[string]bool // others that do not have it
}

// ErrNoService means that no service runs.
var ErrNoService = errors.New("no service of bmcp call runs")

// Do sends a request to the service that has the session, and starts a new service if the old one is stopping.
func (c *Client) Do(ctx context.Context, method string, params, result any) (err error) {
	hops := 0
	for end := time.Now().Add(background.Patience); time.Now().Before(end); {
		if c.conn == nil {
			if c.conn, err = c.connect(ctx); err != nil {
				return err
			}
		}
		err = c.conn.Call(ctx, method, params, result)
		if to := movedTo(result); err == nil && to == "" {
			return nil
		} else if err == nil {
			c.Close()
			if c.to = to; to == c.Own {
				c.to = ""
			}
			if hops++; hops <= maxHops {
				continue
			}
		}
		var e *control.Error
		if errors.As(err, &e) && e.Code != control.Stopping {
			return err
		}
		c.Close()
		if err != nil && e == nil && !errors.Is(err, control.ErrNotBegun) {
			return Failed(ctx, err)
		}
		if err != nil && c.Start == nil {
			return ErrNoService
		}
		select { // it leaves its socket at once
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return exit.Errorf(exit.TryAgain, "cannot find the service of the session: %v", err)
}

// maxHops is how many services are asked in a row before the rest is given time to change.
const maxHops = 16

// movedTo returns the socket of the service that is to be asked in the place of the one that has given an answer.
func movedTo(result any) string {
	if m, ok := result.(interface{ take() string }); ok {
		return m.take()
	}
	return ""
}

// All sends a request to all services, and gives each answer to a function.
func All[T any](ctx context.Context, store *state.Store, method string, params any, take func(T)) error {
	f, err := store.Read()
	if err != nil {
		return state.Explain(err)
	}
	answers, failures := make([]T, len(f.Calls)), make([]error, len(f.Calls))
	var all sync.WaitGroup
	for i, s := range f.Calls {
		all.Go(func() { failures[i] = control.Path(s.Control).Call(ctx, method, params, &answers[i]) })
	}
	all.Wait()
	err = ErrNoService
	for i, why := range failures {
		var e *control.Error
		switch {
		case client.IsGone(why) || errors.Is(why, control.ErrNotBegun):
			continue
		case why == nil:
			take(answers[i])
		case errors.As(why, &e):
		default:
			why = Failed(ctx, why)
		}
		if err == ErrNoService {
			err = nil
		}
		err = errors.Join(err, why)
	}
	return err
}

// Failed returns the error of a request that the service has not answered.
func Failed(ctx context.Context, err error) error {
	var hangs *exit.Error
	switch {
	case ctx.Err() != nil:
		return err
	case errors.As(err, &hangs):
		return &exit.Error{Code: hangs.Code, Hint: hangs.Hint,
			Err: fmt.Errorf("cannot reach the service in the background: %w", hangs.Err)}
	}
	return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("the service in the background has ended during "+
		"this call: %w", err), Hint: "the next call starts another, and says what has become of the session"}
}

// Close ends the connection.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// connect connects to the service that has the session, if that is known; else to that of the call, or, if it does not
// run, to one that may have the session. If none may, it starts that of the call.
func (c *Client) connect(ctx context.Context) (*control.Client, error) {
	if c.to != "" {
		conn, err := control.Dial(ctx, c.to)
		if !client.IsGone(err) {
			return conn, err
		}
		c.to = ""
	}
	conn, err := control.Dial(ctx, c.Own)
	if !client.IsGone(err) {
		return conn, err
	}
	if conn := c.another(ctx); conn != nil {
		return conn, nil
	}
	if c.Start == nil {
		return nil, ErrNoService
	}
	return background.Connect(ctx, c.Own, "bmcp call", c.Start)
}

// another connects to a service that has not been asked whether it has the session, nil if there is none.
func (c *Client) another(ctx context.Context) *control.Client {
	f, err := c.Store.Read()
	if err != nil {
		return nil
	}
	for _, s := range f.Calls {
		if c.tried[s.Control] {
			continue
		}
		if c.tried == nil {
			c.tried = map[string]bool{}
		}
		c.tried[s.Control] = true
		if conn, err := control.Dial(ctx, s.Control); err == nil {
			return conn
		}
	}
	return nil
}
