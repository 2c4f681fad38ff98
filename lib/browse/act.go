package browse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"btools/lib/cdp/wire"
)

// elements are what an agent acts on.
type elements struct {
	*input
	Elements[*frame]
	chooser  *Chooser // of files; nil: none is open
	unserved bool     // the page has asked for a file in a way that nobody can serve
}

// newElements returns the elements of a tab.
func newElements(i *input) *elements {
	return &elements{input: i, Elements: NewElements(Engine[*frame]{Refs: &i.b.refs, Of: i.b.of, Gone: i.gone,
		Main: i.mainFrame, All: i.allFrames, Has: func(f *frame) bool { return f != nil && f.tab == i.frames },
		Run: i.run, Noting: i.noting, Passing: isPassing, Caused: isCaused,
		Watch: func() func(context.Context) error {
			since := i.mark()
			return func(ctx context.Context) error { return i.settle(ctx, since) }
		},
		At: i.inTab, Clicks: i.clicks,
		Hover: func(ctx context.Context, f Found[*frame]) error {
			return i.act(ctx, mouse("mouseMoved", f.At, "none", 0, 0, 0))
		},
		Fill: i.fill, TypeKeys: i.typeKeys, EndTyping: i.endTyping})}
}

// inTab returns where a point of a frame is in the tab.
func (t *input) inTab(ctx context.Context, f *frame, in Point) (Point, error) {
	x, y, err := f.origin(ctx)
	return Point{in.X + x, in.Y + y}, err
}

// clicks returns what clicks an element, and waits for what that causes, such as the file of a link to one.
func (t *input) clicks(o ClickOptions) (func(ctx context.Context, f Found[*frame]) error, error) {
	bits, err := modifiers(o.Modifiers)
	count := 1
	if o.Double {
		count = 2
	}
	return func(ctx context.Context, f Found[*frame]) error {
		since := t.mark()
		err := t.act(ctx, click(f.At, cmp.Or(o.Button, "left"), count, bits)...)
		if err == nil && f.Downloads {
			err = t.settleDownload(ctx, since)
		}
		return err
	}, err
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

// Drag drags an element to another one with the mouse. What the page makes draggable
// by HTML is dragged as the browser does it.
func (t *elements) Drag(ctx context.Context, from, to Target) (what, onto string, err error) {
	a, err := t.Ready(ctx, from, forDrag)
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
	err = t.inputs(ctx, mouse("mouseMoved", a.At, "none", 0, 0, 0), mouse("mousePressed", a.At, "left", 1, 1, 0))
	if err != nil {
		return "", "", err
	}
	z, err := t.Ready(ctx, to, forDrop)
	if err != nil {
		t.inputs(ctx, mouse("mouseReleased", a.At, "left", 0, 1, 0))
		return "", "", err
	}
	const steps = 5
	for n := 1; n <= steps; n++ {
		k := float64(n) / steps
		at := Point{a.At.X + (z.At.X-a.At.X)*k, a.At.Y + (z.At.Y-a.At.Y)*k}
		if math.Abs(z.At.X-a.At.X)+math.Abs(z.At.Y-a.At.Y) < steps {
			at.X += float64(n % 2)
		}
		if err := t.moveDragging(ctx, at); err != nil {
			return "", "", err
		}
	}
	if err := t.moveDragging(ctx, z.At); err != nil {
		return "", "", err
	}
	t.b.mu.Lock()
	data := t.dragged
	t.b.mu.Unlock()
	if data != nil {
		err = t.inputs(ctx, dragEvent("drop", z.At, data), mouse("mouseReleased", z.At, "left", 0, 1, 0))
	} else {
		err = t.inputs(ctx, mouse("mouseReleased", z.At, "left", 0, 1, 0))
	}
	if err != nil && !isCaused(err) {
		return "", "", err
	}
	return a.What, z.What, t.settle(ctx, since)
}

// moveDragging moves the mouse with its button pressed, and with it what is dragged.
func (t *input) moveDragging(ctx context.Context, at Point) error {
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

func dragEvent(kind string, at Point, data json.RawMessage) inputEvent {
	return inputEvent{"Input.dispatchDragEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "data": data}}
}

// Drop drops data and files from outside the page onto an element.
func (t *elements) Drop(ctx context.Context, target Target, data map[string]string, files []string) (string, error) {
	f, err := t.Ready(ctx, target, forDrop)
	if err != nil {
		return "", err
	}
	if len(files) > 0 {
		return f.What, t.dropFiles(ctx, f, data, files)
	}
	items := []map[string]string{}
	for mime, value := range data {
		items = append(items, map[string]string{"mimeType": mime, "data": value})
	}
	raw, err := json.Marshal(map[string]any{"items": items, "dragOperationsMask": 1})
	if err != nil {
		return "", err
	}
	return f.What, t.act(ctx, dragEvent("dragEnter", f.At, raw), dragEvent("dragOver", f.At, raw),
		dragEvent("drop", f.At, raw))
}

// dropFiles drops files, which no input event can in a browser with several sessions:
// a page that does not take a file would be left for that file. The files are put into
// an input of ours, and the page gets the events of a drop with them.
func (t *elements) dropFiles(ctx context.Context, f Found[*frame], data map[string]string, files []string) error {
	input, err := f.Frame.evaluate(ctx, "btools.api.takeFiles()", false)
	if err != nil {
		return err
	}
	session, object := f.Frame.target.session, map[string]string{"objectId": input.ObjectID}
	defer t.b.conn.Begin(session, "Runtime.releaseObject", object, nil)
	err = t.call(ctx, session, "DOM.setFileInputFiles", map[string]any{"files": files, "objectId": input.ObjectID}, nil)
	if err != nil {
		return err
	}
	since := t.mark()
	err = t.run(ctx, f.Frame, "drop",
		map[string]any{"target": f.Find, "x": f.InFrame.X, "y": f.InFrame.Y, "data": data}, nil)
	if err != nil && !isCaused(err) {
		return err
	}
	return t.settle(ctx, since)
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
