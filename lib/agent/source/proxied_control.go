package source

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"btools/lib/jsonrpc"
	"btools/lib/launch/options"
	"btools/lib/record"
)

func (s *proxied) Kind() Kind   { return s.sessions.Kind }
func (s *proxied) Type() string { return "" }

func (s *proxied) SessionOf(ctx context.Context, b *Browser) json.RawMessage {
	if s.Kind() == SharedProfile {
		return nil
	}
	for session := range jsonrpc.Elements(s.list(ctx)) {
		session = jsonrpc.Get(session, "session")
		if jsonrpc.GetString(session, "name") == cmp.Or(b.Session, hostSession) && s.hasSession(b, session) {
			return session
		}
	}
	return nil
}

func (s *proxied) Emptied(b Browser) func() {
	if s.joins != nil {
		return nil
	}
	return func() { s.emptied(b.Session) }
}

func (b *parts) Status(ctx context.Context, _ string) (st Status, _ error) {
	rec, err := b.status(ctx)
	if err != nil {
		st.Notes = append(st.Notes, err.Error())
	}
	st.proxied(rec)
	if b.joins != nil && b.up() == nil {
		st.Notes = append(st.Notes, b.joins.missing())
	}
	st.Sessions = b.statuses(ctx)
	if n, places := b.seats.waiting(); n > 0 {
		st.Notes = append(st.Notes, fmt.Sprintf("%d virtual browsers wait: %d have pages, as many as --max-sessions "+
			"allows", n, places))
	}
	return st, nil
}

// proxied fills in what a proxy's record says.
func (st *Status) proxied(rec *record.Record) {
	if rec == nil {
		return
	}
	var p record.Proxy
	var ps proxyStatus
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
		b.endSession("", hostSession)
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
	instance := w.Instance
	if b.joins != nil && instance != "" {
		instance = b.joins.instanceOf(instance)
	}
	b.end(part{w.Session, instance})
	if instance == "" {
		return nil
	}
	return Explain(b.joins.check(ctx, instance))
}
