package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/browse"
)

// none is for tools without arguments.
type none struct{}

func navigate(ctx context.Context, r *reply, t browse.Page, a struct{ URL string }) error {
	place, err := t.Place(ctx)
	if err != nil {
		return err
	}
	if place != t {
		r.did("Closed the page before: a script of it ran without end")
	}
	return r.open(ctx, place, a.URL)
}

// didOpen begins the line on an address that was opened.
const didOpen = "- Opened "

// open loads an address and tells what came of it.
func (r *reply) open(ctx context.Context, t browse.Page, url string) error {
	opened, err := t.Navigate(ctx, url)
	if errors.Is(err, browse.ErrUnborn) {
		if t, err = t.Replace(ctx); err == nil {
			opened, err = t.Navigate(ctx, url)
		}
	}
	opened = address(opened)
	r.opens = true
	switch {
	case errors.Is(err, browse.ErrDownload):
		r.did("%s is a file, which is downloaded: the page before it is still open", opened)
	case err != nil:
		return err
	case t.Dialog() != "":
		r.did("Began to open %s: the page asks first", opened)
	default:
		r.actions = append(r.actions, didOpen+opened)
	}
	return nil
}

// leaves returns the function of a tool that goes to another document.
func leaves(leave func(t browse.Page, ctx context.Context) error, to, did string) func(context.Context, *reply,
	browse.Page, none) error {
	return func(ctx context.Context, r *reply, t browse.Page, _ none) error {
		r.opens = true
		err := leave(t, ctx)
		if err == nil && t.Dialog() == "beforeunload" {
			r.did("Began to %s: the page asks first", to)
			return nil
		}
		return r.tells(err, "%s", did)
	}
}

func back(t browse.Page, ctx context.Context) error    { return t.Go(ctx, false) }
func forward(t browse.Page, ctx context.Context) error { return t.Go(ctx, true) }

func scroll(ctx context.Context, r *reply, t browse.Page, a browse.ScrollOptions) error {
	switch {
	case a.Direction == "" && a.Target == "":
		return errors.New("direction is missing: up, down, left, right, top or bottom; or a target to scroll to")
	case a.Pixels != nil && (a.Direction == "" || a.Direction == "top" || a.Direction == "bottom"):
		return errors.New("pixels are for the directions up, down, left and right")
	}
	r.proven = true
	s, err := t.Scroll(ctx, a)
	return r.tells(err, "%s", s.Sentence(a.Direction))
}

type snapshotArguments struct {
	browse.SnapshotOptions
	Filename, Since string
}

// snapshot has the result show a snapshot, or saves it in a file.
func snapshot(ctx context.Context, r *reply, t browse.Page, a snapshotArguments) error {
	r.page, r.onlyNew = pageState, a.Since != ""
	if r.onlyNew && a != (snapshotArguments{Since: a.Since}) {
		return errors.New("since is for the whole page, whose changes are no file: leave out the other arguments")
	}
	if a.Filename == "" {
		r.page, r.snapshot = pageSnapshot, a.SnapshotOptions
		return nil
	}
	text, err := t.Snapshot(ctx, a.SnapshotOptions)
	if err != nil {
		return err
	}
	return r.text(ctx, a.Filename, fenced("yaml", text), text)
}

func findText(ctx context.Context, r *reply, t browse.Page, a struct{ Text, Regex, Filename string }) error {
	is, err := searched(a.Text, a.Regex)
	if err != nil {
		return err
	}
	text, err := t.Snapshot(ctx, browse.SnapshotOptions{Whole: true})
	if err != nil {
		return err
	}
	found, n := matches(r.server.Secrets.Mask(text), is)
	if n == 0 && a.Text != "" { // it may run over several lines
		lines, err := t.Holding(ctx, a.Text)
		if err != nil {
			return err
		}
		found, n = strings.Join(lines, "\n"), len(lines)
	}
	for _, cut := range browse.Cuts(text) {
		r.say("%s", cut)
	}
	r.sayFound(n, a.Text, a.Regex)
	if n == 0 {
		return nil
	}
	return r.text(ctx, a.Filename, fenced("yaml", found), found)
}

type waitArguments struct {
	Time                                *float64
	Text, TextGone, URL, Load, Function string
}

// check returns an error if there is nothing to wait for.
func (a *waitArguments) check(*reply) error {
	switch {
	case *a == waitArguments{}:
		return errors.New("one of time, text, textGone, url, load and function is needed")
	case a.Text != "" && isBlank(a.Text) || a.TextGone != "" && isBlank(a.TextGone):
		return errors.New("a text of spaces alone cannot be waited for")
	}
	return cmp.Or(isTooLong(a.Text), isTooLong(a.TextGone))
}

// waitFor waits for all that is asked for, one after the other.
func waitFor(ctx context.Context, r *reply, t browse.Page, a waitArguments) error {
	most := r.server.of(maxWait)
	if a.Time != nil {
		wait := time.Duration(min(*a.Time, most.Seconds()) * float64(time.Second))
		select {
		case <-time.After(wait):
			r.say("Waited for %v", wait)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if a.URL != "" {
		matches, err := browse.Glob(a.URL)
		if err != nil {
			return err
		}
		err = poll(ctx, most, func() (bool, error) { return matches.MatchString(t.Address(ctx)), nil })
		if err != nil {
			return fmt.Errorf("the address is %s, which does not match %s: %w", address(t.Address(ctx)), a.URL, err)
		}
		r.say("The address is %s", address(t.Address(ctx)))
	}
	if a.Load != "" {
		if err := r.awaitLoad(ctx, t, a.Load, most); err != nil {
			return fmt.Errorf("the page has not come to %s: %w", a.Load, err)
		}
		r.say("The page has come to %s", a.Load)
	}
	if a.TextGone != "" {
		if err := t.AwaitText(ctx, a.TextGone, false, most); err != nil {
			return err
		}
		r.say("The text %q is gone", a.TextGone)
	}
	if a.Text != "" {
		if err := t.AwaitText(ctx, a.Text, true, most); err != nil {
			return err
		}
		r.say("The text %q is there", a.Text)
	}
	if a.Function == "" {
		return nil
	}
	var threw *browse.Thrown // the page may not be ready for it
	err := poll(ctx, most, func() (is bool, err error) {
		threw = nil
		if is, err = t.Holds(ctx, a.Function); errors.As(err, &threw) {
			err = nil
		}
		return is, err
	})
	switch {
	case err != nil && threw != nil:
		return threw
	case err != nil:
		return fmt.Errorf("the function has returned nothing that is true: %w", err)
	}
	r.say("The function has returned what is true")
	return nil
}

// idleTime is how long a page sends no request that is taken for idle.
const idleTime = 500 * time.Millisecond

// awaitLoad waits until a page has come so far.
func (r *reply) awaitLoad(ctx context.Context, t browse.Page, state string, most time.Duration) error {
	var since time.Time
	return poll(ctx, most, func() (bool, error) {
		is, err := t.IsLoaded(ctx, state)
		if !is {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		return is && (state != "idle" || time.Since(since) >= idleTime), err
	})
}

// poll waits until something is so.
func poll(ctx context.Context, most time.Duration, is func() (bool, error)) error {
	for end := time.Now().Add(most); ; {
		so, err := is()
		switch {
		case so || err != nil:
			return err
		case time.Now().After(end):
			return fmt.Errorf("that was waited for %v", most)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type tabsArguments struct {
	Action, URL, Label string
	Index              *float64
}

// index is that of the tab that is meant; -1: the current one. Gives is that it is to get the label.
func (a *tabsArguments) index(b browse.Driver) (index int, gives bool, err error) {
	switch index = -1; {
	case a.Action == "new": // it is the current one then
		return index, a.Label != "", nil
	case a.Index != nil:
		return int(*a.Index), a.Label != "", nil
	case a.Action == "" || a.Action == "list":
		return index, false, nil
	case a.Label != "":
		all := b.Labels()
		if index = slices.Index(all, a.Label); index < 0 {
			all = slices.DeleteFunc(all, func(l string) bool { return l == "" })
			return 0, false, fmt.Errorf("no tab is called %q, or it was closed: there are %q. browser_tabs "+
				"with an index, or new, gives a tab its label", a.Label, all)
		}
	case a.Action == "select":
		return 0, false, errors.New("index or label is missing: browser_tabs with the action list shows the tabs")
	}
	return index, false, nil
}

func tabs(ctx context.Context, r *reply, b browse.Driver, a tabsArguments) error {
	index, gives, err := a.index(b)
	if err != nil {
		return err
	}
	switch a.Action {
	case "new":
		t, err := b.New(ctx)
		if err != nil {
			return err
		}
		r.page = pageChanges
		if a.URL != "" {
			if err := r.open(ctx, t, a.URL); err != nil {
				return err
			}
		}
	case "select":
		r.page = pageChanges
		if err := b.Select(ctx, index); err != nil {
			return err
		}
	case "close":
		if err := r.close(ctx, index); err != nil {
			return err
		}
	}
	if gives && a.Action != "close" {
		err = b.Label(index, a.Label)
	}
	r.showTabs = true
	return err
}

// close closes the tab at an index; -1: the current one.
func (r *reply) close(ctx context.Context, index int) error {
	err := r.browser.CloseTab(ctx, index)
	if end := r.server.Emptied; err == nil && end != nil && r.browser.Count() == 0 {
		r.say("The last tab was closed, which ends this browser: the next call begins another one")
		end()
	}
	return err
}

func closePage(ctx context.Context, r *reply, _ browse.Driver, _ none) error {
	r.showTabs = true
	return r.close(ctx, -1)
}

func savePDF(ctx context.Context, r *reply, t *browse.Tab, a struct{ Filename string }) error {
	data, err := t.PDF(ctx)
	if err != nil {
		return err
	}
	if a.Filename == "" {
		r.say("PDF of the page, %d KiB", (len(data)+1023)/1024)
		r.data(data, "application/pdf", t.State(ctx).URL)
		return nil
	}
	path, err := r.server.save(ctx, a.Filename, data)
	return r.says(err, "PDF of the page, %d KiB, saved as %s", (len(data)+1023)/1024, path)
}

func resize(ctx context.Context, r *reply, t *browse.Tab, a struct{ Width, Height float64 }) error {
	return r.tells(t.Resize(ctx, int(a.Width), int(a.Height)), "Set the viewport to %d×%d", int(a.Width),
		int(a.Height))
}

// mediaFeatures are the CSS names of the features that can be emulated.
var mediaFeatures = map[string]string{"colorScheme": "prefers-color-scheme", "reducedMotion": "prefers-reduced-motion",
	"forcedColors": "forced-colors", "contrast": "prefers-contrast"}

func emulateMedia(ctx context.Context, r *reply, t *browse.Tab, a map[string]*string) error {
	if len(a) == 0 {
		return errors.New("nothing to emulate is given: media, colorScheme, reducedMotion, forcedColors or contrast")
	}
	var did []string
	change := map[string]string{}
	for name, value := range a {
		set := *cmp.Or(value, new(string))
		did = append(did, fmt.Sprintf("%s: %s", name, set))
		change[cmp.Or(mediaFeatures[name], name)] = set
	}
	slices.Sort(did)
	return r.tells(t.EmulateMedia(ctx, change), "Emulates %v", did)
}
