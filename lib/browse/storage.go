package browse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/cdp"
	"btools/lib/logins"
	"btools/lib/spell"
	"btools/lib/webstorage"
)

// storage is the cookies and what else the pages of a browser keep.
type storage struct {
	b      *Browser
	visits webstorage.Visits
}

// wired is the connection as package webstorage takes it.
type wired struct{ *cdp.Conn }

func (w wired) Call(ctx context.Context, session, method string, params any) (got json.RawMessage, err error) {
	return got, w.Conn.Call(ctx, session, method, params, &got)
}

func (w wired) Send(session, method string, params any) { w.Begin(session, method, params, nil) }

// Cookies are the session's cookies.
func (k *storage) Cookies(ctx context.Context) ([]logins.Cookie, error) {
	return webstorage.Cookies(ctx, wired{k.b.conn}, "")
}

// SetCookie sets a cookie.
func (k *storage) SetCookie(ctx context.Context, c logins.Cookie) error {
	if err := webstorage.SetCookies(ctx, wired{k.b.conn}, "", []logins.Cookie{c}); err != nil {
		return err
	}
	refused, err := refusedOf(ctx, k, []logins.Cookie{c})
	if len(refused) > 0 {
		err = errors.New("cannot set " + refused[0])
	}
	return err
}

// refusedOf returns those of the cookies that were set which the session does not have, each
// with the reason: Chrome drops a cookie that it refuses, and gives no error.
func refusedOf(ctx context.Context, k *storage, set []logins.Cookie) (refused []string, err error) {
	have, err := k.Cookies(ctx)
	if err != nil {
		return nil, err
	}
	now, expired := float64(time.Now().Unix()), 0
	host := func(domain string) string { return strings.ToLower(strings.TrimPrefix(domain, ".")) }
	for _, c := range set {
		isSame := func(h logins.Cookie) bool {
			return h.Name == c.Name && h.Value == c.Value && host(h.Domain) == host(cmp.Or(c.Domain, h.Domain)) &&
				h.Path == cmp.Or(c.Path, h.Path) && h.SameSite == cmp.Or(c.SameSite, h.SameSite) &&
				h.Secure == c.Secure && h.HTTPOnly == c.HTTPOnly
		}
		if c.Expires >= 0 && c.Expires <= now {
			expired++
			continue
		}
		if slices.ContainsFunc(have, isSame) {
			continue
		}
		why := "the browser refuses it, and does not say why"
		if c.SameSite == "None" && !c.Secure {
			why = "with the sameSite None it has to be secure"
		}
		refused = append(refused, fmt.Sprintf("the cookie %s of %s: %s", c.Name, c.Domain, why))
	}
	if expired > 0 {
		refused = append(refused, spell.Count(expired, "cookie")+" that had expired")
	}
	return refused, nil
}

// ClearCookies removes all cookies of the session.
func (k *storage) ClearCookies(ctx context.Context) error {
	return k.b.conn.Call(ctx, "", "Storage.clearCookies", map[string]any{}, nil)
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
func (t *elements) Items(ctx context.Context, kind string) (all []Item, err error) {
	err = t.run(ctx, t.mainFrame(), "items", map[string]any{"kind": kind}, &all)
	return all, err
}

// SetItem sets one, or removes it if there is no value, and returns whether it was there.
// Without a key it removes all.
func (t *elements) SetItem(ctx context.Context, kind string, key, value *string) (had bool, err error) {
	err = t.run(ctx, t.mainFrame(), "setItem", map[string]any{"kind": kind, "key": key, "value": value}, &had)
	return had, err
}

// storagePage opens a hidden tab in which the storage of any origin is read and filled.
func (k *storage) storagePage(ctx context.Context) (*webstorage.Page, func(), error) {
	t, end, err := k.b.aside(ctx)
	if err != nil {
		return nil, nil, err
	}
	k.b.mu.Lock()
	t.paused = func(e cdp.Event) { webstorage.Answer(wired{k.b.conn}, e.Method, e.Session, e.Params) }
	k.b.mu.Unlock()
	p, err := webstorage.In(ctx, wired{k.b.conn}, t.main.session)
	if err != nil {
		end()
		return nil, nil, err
	}
	return p, end, nil
}

// State reads the cookies and the storage of the origins that have been open. What could
// not be read is lost.
func (k *storage) State(ctx context.Context) (s *logins.State, lost []string, err error) {
	s = &logins.State{Origins: []logins.Origin{}}
	if s.Cookies, err = k.Cookies(ctx); err != nil {
		return nil, nil, err
	}
	origins := k.origins()
	if len(origins) == 0 {
		return s, nil, nil
	}
	p, end, err := k.storagePage(ctx)
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
func (k *storage) origins() []string {
	k.b.mu.Lock()
	defer k.b.mu.Unlock()
	return k.visits.Latest()
}

// SetState replaces the cookies, and the localStorage of the origins that have been
// open, by those of a state, and returns what the browser has refused of it.
func (k *storage) SetState(ctx context.Context, s *logins.State) (refused []string, err error) {
	if err := k.ClearCookies(ctx); err != nil {
		return nil, err
	}
	if err := webstorage.SetCookies(ctx, wired{k.b.conn}, "", s.Cookies); err != nil {
		return nil, err
	}
	if refused, err = refusedOf(ctx, k, s.Cookies); err != nil {
		return nil, err
	}
	origins := k.origins()
	for _, o := range s.Origins {
		if !slices.Contains(origins, o.Origin) {
			origins = append(origins, o.Origin)
		}
	}
	if len(origins) == 0 {
		return refused, nil
	}
	p, end, err := k.storagePage(ctx)
	if err != nil {
		return refused, err
	}
	defer end()
	for _, origin := range origins {
		err := p.Clear(ctx, origin)
		i := slices.IndexFunc(s.Origins, func(o logins.Origin) bool { return o.Origin == origin })
		if err == nil && i >= 0 {
			var why string
			if why, err = p.Fill(ctx, s.Origins[i]); err == nil && why != "" {
				err = errors.New(why)
			}
		}
		if err != nil {
			return refused, fmt.Errorf("cannot restore the storage of %s: %w", origin, err)
		}
	}
	return refused, nil
}
