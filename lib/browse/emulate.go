package browse

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"btools/lib/emulate"
	"btools/lib/jsonrpc"
)

// Emulate changes what all tabs emulate, also those to come, as emulate.Emulation.With does, and returns all of it.
// A virtual browser keeps it; for others this connection does.
func (b *Browser) Emulate(ctx context.Context, change json.RawMessage) (now emulate.Emulation, err error) {
	if jsonrpc.Get(change, "device") != nil || jsonrpc.Get(change, "reset") != nil {
		for _, session := range b.sessions() { // it ends what Resize has set
			b.conn.Begin(session, "Emulation.clearDeviceMetricsOverride", nil, nil)
		}
	}
	err = b.Call(ctx, "Btools.emulate", change, &now)
	if e, is := errors.AsType[*jsonrpc.Error](err); !is || e.Code != jsonrpc.MethodNotFound {
		return now, err
	}
	var version struct{ UserAgent string }
	if err := b.Call(ctx, "Browser.getVersion", nil, &version); err != nil {
		return now, err
	}
	b.mu.Lock()
	was := b.emulates
	b.agent = version.UserAgent
	b.mu.Unlock()
	if now, err = was.With(change, emulate.Emulation{}); err != nil {
		return was, err
	}
	if err = b.emulate(ctx, now, was); err != nil {
		return was, errors.Join(err, b.emulate(ctx, was, now))
	}
	return now, nil
}

// emulate has all tabs emulate something.
func (b *Browser) emulate(ctx context.Context, now, was emulate.Emulation) (err error) {
	b.mu.Lock()
	b.emulates = now
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, b.of(leavePatience)) // a tab that runs a script does it afterwards
	defer cancel()
	for _, session := range b.sessions() {
		for _, c := range now.Commands(b.agent, was) {
			err = errors.Join(err, c.Fault(b.conn.Call(ctx, session, c.Method, c.Params, nil)))
		}
	}
	for _, name := range slices.Concat(was.Permissions(), now.Permissions()) {
		setting := "granted"
		if !slices.Contains(now.Permissions(), name) {
			setting = "prompt"
		}
		err = errors.Join(err, b.Call(ctx, "Browser.setPermission", map[string]any{"setting": setting,
			"permission": map[string]string{"name": name}}, nil))
	}
	return err
}

// sessions returns the CDP sessions with the pages that an agent sees.
func (b *Browser) sessions() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tabs {
		all = append(all, t.main.session)
	}
	return all
}
