package browse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"btools/lib/cdp/wire"
)

// needs are the conditions that an element has to meet before it is acted on.
type needs struct {
	Point    bool `json:"point"`    // it is in the viewport and does not move
	Hit      bool `json:"hit"`      // nothing covers it
	Enabled  bool `json:"enabled"`  // it is not disabled
	Editable bool `json:"editable"` // it takes text
	Watch    bool `json:"watch"`    // if it moves, only it is to get the press that follows
}

var (
	forClick = needs{Point: true, Hit: true, Enabled: true, Watch: true}
	forDrag  = needs{Point: true, Hit: true, Enabled: true}
	forHover = needs{Point: true, Hit: true}
	forDrop  = needs{Point: true}
	forFill  = needs{Enabled: true, Editable: true}
	forFocus = needs{Enabled: true}
)

// found is an element that is ready.
type found struct {
	place
	at      point // in the tab
	inFrame point
	what    string // as results name it

	moves     bool // and does not stop
	downloads bool // it is a link to a file
	canvas    bool // whose picture can be compared
}

// elements are what an agent acts on.
type elements struct {
	*input
	chooser  *Chooser // of files; nil: none is open
	unserved bool     // the page has asked for a file in a way that nobody can serve
}

// ready waits until a target meets the conditions.
func (t *elements) ready(ctx context.Context, target Target, n needs) (found, error) {
	if err := t.gone(); err != nil {
		return found{}, err
	}
	end := time.Now().Add(t.b.of(ActionTimeout))
	p, err := t.locate(ctx, target)
	if err != nil {
		return found{}, err
	}
	var got struct {
		X, Y      float64
		What      string
		Moves     bool
		Downloads bool
		Canvas    bool
		Frame     int // its number in the frame around it; -1: none
	}
	left := max(time.Until(end), t.b.of(500*time.Millisecond))
	err = t.run(ctx, p.frame, "ready", map[string]any{"target": p.find, "needs": n, "ms": left.Milliseconds()}, &got)
	if err != nil {
		return found{}, fmt.Errorf("%s: %w", target, err)
	}
	if n.Point || n.Enabled {
		if err := t.usable(ctx, p.frame, got.Frame); err != nil {
			return found{}, fmt.Errorf("%s: %w", target, err)
		}
	}
	at := point{got.X, got.Y}
	f := found{place: p, at: at, inFrame: at, what: got.What, moves: got.Moves, downloads: got.Downloads,
		canvas: got.Canvas}
	if n.Point && p.frame.parent != nil {
		x, y, err := p.frame.origin(ctx)
		if err != nil {
			return found{}, fmt.Errorf("%s: %w", target, err)
		}
		f.at.x, f.at.y = f.at.x+x, f.at.y+y
	}
	return f, nil
}

// usable returns an error if a frame, which has a number in the one around it, is inert.
func (t *elements) usable(ctx context.Context, f *frame, number int) error {
	for ; f.parent != nil && number >= 0; f = f.parent {
		err := t.run(ctx, f.parent, "usableFrame", map[string]any{"number": number}, &number)
		if err != nil {
			return fmt.Errorf("its %w", err)
		}
	}
	return nil
}

// ClickOptions say how to click.
type ClickOptions struct {
	Button    string // left, right or middle; "": left
	Double    bool
	Modifiers []string
}

// Click clicks an element, and returns how results name it.
func (t *elements) Click(ctx context.Context, target Target, o ClickOptions) (string, error) {
	bits, err := modifiers(o.Modifiers)
	if err != nil {
		return "", err
	}
	button, count := o.Button, 1
	if button == "" {
		button = "left"
	}
	if o.Double {
		count = 2
	}
	for end := time.Now().Add(t.b.of(ActionTimeout)); ; {
		f, err := t.ready(ctx, target, forClick)
		if err != nil {
			return "", err
		}
		since := t.mark()
		if err := t.act(ctx, click(f.at, button, count, bits)...); err != nil {
			return f.what, err
		}
		hit := ""
		if f.moves && t.run(ctx, f.frame, "missed", nil, &hit) == nil && hit != "" {
			if time.Now().Before(end) {
				continue
			}
			return f.what, fmt.Errorf("%s moves: the clicks hit %s, and were kept from it", f.what, hit)
		}
		if f.downloads {
			return f.what, t.settleDownload(ctx, since)
		}
		drew := false
		if f.canvas && t.run(ctx, f.frame, "drew", nil, &drew) == nil && drew {
			f.what += ", whose picture has changed"
		}
		return f.what, nil
	}
}

// act sends input events and waits for what they cause.
func (t *input) act(ctx context.Context, events ...inputEvent) error {
	since := t.mark()
	if err := t.inputs(ctx, events...); err != nil && !isCaused(err) {
		return err
	}
	return t.settle(ctx, since)
}

// isCaused reports whether an error only says what an action has caused: a dialog,
// or the end of the document or of the tab.
func isCaused(err error) bool {
	return errors.Is(err, errDialog) || errors.Is(err, errClosed) || errors.Is(err, wire.ErrDetached) || isPassing(err)
}

// isPassing reports whether an error says that the page is being replaced by another one.
func isPassing(err error) bool {
	var leaving *leavingError
	return isLost(err) || errors.As(err, &leaving)
}

// Hover moves the mouse over an element.
func (t *elements) Hover(ctx context.Context, target Target) (string, error) {
	f, err := t.ready(ctx, target, forHover)
	if err != nil {
		return "", err
	}
	return f.what, t.act(ctx, mouse("mouseMoved", f.at, "none", 0, 0, 0))
}

// Drag drags an element to another one with the mouse. What the page makes draggable
// by HTML is dragged as the browser does it.
func (t *elements) Drag(ctx context.Context, from, to Target) (what, onto string, err error) {
	a, err := t.ready(ctx, from, forDrag)
	if err != nil {
		return "", "", err
	}
	session := t.main.session
	if err := t.call(ctx, session, "Input.setInterceptDrags", map[string]bool{"enabled": true}, nil); err != nil {
		return "", "", err
	}
	defer t.b.conn.Begin(session, "Input.setInterceptDrags", map[string]bool{"enabled": false}, nil)
	t.b.mu.Lock()
	t.dragged = nil
	t.b.mu.Unlock()
	since := t.mark()
	err = t.inputs(ctx, mouse("mouseMoved", a.at, "none", 0, 0, 0), mouse("mousePressed", a.at, "left", 1, 1, 0))
	if err != nil {
		return "", "", err
	}
	z, err := t.ready(ctx, to, forDrop)
	if err != nil {
		t.inputs(ctx, mouse("mouseReleased", a.at, "left", 0, 1, 0))
		return "", "", err
	}
	const steps = 5
	for n := 1; n <= steps; n++ {
		k := float64(n) / steps
		at := point{a.at.x + (z.at.x-a.at.x)*k, a.at.y + (z.at.y-a.at.y)*k}
		if math.Abs(z.at.x-a.at.x)+math.Abs(z.at.y-a.at.y) < steps {
			at.x += float64(n % 2)
		}
		if err := t.moveDragging(ctx, at); err != nil {
			return "", "", err
		}
	}
	if err := t.moveDragging(ctx, z.at); err != nil {
		return "", "", err
	}
	t.b.mu.Lock()
	data := t.dragged
	t.b.mu.Unlock()
	if data != nil {
		err = t.inputs(ctx, dragEvent("drop", z.at, data), mouse("mouseReleased", z.at, "left", 0, 1, 0))
	} else {
		err = t.inputs(ctx, mouse("mouseReleased", z.at, "left", 0, 1, 0))
	}
	if err != nil && !isCaused(err) {
		return "", "", err
	}
	return a.what, z.what, t.settle(ctx, since)
}

// moveDragging moves the mouse with its button pressed, and with it what is dragged.
func (t *input) moveDragging(ctx context.Context, at point) error {
	t.b.mu.Lock()
	data := t.dragged
	t.b.mu.Unlock()
	if data != nil {
		return t.inputs(ctx, dragEvent("dragOver", at, data))
	}
	if err := t.inputs(ctx, mouse("mouseMoved", at, "left", 1, 0, 0)); err != nil {
		return err
	}
	t.b.mu.Lock()
	data = t.dragged
	t.b.mu.Unlock()
	if data == nil {
		return nil
	}
	return t.inputs(ctx, dragEvent("dragEnter", at, data), dragEvent("dragOver", at, data))
}

func dragEvent(kind string, at point, data json.RawMessage) inputEvent {
	return inputEvent{"Input.dispatchDragEvent", map[string]any{"type": kind, "x": at.x, "y": at.y, "data": data}}
}

// Drop drops data and files from outside the page onto an element.
func (t *elements) Drop(ctx context.Context, target Target, data map[string]string, files []string) (string, error) {
	f, err := t.ready(ctx, target, forDrop)
	if err != nil {
		return "", err
	}
	if len(files) > 0 {
		return f.what, t.dropFiles(ctx, f, data, files)
	}
	items := []map[string]string{}
	for mime, value := range data {
		items = append(items, map[string]string{"mimeType": mime, "data": value})
	}
	raw, err := json.Marshal(map[string]any{"items": items, "dragOperationsMask": 1})
	if err != nil {
		return "", err
	}
	return f.what, t.act(ctx, dragEvent("dragEnter", f.at, raw), dragEvent("dragOver", f.at, raw),
		dragEvent("drop", f.at, raw))
}

// dropFiles drops files, which no input event can in a browser with several sessions:
// a page that does not take a file would be left for that file. The files are put into
// an input of ours, and the page gets the events of a drop with them.
func (t *elements) dropFiles(ctx context.Context, f found, data map[string]string, files []string) error {
	input, err := f.frame.evaluate(ctx, "btools.api.takeFiles()", false)
	if err != nil {
		return err
	}
	session, object := f.frame.target.session, map[string]string{"objectId": input.ObjectID}
	defer t.b.conn.Begin(session, "Runtime.releaseObject", object, nil)
	err = t.call(ctx, session, "DOM.setFileInputFiles", map[string]any{"files": files, "objectId": input.ObjectID}, nil)
	if err != nil {
		return err
	}
	since := t.mark()
	err = t.run(ctx, f.frame, "drop",
		map[string]any{"target": f.find, "x": f.inFrame.x, "y": f.inFrame.y, "data": data}, nil)
	if err != nil && !isCaused(err) {
		return err
	}
	return t.settle(ctx, since)
}

// Choose chooses options of a select, by label or value, and returns the labels.
func (t *elements) Choose(ctx context.Context, target Target, values []string) (what string, labels []string, err error) {
	f, err := t.ready(ctx, target, forFocus)
	if err != nil {
		return "", nil, err
	}
	since := t.mark()
	err = t.run(ctx, f.frame, "choose", map[string]any{"target": f.find, "values": values}, &labels)
	if err != nil && !isCaused(err) {
		return "", nil, err
	}
	return f.what, labels, t.settle(ctx, since)
}

// Check checks or clears a checkbox or a radio button.
func (t *elements) Check(ctx context.Context, target Target, on bool) (string, error) {
	f, err := t.ready(ctx, target, forFocus)
	if err != nil {
		return "", err
	}
	var is bool
	state := func() error { return t.run(ctx, f.frame, "checked", map[string]any{"target": f.find}, &is) }
	if err := state(); err != nil || is == on {
		return f.what, err
	}
	if _, err := t.Click(ctx, target, ClickOptions{}); err != nil {
		return f.what, err
	}
	err = state()
	if _, left := errors.AsType[*strayedError](err); left { // the click has led there
		return f.what, nil
	}
	if err != nil && !isCaused(err) {
		return f.what, err
	}
	if is != on {
		return f.what, fmt.Errorf("%s was clicked, and is as it was before", f.what)
	}
	return f.what, nil
}

// Upload gives the file chooser that is open the files, or cancels it if there are
// none.
func (t *elements) Upload(ctx context.Context, files []string) error {
	t.b.mu.Lock()
	c := t.chooser
	t.b.mu.Unlock()
	if c == nil {
		return errors.New("no file chooser is open: click the button that opens one first")
	}
	if len(files) > 0 {
		takes, err := t.takesDirs(ctx, c)
		wrong := slices.IndexFunc(files, func(path string) bool { return isDir(path) != takes })
		switch {
		case err != nil:
			return err
		case wrong >= 0 && takes:
			return fmt.Errorf("%s is a file, and the input takes a directory", files[wrong])
		case wrong >= 0:
			return fmt.Errorf("%s is a directory, and the input takes files", files[wrong])
		}
	}
	t.b.mu.Lock()
	if t.chooser == c {
		t.chooser = nil
	}
	t.b.mu.Unlock()
	if len(files) == 0 {
		return nil
	}
	if c.Mode == "selectSingle" && len(files) > 1 {
		return fmt.Errorf("the file chooser takes one file, not %d", len(files))
	}
	since := t.mark()
	err := t.call(ctx, c.session, "DOM.setFileInputFiles",
		map[string]any{"files": files, "backendNodeId": c.BackendNodeID}, nil)
	if err != nil && !isCaused(err) {
		return err
	}
	return t.settle(ctx, since)
}

func isDir(path string) bool {
	at, err := os.Stat(path)
	return err == nil && at.IsDir()
}

// takesDirs reports whether the input of a file chooser takes a directory.
func (t *elements) takesDirs(ctx context.Context, c *Chooser) (bool, error) {
	var described struct{ Node struct{ Attributes []string } }
	err := t.call(ctx, c.session, "DOM.describeNode", map[string]any{"backendNodeId": c.BackendNodeID}, &described)
	for name := range slices.Chunk(described.Node.Attributes, 2) {
		if strings.EqualFold(name[0], "webkitdirectory") {
			return true, err
		}
	}
	return false, err
}

// AwaitText waits until a text is visible in the page, or, if not wanted, until it
// is not.
func (t *frames) AwaitText(ctx context.Context, text string, wanted bool, most time.Duration) error {
	end := time.Now().Add(most)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		if err := t.gone(); err != nil {
			return err
		}
		seen, err := t.HasText(ctx, text)
		if err != nil && !isPassing(err) {
			return err
		}
		if err == nil && seen == wanted {
			return nil
		}
		if time.Now().After(end) {
			var leaving *leavingError
			if errors.As(err, &leaving) {
				return fmt.Errorf("the text %q is not known: after %v %s", text, most, leaving.fact())
			}
			if wanted {
				return fmt.Errorf("the text %q did not appear within %v", text, most)
			}
			return fmt.Errorf("the text %q was still there after %v", text, most)
		}
		select {
		case <-time.After(min(pause, time.Until(end))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Address is that of the page.
func (t *Tab) Address(context.Context) string { return t.Seen().URL }

// Holds reports whether a function in the page returns something that is true. What it throws is a Thrown.
func (t *elements) Holds(ctx context.Context, function string) (bool, error) {
	value, _, err := t.Evaluate(ctx, function, "")
	switch {
	case isPassing(err):
		return false, nil
	case err == nil && t.Dialog() != "":
		return false, errDialog
	}
	return err == nil && IsTrue(value), err
}

// IsTrue reports whether a value that Evaluate has returned is true in a condition.
func IsTrue(value string) bool {
	return !slices.Contains([]string{"false", "null", "undefined", "0", "-0", "NaN", `""`, "0n", ""}, value) &&
		!strings.HasPrefix(value, "undefined ")
}

// IsLoaded reports whether the page is as far as domcontentloaded or load; or, for idle, loaded and without a request.
func (t *records) IsLoaded(_ context.Context, state string) (bool, error) {
	if err := t.gone(); err != nil {
		return false, err
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	switch {
	case t.dialog != nil:
		return false, errDialog
	case t.isLeaving() || !t.parsed:
		return false, nil
	case state == "domcontentloaded":
		return true, nil
	}
	under := slices.ContainsFunc(t.traffic.all, func(r *Request) bool {
		return !r.Done && r.loader == t.loader && r.Type != "websocket" && r.Type != "eventsource"
	})
	return t.loaded && (state == "load" || !under), nil
}

// HasText reports whether a text is visible in the page.
func (t *frames) HasText(ctx context.Context, text string) (bool, error) {
	p, err := t.firstWith(ctx, "hasText", map[string]any{"want": text})
	return p != nil, err
}
