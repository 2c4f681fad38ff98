package source

import (
	"context"
	"fmt"

	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/launch/options"
	"btools/lib/record"
)

func (b *ownerSessions) Status(ctx context.Context, _ string) (st Status, _ error) {
	rec, err := b.status(ctx)
	if err != nil {
		st.Notes = append(st.Notes, err.Error())
	}
	st.read(rec)
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

// read fills in the status from the record of a proxy; nil: there is none.
func (st *Status) read(rec *record.Record) {
	if rec == nil {
		return
	}
	var p record.Proxy
	var ps api.ProxyStatus
	if ok, _ := rec.Get("proxy", &p); ok {
		st.Port = &p.Port
	}
	rec.Get("status", &ps)
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

// Control implements Browsers. A virtual browser is stopped and restarted by its end: the next call begins it again.
func (b *ownerSessions) Control(ctx context.Context, do Action, w BrowserRef, o options.Options) error {
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
	clear(b.seen) // no result tells that the next one is another one
	return nil
}

// endNamed ends the virtual browser with a call's session_id.
func (b *ownerSessions) endNamed(ctx context.Context, w BrowserRef) error {
	instance, err := b.idOf(ctx, w.Instance)
	b.expel(sessionKey{w.Session, instance})
	return Explain(err)
}
