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

func navigate(ctx context.Context, r *reply, a struct{ URL string }) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	r.page = pageChanges
	place, err := t.Place(ctx)
	if err != nil {
		return err
	}
	if place != t {
		r.did("Closed the page before: a script of it ran without end")
	}
	return r.open(ctx, place, a.URL)
}

// open loads an address and tells what came of it.
func (r *reply) open(ctx context.Context, t *browse.Tab, url string) error {
	opened, err := t.Navigate(ctx, url)
	if errors.Is(err, browse.ErrUnborn) {
		if t, err = t.Replace(ctx); err != nil {
			return r.toldOpen(opened, err, false)
		}
		opened, err = t.Navigate(ctx, url)
	}
	return r.toldOpen(opened, err, t.HasDialog())
}

// didOpen begins the line on an address that was opened.
const didOpen = "- Opened "

// toldOpen tells what came of an address.
func (r *reply) toldOpen(opened string, err error, asks bool) error {
	opened = address(opened)
	r.opens = true
	switch {
	case errors.Is(err, browse.ErrDownload):
		r.did("%s is a file, which is downloaded: the page before it is still open", opened)
	case err != nil:
		return err
	case asks:
		r.did("Began to open %s: the page asks first", opened)
	default:
		r.actions = append(r.actions, didOpen+opened)
	}
	return nil
}

func back(ctx context.Context, r *reply, _ none) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	r.page = pageChanges
	if err = t.Back(ctx); err == nil {
		r.did("Went back")
	}
	return err
}

type snapshotArguments struct {
	Target             browse.Target
	Filename           string
	Depth              *int
	Boxes, Interactive bool
	Since              string
}

func (a *snapshotArguments) options() browse.SnapshotOptions {
	return browse.SnapshotOptions{Target: a.Target, Depth: a.Depth, Boxes: a.Boxes, Interactive: a.Interactive}
}

func snapshot(ctx context.Context, r *reply, a snapshotArguments) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	return r.sees(ctx, t, a)
}

// sees has the result show a snapshot, or saves it in a file.
func (r *reply) sees(ctx context.Context, p page, a snapshotArguments) error {
	r.page, r.onlyNew = pageState, a.Since != ""
	if r.onlyNew && a != (snapshotArguments{Since: a.Since}) {
		return errors.New("since is for the whole page, whose changes are no file: leave out the other arguments")
	}
	if a.Filename == "" {
		r.page, r.snapshot = pageSnapshot, a.options()
		return nil
	}
	text, err := p.Snapshot(ctx, a.options())
	if err != nil {
		return err
	}
	return r.text(ctx, a.Filename, fenced("yaml", text), text)
}

func findText(ctx context.Context, r *reply, a struct{ Text, Regex, Filename string }) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	is, err := searched(a.Text, a.Regex)
	if err != nil {
		return err
	}
	text, err := t.Snapshot(ctx, browse.SnapshotOptions{Whole: true})
	if err != nil {
		return err
	}
	found, n := matches(text, is)
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

func waitFor(ctx context.Context, r *reply, a struct {
	Time           *float64
	Text, TextGone string
}) error {
	if err := awaited(a.Time, a.Text, a.TextGone); err != nil {
		return err
	}
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	r.page = pageChanges
	return r.awaits(ctx, t, a.Time, a.Text, a.TextGone)
}

// awaiting is what waits for a text: a page of Chromium, or of Firefox.
type awaiting interface {
	AwaitText(ctx context.Context, text string, wanted bool, most time.Duration) error
}

// awaited returns an error if there is nothing to wait for.
func awaited(seconds *float64, text, gone string) error {
	switch {
	case seconds == nil && text == "" && gone == "":
		return errors.New("one of time, text and textGone is needed")
	case text != "" && isBlank(text) || gone != "" && isBlank(gone):
		return errors.New("a text of spaces alone cannot be waited for")
	}
	return cmp.Or(isTooLong(text), isTooLong(gone))
}

// awaits waits for a time, until a text is gone, and until another one is there.
func (r *reply) awaits(ctx context.Context, t awaiting, seconds *float64, text, gone string) error {
	if seconds != nil {
		wait := time.Duration(min(*seconds, r.server.of(maxWait).Seconds()) * float64(time.Second))
		select {
		case <-time.After(wait):
			r.say("Waited for %v", wait)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if gone != "" {
		if err := t.AwaitText(ctx, gone, false, r.server.of(maxWait)); err != nil {
			return err
		}
		r.say("The text %q is gone", gone)
	}
	if text != "" {
		if err := t.AwaitText(ctx, text, true, r.server.of(maxWait)); err != nil {
			return err
		}
		r.say("The text %q is there", text)
	}
	return nil
}

type tabsArguments struct {
	Action, URL string
	Index       *float64
}

// index is that of the tab that is meant; -1: the current one.
func (a *tabsArguments) index() (int, error) {
	index := -1
	if a.Index != nil {
		index = int(*a.Index)
	}
	if a.Action == "select" && index < 0 {
		return 0, errors.New("index is missing: browser_tabs with the action list shows the tabs")
	}
	return index, nil
}

func tabs(ctx context.Context, r *reply, a tabsArguments) error {
	index, err := a.index()
	if err != nil {
		return err
	}
	b, err := r.reach(ctx)
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
	r.showTabs = true
	return nil
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

func closePage(ctx context.Context, r *reply, _ none) error {
	if _, err := r.reach(ctx); err != nil {
		return err
	}
	r.showTabs = true
	return r.close(ctx, -1)
}

func screenshot(ctx context.Context, r *reply, a struct {
	Target         browse.Target
	Type, Filename string
	FullPage       bool
	Scale          string
}) error {
	if a.Filename == "" && r.server.NoImages && !r.form.Value {
		return errors.New("images are not sent here: with a filename, one is saved")
	}
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	if a.Target != "" && a.FullPage {
		return fmt.Errorf("fullPage is for the page, not for an element: leave out one of fullPage and target")
	}
	if a.Type == "" {
		a.Type = typeOf(a.Filename)
	}
	s, err := t.Screenshot(ctx, browse.ScreenshotOptions{Type: a.Type, Target: a.Target, FullPage: a.FullPage,
		Device: a.Scale == "device", Model: a.Filename == "" && !r.form.Value})
	if err != nil {
		return err
	}
	return r.picture(ctx, s, a.Type, a.Filename)
}

// picture saves a screenshot in a file, or sends it if that has no name.
func (r *reply) picture(ctx context.Context, s browse.Screenshot, kind, file string) error {
	note := ""
	if s.Note != "" {
		note = " (" + s.Note + ")"
	}
	if file != "" {
		path, err := r.save(ctx, file, s.Data)
		if err == nil {
			r.say("Screenshot of %s saved as %s%s", s.What, path, note)
		}
		return err
	}
	r.say("Screenshot of %s%s", s.What, note)
	r.image(s.Data, "image/"+kind)
	return nil
}

func savePDF(ctx context.Context, r *reply, a struct{ Filename string }) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	data, err := t.PDF(ctx)
	if err != nil {
		return err
	}
	if a.Filename == "" {
		r.say("PDF of the page, %d KiB", (len(data)+1023)/1024)
		r.data(data, "application/pdf", t.State(ctx).URL)
		return nil
	}
	path, err := r.save(ctx, a.Filename, data)
	if err == nil {
		r.say("PDF of the page, %d KiB, saved as %s", (len(data)+1023)/1024, path)
	}
	return err
}

func resize(ctx context.Context, r *reply, a struct{ Width, Height float64 }) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	if err = t.Resize(ctx, int(a.Width), int(a.Height)); err == nil {
		r.did("Set the viewport to %d×%d", int(a.Width), int(a.Height))
	}
	return err
}

// mediaFeatures are the CSS names of the features that can be emulated.
var mediaFeatures = map[string]string{"colorScheme": "prefers-color-scheme", "reducedMotion": "prefers-reduced-motion",
	"forcedColors": "forced-colors", "contrast": "prefers-contrast"}

func emulateMedia(ctx context.Context, r *reply, a map[string]*string) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	if len(a) == 0 {
		return errors.New("nothing to emulate is given: media, colorScheme, reducedMotion, forcedColors or contrast")
	}
	var did []string
	for name, value := range a {
		set := ""
		if value != nil {
			set = *value
		}
		did = append(did, fmt.Sprintf("%s: %s", name, set))
		if name == "media" {
			t.SetMedia(set)
		} else if css := mediaFeatures[name]; css != "" {
			t.SetMediaFeature(css, set)
		}
	}
	slices.Sort(did)
	if err = t.EmulateMedia(ctx); err == nil {
		r.did("Emulates %v", did)
	}
	return err
}
