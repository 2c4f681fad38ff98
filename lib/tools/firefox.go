package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"btools/lib/browse"
	"btools/lib/browse/firefox"
	"btools/lib/results"
	"btools/lib/wait"
)

// onFirefox are the tools that drive Firefox, too.
var onFirefox = map[string]runner{
	"browser_navigate": with(func(ctx context.Context, r *reply, a struct{ URL string }) error {
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error { return r.openInFirefox(ctx, b, a.URL) })
	}),
	"browser_navigate_back":    leavesInFirefox(back),
	"browser_navigate_forward": leavesInFirefox(forward),
	"browser_reload":           leavesInFirefox(reload),
	"browser_scroll": with(func(ctx context.Context, r *reply, a scrollArguments) error {
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error { return r.scrolls(ctx, b, a) })
	}),
	"browser_snapshot": with(func(ctx context.Context, r *reply, a snapshotArguments) error {
		return r.inFirefox(ctx, pageState, func(b *firefox.Browser) error { return r.sees(ctx, b, a) })
	}),
	"browser_find": with(func(ctx context.Context, r *reply, a struct{ Text, Regex, Filename string }) error {
		is, err := searched(a.Text, a.Regex)
		if err != nil {
			return err
		}
		return r.inFirefox(ctx, noPage, func(b *firefox.Browser) error {
			text, err := b.Snapshot(ctx, browse.SnapshotOptions{Whole: true})
			if err != nil {
				return err
			}
			for _, cut := range browse.Cuts(text) {
				r.say("%s", cut)
			}
			found, n := matches(r.server.Secrets.Mask(text), is)
			r.sayFound(n, a.Text, a.Regex)
			if n == 0 {
				return nil
			}
			return r.text(ctx, a.Filename, fenced("yaml", found), found)
		})
	}),
	"browser_click": with(func(ctx context.Context, r *reply, a struct {
		Target      browse.Target
		DoubleClick bool
		Button      string
		Modifiers   []string
	}) error {
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error {
			r.on = []browse.Target{a.Target}
			what, err := b.Click(ctx, a.Target, browse.ClickOptions{Button: a.Button, Double: a.DoubleClick,
				Modifiers: a.Modifiers})
			if err == nil {
				r.did("Clicked %s", what)
			}
			return err
		})
	}),
	"browser_hover": with(func(ctx context.Context, r *reply, a struct{ Target browse.Target }) error {
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error {
			r.on = []browse.Target{a.Target}
			what, err := b.Hover(ctx, a.Target)
			if err == nil {
				r.did("Moved the mouse over %s", what)
			}
			return err
		})
	}),
	"browser_type": with(func(ctx context.Context, r *reply, a struct {
		Target         browse.Target
		Text           string
		Submit, Slowly bool
	}) error {
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error {
			r.on, r.proven = []browse.Target{a.Target}, true
			what, err := b.Type(ctx, a.Target, a.Text, a.Slowly, a.Submit)
			if err == nil {
				r.did("Typed into %s", what)
			}
			if err == nil && a.Submit {
				r.did("Pressed Enter")
			}
			return err
		})
	}),
	"browser_press_key": with(func(ctx context.Context, r *reply, a struct{ Key string }) error {
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error {
			err := browse.Strayed(ctx)
			if err == nil {
				err = b.Press(ctx, a.Key)
			}
			if err == nil {
				r.did("Pressed %s", a.Key)
			}
			return err
		})
	}),
	"browser_emulate": func(ctx context.Context, r *reply, change json.RawMessage) error {
		return r.inFirefox(ctx, pageState, func(b *firefox.Browser) error {
			now, err := b.Emulate(ctx, change)
			if err != nil {
				return err
			}
			return r.saidEmulated(now)
		})
	},
	"browser_select_option": with(func(ctx context.Context, r *reply, a struct {
		Target browse.Target
		Values []string
	}) error {
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error {
			r.on, r.proven = []browse.Target{a.Target}, true
			what, labels, err := b.Choose(ctx, a.Target, a.Values)
			if err == nil {
				r.didChoose(labels, what)
			}
			return err
		})
	}),
	"browser_fill_form": with(func(ctx context.Context, r *reply, a struct {
		Fields []struct {
			Target            browse.Target
			Name, Type, Value string
		}
	}) error {
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error {
			for i, f := range a.Fields {
				if err := fillField(ctx, r, b, f.Target, f.Type, f.Value); err != nil {
					return unfilled(f.Name, len(a.Fields)-i-1, err)
				}
			}
			return nil
		})
	}),
	"browser_evaluate": with(func(ctx context.Context, r *reply, a struct {
		Function, Filename string
		Target             browse.Target
	}) error {
		return r.inFirefox(ctx, pageState, func(b *firefox.Browser) error {
			value, err := b.Evaluate(ctx, a.Function, a.Target)
			if err != nil {
				return err
			}
			return r.returned(ctx, a.Filename, value)
		})
	}),
	"browser_take_screenshot": with(func(ctx context.Context, r *reply, a screenshotArguments) error {
		if err := a.check(r); err != nil {
			return err
		}
		return r.inFirefox(ctx, noPage, func(b *firefox.Browser) error { return r.picture(ctx, b, a) })
	}),
	"browser_tabs": with(func(ctx context.Context, r *reply, a tabsArguments) error {
		r.showTabs = true
		b, err := r.reachFirefox(ctx, noPage)
		if err != nil {
			return err
		}
		index, gives, err := a.index(b)
		if err != nil {
			return err
		}
		switch a.Action {
		case "new":
			if err = b.New(ctx); err == nil && a.URL != "" {
				err = r.openInFirefox(ctx, b, a.URL)
			}
		case "select":
			r.page = pageState
			err = b.Select(ctx, index)
		case "close":
			return b.CloseTab(ctx, index)
		}
		if gives && err == nil {
			err = b.Label(index, a.Label)
		}
		return err
	}),
	"browser_close": with(func(ctx context.Context, r *reply, _ none) error {
		r.showTabs = true
		b, err := r.reachFirefox(ctx, noPage)
		if err != nil {
			return err
		}
		return b.CloseTab(ctx, -1)
	}),
	"browser_wait_for": with(func(ctx context.Context, r *reply, a waitArguments) error {
		if err := a.check(); err != nil {
			return err
		}
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error { return r.awaits(ctx, b, a) })
	}),
	"browser_handle_dialog": with(func(ctx context.Context, r *reply, a struct {
		Accept     bool
		PromptText *string
	}) error {
		b, err := r.reachFirefox(ctx, pageChanges)
		if err != nil {
			return err
		}
		return b.HandleDialog(ctx, a.Accept, a.PromptText)
	}),
}

// leavesInFirefox is leaves for a Firefox.
func leavesInFirefox(do func(ctx context.Context, r *reply, t leaving) error) runner {
	return with(func(ctx context.Context, r *reply, _ none) error {
		return r.inFirefox(ctx, pageChanges, func(b *firefox.Browser) error {
			r.opens = true
			return do(ctx, r, b)
		})
	})
}

// openInFirefox loads an address, but none of the browser's own or of a file.
func (r *reply) openInFirefox(ctx context.Context, b *firefox.Browser, url string) error {
	if scheme, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(url)), ":"); !r.server.AllFiles &&
		slices.Contains([]string{"file", "view-source", "resource", "chrome", "jar"}, scheme) {
		return fmt.Errorf("%s: addresses are not opened in Firefox", scheme)
	}
	opened, err := b.Navigate(ctx, url)
	return r.toldOpen(opened, err, b.Dialog() != nil)
}

// notOnFirefox is the error of a tool that Firefox cannot be driven by.
func notOnFirefox(name string) error {
	all := slices.Sorted(maps.Keys(onFirefox))
	return fmt.Errorf("%s needs a browser based on Chromium, and this one is Firefox, which has %s", name,
		strings.Join(all, ", "))
}

// inFirefox does something with the browser, which must not have a dialog open.
func (r *reply) inFirefox(ctx context.Context, view pageView, do func(*firefox.Browser) error) error {
	b, err := r.reachFirefox(ctx, view)
	if err != nil {
		return err
	}
	if b.Dialog() != nil {
		r.page = pageState
		return errModal
	}
	before := b.Before()
	err = do(b)
	tabs, files := b.Caused(before)
	for _, i := range tabs {
		r.didOpenTab(i)
	}
	for _, name := range files {
		r.didDownload(name)
	}
	return err
}

// reachFirefox connects to the browser.
func (r *reply) reachFirefox(ctx context.Context, view pageView) (*firefox.Browser, error) {
	b, err := r.server.connectFirefox(ctx)
	if err == nil {
		r.firefox, r.page = b, view
	}
	return b, err
}

// openBound is how long a Firefox may take to make a session: one that is just starting
// on a busy machine takes longer than a call waits.
const openBound = time.Minute

// connectFirefox returns the browser. It connects at the first call, and again when the
// connection has ended. A call that ends meanwhile leaves the connection to the next
// one: a session that is made and not used would keep the browser from everybody.
func (s *Server) connectFirefox(ctx context.Context) (*firefox.Browser, error) {
	select {
	case s.dial <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if b := s.firefox; b != nil && !wait.Closed(b.Gone()) {
		<-s.dial
		return b, nil
	}
	var b *firefox.Browser
	var err error
	opened := make(chan struct{})
	s.work.Go(func() {
		defer close(opened)
		defer func() { <-s.dial }()
		ctx, cancel := context.WithTimeout(s.life, openBound)
		defer cancel()
		if b, err = firefox.Open(ctx, s.BiDi, s.Second); err == nil {
			if s.firefox != nil {
				b.Inherit(s.firefox)
			}
			s.firefox = b
		}
	})
	select {
	case <-opened:
		return b, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// firefoxTabs are the lines on the tabs of a Firefox.
func (r *reply) firefoxTabs(ctx context.Context) []string {
	var all []browse.TabState
	for _, t := range r.firefox.Tabs(ctx) {
		all = append(all, browse.TabState{URL: t.URL, Title: t.Title, Label: t.Label, Current: t.Current})
	}
	r.rows(tabRows(all))
	return tabLines(all)
}

// viewFirefox writes the sections on a Firefox and its page.
func (r *reply) viewFirefox(ctx context.Context, err error, section func(string, ...string)) error {
	b := r.firefox
	if r.page == noPage || ctx.Err() != nil {
		return nil
	}
	var d delta
	var unseen error
	shows := r.showsSnapshot() && err == nil && b.Dialog() == nil
	if shows { // before the state, as in view
		d, unseen = r.look(ctx, b)
	}
	s := b.State(ctx)
	if s.URL == "" { // it is gone
		if r.page != pageSnapshot || unseen == nil {
			return nil
		}
		section("Error", errorText(unseen))
		return unseen
	}
	status := browse.Status{Code: s.Status, Text: http.StatusText(s.Status)}
	r.at = &results.PageState{URL: address(s.URL), Title: s.Title, Status: s.Status}
	isNew := r.sayPage(section, b.Document(), pageLines(s.URL, s.Title, status, s.Leaving))
	if d := b.Dialog(); d != nil {
		section("Modal state", "- "+oneLine(fmt.Sprintf("[%s]: %q can be handled by browser_handle_dialog", d.Type,
			d.Message)))
		return nil
	}
	switch {
	case !shows:
	case unseen != nil && r.page == pageSnapshot:
		section("Error", errorText(unseen))
		return unseen
	case unseen != nil:
		section("Snapshot", "There is none: "+unseen.Error())
	default:
		r.saySnapshot(section, d, isNew)
	}
	return nil
}
