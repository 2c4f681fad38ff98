package tools

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"btools/lib/browse"
	"btools/lib/logins"
	"btools/lib/spell"
)

func cookieList(ctx context.Context, r *reply, t *browse.Tab, a struct{ Domain, Path string }) error {
	all, err := t.Browser().Cookies(ctx)
	if err != nil {
		return err
	}
	domain := strings.ToLower(strings.TrimPrefix(a.Domain, "."))
	path := strings.TrimSuffix(a.Path, "/")
	var lines []string
	rows := []logins.Cookie{}
	for _, c := range all {
		of := strings.ToLower(strings.TrimPrefix(c.Domain, "."))
		if domain != "" && of != domain && !strings.HasSuffix(of, "."+domain) ||
			path != "" && c.Path != path && !strings.HasPrefix(c.Path, path+"/") {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s=%s (domain: %s, path: %s)", c.Name, c.Value, c.Domain, c.Path))
		rows = append(rows, c)
	}
	r.rows(rows)
	r.entries(lines, "No cookies found")
	return nil
}

// maxEntry is how many characters of a cookie or an item are listed; the tool that gets
// one shows all.
const maxEntry = 2000

// entries lists what pages have stored.
func (r *output) entries(lines []string, none string) {
	if lines == nil {
		r.say("%s", none)
		return
	}
	for i := range lines {
		lines[i] = clipped(lines[i], maxEntry)
	}
	r.say("%s", fenced("", strings.Join(lines, "\n")))
}

func cookieGet(ctx context.Context, r *reply, t *browse.Tab, a struct{ Name string }) error {
	all, err := t.Browser().Cookies(ctx)
	if err != nil {
		return err
	}
	var values []string
	for _, c := range all {
		if c.Name != a.Name {
			continue
		}
		values = append(values, c.Value)
		until := ""
		if c.Expires >= 0 {
			until = ", expires: " + time.Unix(int64(c.Expires), 0).UTC().Format(time.RFC3339)
		}
		r.say("%s", fenced("", fmt.Sprintf("%s=%s (domain: %s, path: %s, httpOnly: %v, secure: %v, sameSite: %s%s)",
			c.Name, c.Value, c.Domain, c.Path, c.HTTPOnly, c.Secure, c.SameSite, until)))
	}
	if values == nil {
		r.say("Cookie '%s' not found", a.Name)
	}
	r.value = new(strings.Join(values, "\n"))
	return nil
}

func cookieSet(ctx context.Context, r *reply, t *browse.Tab, a struct {
	Name, Value, Domain, Path, SameSite string
	Expires                             *float64
	HTTPOnly, Secure                    bool
}) error {
	c := logins.Cookie{Name: a.Name, Value: a.Value, Domain: a.Domain, Path: a.Path, Expires: -1,
		HTTPOnly: a.HTTPOnly, Secure: a.Secure, SameSite: a.SameSite}
	if a.Expires != nil {
		c.Expires = *a.Expires
	}
	if c.Expires != -1 && c.Expires <= float64(time.Now().Unix()) {
		return fmt.Errorf("expires is in the past (%s): browser_cookie_delete removes a cookie",
			time.Unix(int64(c.Expires), 0).UTC().Format(time.RFC3339))
	}
	if c.Path == "" {
		c.Path = "/"
	}
	if c.Domain == "" {
		if u, err := url.Parse(t.State(ctx).URL); err == nil {
			c.Domain = u.Hostname()
		}
	}
	if c.Domain == "" {
		return errors.New("domain is missing: the page has no host whose cookie it could be")
	}
	return r.tells(t.Browser().SetCookie(ctx, c), "Set the cookie %s of %s", c.Name, c.Domain)
}

func cookieDelete(ctx context.Context, r *reply, t *browse.Tab, a struct{ Name string }) error {
	n, err := t.DeleteCookies(ctx, a.Name)
	switch {
	case err != nil:
		return err
	case n == 0:
		r.say("Cookie '%s' not found", a.Name)
	default:
		r.did("Removed %s with the name %s", spell.Count(n, "cookie"), a.Name)
	}
	return nil
}

func cookieClear(ctx context.Context, r *reply, t *browse.Tab, _ none) error {
	return r.tells(t.Browser().ClearCookies(ctx), "Removed all cookies")
}

// webStorage are the tools for localStorage or sessionStorage.
type webStorage string

func (kind webStorage) list(ctx context.Context, r *reply, t *browse.Tab, _ none) error {
	all, err := t.Items(ctx, string(kind))
	var lines []string
	for _, i := range all {
		lines = append(lines, i.Key+"="+i.Value)
	}
	if err == nil {
		r.entries(lines, fmt.Sprintf("No %s items found", kind))
	}
	return err
}

func (kind webStorage) get(ctx context.Context, r *reply, t *browse.Tab, a struct{ Key string }) error {
	all, err := t.Items(ctx, string(kind))
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.Key == a.Key {
			r.say("%s", fenced("", i.Key+"="+i.Value))
			r.value = &i.Value
			return nil
		}
	}
	r.say("%s key '%s' not found", kind, a.Key)
	r.value = new("")
	return nil
}

func (kind webStorage) set(ctx context.Context, r *reply, t *browse.Tab, a struct{ Key, Value string }) error {
	return kind.change(ctx, r, t, &a.Key, &a.Value, "Set "+a.Key+" in the "+string(kind))
}

func (kind webStorage) remove(ctx context.Context, r *reply, t *browse.Tab, a struct{ Key string }) error {
	return kind.change(ctx, r, t, &a.Key, nil, "Removed "+a.Key+" from the "+string(kind))
}

func (kind webStorage) clear(ctx context.Context, r *reply, t *browse.Tab, _ none) error {
	return kind.change(ctx, r, t, nil, nil, "Removed all of the "+string(kind))
}

func (kind webStorage) change(ctx context.Context, r *reply, t *browse.Tab, key, value *string, did string) error {
	had, err := t.SetItem(ctx, string(kind), key, value)
	switch {
	case err != nil:
		return err
	case key != nil && value == nil && !had:
		r.say("%s key '%s' not found", kind, *key)
	default:
		r.did("%s", oneLine(did))
	}
	return nil
}

func storageState(ctx context.Context, r *reply, t *browse.Tab, a struct{ Filename string }) error {
	state, lost, err := t.Browser().State(ctx)
	if err != nil {
		return err
	}
	name := a.Filename
	if name == "" {
		name = "storage-state-" + time.Now().UTC().Format("2006-01-02T15-04-05") + ".json"
	}
	path, err := r.server.savePrivate(ctx, name, state.Export())
	if err != nil {
		return err
	}
	r.say("Storage state saved as %s: %s, storage of %s", path, spell.Count(len(state.Cookies), "cookie"),
		spell.Count(len(state.Origins), "origin"))
	for _, l := range lost {
		r.say("Not saved: %s", oneLine(l))
	}
	return nil
}

func setStorageState(ctx context.Context, r *reply, t *browse.Tab, a struct{ Filename string }) error {
	paths, err := r.server.readable(ctx, []string{a.Filename})
	if err != nil {
		return err
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", a.Filename, unwrapped(err))
	}
	state, dropped, err := logins.Parse(data)
	if err != nil {
		return fmt.Errorf("%s is not a storage state: %w", a.Filename, err)
	}
	refused, err := t.Browser().SetState(ctx, state)
	if err != nil {
		return err
	}
	r.say("Storage state restored from %s", a.Filename)
	for _, d := range append(dropped, refused...) {
		r.say("Left out: %s", oneLine(d))
	}
	return nil
}
