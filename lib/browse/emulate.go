package browse

import (
	"context"
	"encoding/json"
	"errors"

	"btools/lib/emulate"
	"btools/lib/jsonrpc"
)

// emulation is what the tabs of a browser that is no virtual one emulate.
type emulation struct {
	b        *Browser
	emulates emulate.Emulation
	agent    string // the browser's own user agent; "": it emulates nothing
}

// Emulate changes what all tabs emulate, also those to come, as emulate.Emulation.With does, and returns all of it.
// A virtual browser keeps it; for others this connection does.
func (e *emulation) Emulate(ctx context.Context, change json.RawMessage) (now emulate.Emulation, err error) {
	if jsonrpc.Get(change, "device") != nil || jsonrpc.Get(change, "reset") != nil {
		for _, session := range e.sessions() { // it ends what Resize has set
			e.b.conn.Begin(session, "Emulation.clearDeviceMetricsOverride", nil, nil)
		}
	}
	err = e.b.Call(ctx, "Btools.emulate", change, &now)
	if e, is := errors.AsType[*jsonrpc.Error](err); !is || e.Code != jsonrpc.MethodNotFound {
		return now, err
	}
	var version struct{ UserAgent string }
	if err := e.b.Call(ctx, "Browser.getVersion", nil, &version); err != nil {
		return now, err
	}
	e.b.mu.Lock()
	was := e.emulates
	e.agent = version.UserAgent
	e.b.mu.Unlock()
	if now, err = was.With(change, emulate.Emulation{}); err != nil {
		return was, err
	}
	if err = e.emulate(ctx, now, was); err != nil {
		return was, errors.Join(err, e.emulate(ctx, was, now))
	}
	return now, nil
}

// emulate has all tabs emulate something. One that runs a script does it afterwards.
func (e *emulation) emulate(ctx context.Context, now, was emulate.Emulation) (err error) {
	e.b.mu.Lock()
	e.emulates = now
	e.b.mu.Unlock()
	sessions, commands := e.sessions(), now.Commands(e.agent, was)
	grants := now.Grants(was)
	sent := len(sessions)*len(commands) + len(grants)
	faults := make(chan error, sent)
	begin := func(session string, c emulate.Command) {
		e.b.conn.Begin(session, c.Method, c.Params, func(_ json.RawMessage, err error) { faults <- c.Fault(err) })
	}
	for _, session := range sessions {
		for _, c := range commands {
			begin(session, c)
		}
	}
	for _, c := range grants {
		begin("", c)
	}
	ctx, cancel := context.WithTimeout(ctx, e.b.of(leavePatience))
	defer cancel()
	for range sent {
		select {
		case fault := <-faults:
			err = errors.Join(err, fault)
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// sessions returns the CDP sessions with the pages that an agent sees.
func (e *emulation) sessions() (all []string) {
	e.b.mu.Lock()
	defer e.b.mu.Unlock()
	for _, t := range e.b.All {
		all = append(all, t.main.session)
	}
	return all
}
