package browse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"btools/lib/cdp"
	"btools/lib/states"
	"btools/lib/storage"
)

// wired is the connection as package storage takes it.
type wired struct{ *cdp.Conn }

func (w wired) Call(ctx context.Context, session, method string, params any) (got json.RawMessage, err error) {
	return got, w.Conn.Call(ctx, session, method, params, &got)
}

func (w wired) Send(session, method string, params any) { w.Begin(session, method, params, nil) }

// Cookies are the session's cookies.
func (b *Browser) Cookies(ctx context.Context) ([]states.Cookie, error) {
	return storage.Cookies(ctx, wired{b.conn}, "")
}

// SetCookie sets a cookie.
func (b *Browser) SetCookie(ctx context.Context, c states.Cookie) error {
	return storage.SetCookies(ctx, wired{b.conn}, "", []states.Cookie{c})
}

// ClearCookies removes all cookies of the session.
func (b *Browser) ClearCookies(ctx context.Context) error {
	return b.conn.Call(ctx, "", "Storage.clearCookies", map[string]any{}, nil)
}

// DeleteCookies removes the cookies with a name, and returns how many there were.
func (t *Tab) DeleteCookies(ctx context.Context, name string) (n int, err error) {
	all, err := t.b.Cookies(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if c.Name != name {
			continue
		}
		params := map[string]any{"name": name, "domain": c.Domain, "path": c.Path}
		if c.PartitionKey != "" {
			params["partitionKey"] = map[string]any{"topLevelSite": c.PartitionKey,
				"hasCrossSiteAncestor": c.HasCrossSiteAncestor != nil && *c.HasCrossSiteAncestor}
		}
		if err := t.call(ctx, t.main.session, "Network.deleteCookies", params, nil); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// Item is one of a page's storage.
type Item struct{ Key, Value string }

// Items are those of the localStorage of the page, or of its sessionStorage, in the
// order of the keys.
func (t *Tab) Items(ctx context.Context, kind string) (all []Item, err error) {
	err = t.run(ctx, t.mainFrame(), "items", map[string]any{"kind": kind}, &all)
	return all, err
}

// SetItem sets one, or removes it if there is no value. Without a key it removes all.
func (t *Tab) SetItem(ctx context.Context, kind string, key, value *string) error {
	return t.run(ctx, t.mainFrame(), "setItem", map[string]any{"kind": kind, "key": key, "value": value}, nil)
}

// storagePage opens a hidden tab in which the storage of any origin is read and filled.
func (b *Browser) storagePage(ctx context.Context) (*storage.Page, func(), error) {
	t, end, err := b.aside(ctx)
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	t.paused = func(e cdp.Event) { storage.Answer(wired{b.conn}, e.Method, e.Session, e.Params) }
	b.mu.Unlock()
	p, err := storage.In(ctx, wired{b.conn}, t.main.session)
	if err != nil {
		end()
		return nil, nil, err
	}
	return p, end, nil
}

// State reads the cookies and the storage of the origins that have been open. What could
// not be read is lost.
func (b *Browser) State(ctx context.Context) (s *states.State, lost []string, err error) {
	s = &states.State{Origins: []states.Origin{}}
	if s.Cookies, err = b.Cookies(ctx); err != nil {
		return nil, nil, err
	}
	origins := b.origins()
	if len(origins) == 0 {
		return s, nil, nil
	}
	p, end, err := b.storagePage(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	for _, origin := range origins {
		o, bad, err := p.Read(ctx, origin)
		if err != nil {
			bad = append(bad, fmt.Sprintf("the storage of %s: %v", origin, err))
		} else if o != nil {
			s.Origins = append(s.Origins, *o)
		}
		lost = append(lost, bad...)
	}
	return s, lost, nil
}

// origins are those of the pages that have been open, the latest first.
func (b *Browser) origins() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.visits.Latest()
}

// SetState replaces the cookies, and the localStorage of the origins that have been
// open, by those of a state.
func (b *Browser) SetState(ctx context.Context, s *states.State) (err error) {
	if err := b.ClearCookies(ctx); err != nil {
		return err
	}
	if err := storage.SetCookies(ctx, wired{b.conn}, "", s.Cookies); err != nil {
		return err
	}
	origins := b.origins()
	for _, o := range s.Origins {
		if !slices.Contains(origins, o.Origin) {
			origins = append(origins, o.Origin)
		}
	}
	if len(origins) == 0 {
		return nil
	}
	p, end, err := b.storagePage(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, origin := range origins {
		err := p.Clear(ctx, origin)
		i := slices.IndexFunc(s.Origins, func(o states.Origin) bool { return o.Origin == origin })
		if err == nil && i >= 0 {
			var why string
			if why, err = p.Fill(ctx, s.Origins[i]); err == nil && why != "" {
				err = errors.New(why)
			}
		}
		if err != nil {
			return fmt.Errorf("cannot restore the storage of %s: %w", origin, err)
		}
	}
	return nil
}
