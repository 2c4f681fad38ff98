package source

import (
	"context"
	"fmt"

	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/launch/options"
	"btools/lib/record"
)

func (b *parts) Status(ctx context.Context, _ string) (st Status, _ error) {
	rec, err := b.status(ctx)
	if err != nil {
		st.Notes = append(st.Notes, err.Error())
	}
	st.proxied(rec)
	st.Sessions = b.statuses(ctx)
	b.mu.Lock()
	waiting := b.table.Waiting()
	b.mu.Unlock()
	if waiting > 0 {
		st.Notes = append(st.Notes, fmt.Sprintf("%d virtual browsers wait: %d have pages, as many as --max-sessions "+
			"allows", waiting, b.sessions.MaxSessions))
	}
	return st, nil
}

// proxied fills in what a proxy's record says.
func (st *Status) proxied(rec *record.Record) {
	if rec == nil {
		return
	}
	var p record.Proxy
	var ps api.ProxyStatus
	rec.Get("proxy", &p)
	rec.Get("status", &ps)
	st.Port = &p.Port
	st.Running = ps.State == "ready"
	if ps.LastExit != "" {
		st.LastExit = &ps.LastExit
	}
	if ps.LastError != "" {
		st.LastExit = &ps.LastError
	}
	if raw := rec.Raw("browser"); raw != nil && st.Running {
		st.Browser = jsonrpc.Set(raw, "instance", rec.Raw("instance"))
	}
}

// Control stops and restarts a virtual browser by its end: it is there again with the
// next call.
func (b *parts) Control(ctx context.Context, do Action, w BrowserRef, o options.Options) error {
	if do != Launch && b.nameOf(w.Session) != "" {
		return b.endNamed(ctx, w)
	}
	if rec, err := b.status(ctx); do == Stop && err == nil && rec == nil {
		return nil // there is nothing to stop
	}
	if do != Launch {
		b.end("", hostSession)
	}
	if _, err := b.control(ctx, string(do), o); err != nil {
		return Explain(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.seen) // the next one is another one, as was asked for
	return nil
}

// endNamed ends the virtual browser that a call names.
func (b *parts) endNamed(ctx context.Context, w BrowserRef) error {
	instance, err := b.idOf(ctx, w.Instance)
	b.expel(partKey{w.Session, instance})
	return Explain(err)
}
