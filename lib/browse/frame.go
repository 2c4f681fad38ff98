package browse

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	proto "github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/page"

	"btools/lib/lazy"
)

// frame is a document's place: a tab, or a frame in one.
type frame struct {
	tab    *frames
	target *target // whose session reaches it
	id     string
	parent *frame // nil: it is the tab itself
}

var (
	//go:embed scripts/roles.js
	rolesScript string
	//go:embed scripts/page.js
	pageScript string
	//go:embed scripts/snapshot.js
	snapshotScript string
	//go:embed scripts/find.js
	findScript string
	//go:embed scripts/text.js
	textScript string
	//go:embed scripts/pick.js
	pickScript string
	//go:embed scripts/storage.js
	storageScript string
	//go:embed scripts/verify.js
	verifyScript string
	//go:embed scripts/inert.js
	inertScript string
	//go:embed scripts/moving.js
	movingScript string
	//go:embed scripts/typing.js
	typingScript string
	//go:embed scripts/act.js
	actScript string

	// Scripts are what is loaded into a world of its own in each document: btools.run calls one of its functions by
	// name. Browsers of all kinds run them.
	Scripts = sync.OnceValue(func() string {
		return "globalThis.btools || (() => {\n" + rolesScript + pageScript + snapshotScript + findScript + textScript +
			pickScript + storageScript + verifyScript + inertScript + movingScript + typingScript +
			actScript + "})(); 0"
	})

	// askPage needs no other script: those are 90 kB that many a document never needs.
	askPage = sync.OnceValue(func() string { return "(() => {\n" + pageScript + "return { value: page() }\n})()" })
)

// worldName names the isolated world of our scripts: the page's own cannot see or
// change it.
const worldName = "btools"

// frames are the documents of a tab, and what our scripts tell of them.
type frames struct {
	*link
}

func (t *frames) mainFrame() *frame { return &frame{tab: t, target: t.main, id: t.main.id} }

// world is an execution context of ours.
type world struct {
	id     int
	loaded bool // our scripts are in it
}

// empty returns the execution context of ours in a frame. Our scripts may not be in it.
func (f *frame) empty(ctx context.Context) (world, error) {
	b := f.tab.b
	b.mu.Lock()
	w, ok := f.target.worlds[f.id]
	b.mu.Unlock()
	if ok {
		return w, nil
	}
	made, err := do(ctx, f.tab.link, f.target.session, page.CreateIsolatedWorld,
		page.CreateIsolatedWorldParams{FrameID: proto.FrameID(f.id), WorldName: worldName})
	if err != nil {
		return world{}, err
	}
	w.id = int(made.ExecutionContextID)
	b.mu.Lock()
	f.target.worlds[f.id] = w
	b.mu.Unlock()
	return w, nil
}

// world returns the execution context of our scripts in a frame, which have been loaded.
func (f *frame) world(ctx context.Context) (world, error) {
	w, err := f.empty(ctx)
	if err != nil || w.loaded {
		return w, err
	}
	var got evaluated
	err = f.tab.call(ctx, f.target.session, "Runtime.evaluate",
		map[string]any{"expression": Scripts(), "contextId": w.id}, &got)
	if err = errors.Join(err, got.err()); err != nil {
		return world{}, err
	}
	f.tab.b.mu.Lock()
	defer f.tab.b.mu.Unlock()
	w.loaded = true
	f.target.worlds[f.id] = w
	return w, nil
}

// evaluate evaluates an expression in the world of our scripts. If the document has
// just been replaced, it does so in the new one.
func (f *frame) evaluate(ctx context.Context, expression string, byValue bool) (remote, error) {
	return f.evaluateIf(ctx, f.world, metBy(nil), expression, byValue)
}

// metBy returns the condition of a document in which something is found: by a selector, or by a ref, which is of one.
func metBy(find any) func(context.Context) error {
	if _, ok := find.(string); ok {
		return Strayed
	}
	return func(context.Context) error { return nil }
}

// evaluateIf is evaluate in a context as long as a condition is met by the document in which it evaluates.
func (f *frame) evaluateIf(ctx context.Context, in func(context.Context) (world, error),
	met func(context.Context) error, expression string, byValue bool) (remote, error) {
	for try := 0; ; try++ {
		w, err := in(ctx)
		var got evaluated
		if err == nil {
			err = met(ctx)
		}
		if err == nil {
			err = f.tab.call(ctx, f.target.session, "Runtime.evaluate", map[string]any{"expression": expression,
				"contextId": w.id, "awaitPromise": true, "returnByValue": byValue, "userGesture": true}, &got)
		}
		if err == nil {
			return got.Result, got.err()
		}
		if !isLost(err) || try == 5 {
			return remote{}, err
		}
		f.tab.b.mu.Lock()
		delete(f.target.worlds, f.id)
		f.tab.b.mu.Unlock()
		select {
		case <-time.After(time.Duration(try) * 10 * time.Millisecond):
		case <-ctx.Done():
			return remote{}, context.Cause(ctx)
		}
	}
}

// noting returns what keeps what the page says of itself, unless it has another document by then.
func (t *frames) noting() func(Shown) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	loader := t.loader
	return func(now Shown) {
		t.b.mu.Lock()
		defer t.b.mu.Unlock()
		if t.loader == loader {
			t.title, t.url = now.Title, now.URL
		}
	}
}

// run calls a function of our scripts in a frame, for a bounded time.
func (t *frames) run(ctx context.Context, f *frame, name string, args map[string]any, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	got, err := f.evaluateIf(ctx, f.world, metBy(args["target"]), fmt.Sprintf("btools.run(%q,%s)", name, raw), true)
	if err != nil {
		return err
	}
	return answered(got.Value, result)
}

// answered decodes what a function of our scripts has returned, or its fault.
func answered(raw json.RawMessage, result any) error {
	var answer struct {
		Value json.RawMessage
		Fault string
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("cannot read the page's answer: %w", err)
	}
	if answer.Fault != "" {
		return errors.New(answer.Fault)
	}
	if result == nil || answer.Value == nil {
		return nil
	}
	return json.Unmarshal(answer.Value, result)
}

// Same reports whether it is the same place.
func (f *frame) Same(other *frame) bool { return f.id == other.id && f.tab == other.tab }

// Around is the frame around it, nil if it is the tab itself.
func (f *frame) Around() *frame { return f.parent }

// Mute reports whether it is of another site and has not answered the latest question.
func (f *frame) Mute() bool {
	return f.target != f.tab.main && f.tab.patience(f.target.session) != answering
}

// Inner is the frame in an iframe element of a frame, nil if it has none.
func (f *frame) Inner(ctx context.Context, ref int) (*frame, error) {
	object, err := f.evaluate(ctx, fmt.Sprintf("btools.api.element({target:%d})", ref), false)
	if err != nil || object.ObjectID == "" {
		return nil, err
	}
	defer f.tab.b.conn.Begin(f.target.session, "Runtime.releaseObject", map[string]string{"objectId": object.ObjectID},
		nil)
	var described struct{ Node struct{ FrameID string } }
	err = f.tab.call(ctx, f.target.session, "DOM.describeNode", map[string]any{"objectId": object.ObjectID}, &described)
	if err != nil || described.Node.FrameID == "" {
		return nil, err
	}
	return f.tab.frameOf(described.Node.FrameID, f), nil
}

// frameOf is the frame with an ID, in another one.
func (t *frames) frameOf(id string, parent *frame) *frame {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	f := &frame{tab: t, target: parent.target, id: id, parent: parent}
	if i := slices.IndexFunc(t.parts, func(p *target) bool { return p.id == id }); i >= 0 {
		f.target = t.parts[i]
	}
	return f
}

// frameTree is the answer to Page.getFrameTree.
type frameTree struct {
	Frame       struct{ ID, ParentID string }
	ChildFrames []frameTree
}

// allFrames are the tab's frames, outer ones first.
func (t *frames) allFrames(ctx context.Context) ([]*frame, error) {
	all := []*frame{t.mainFrame()}
	known := func(id string) *frame {
		i := slices.IndexFunc(all, func(f *frame) bool { return f.id == id })
		if i < 0 {
			return nil
		}
		return all[i]
	}
	t.b.mu.Lock()
	targets := []*target{t.main}
	for _, part := range t.parts {
		if part.patience == answering {
			targets = append(targets, part)
		}
	}
	t.b.mu.Unlock()
	trees := make([]struct{ FrameTree frameTree }, len(targets))
	var err error // of the page itself: a part may have gone meanwhile, or not answer
	var asked sync.WaitGroup
	for i, tg := range targets {
		asked.Go(func() {
			if e := t.call(ctx, tg.session, "Page.getFrameTree", nil, &trees[i]); i == 0 {
				err = e
			}
		})
	}
	asked.Wait()
	if err != nil {
		return nil, err
	}
	for i, tg := range targets {
		tree := trees[i].FrameTree
		var add func(tree frameTree)
		add = func(tree frameTree) {
			parent := known(tree.Frame.ParentID)
			if parent != nil && known(tree.Frame.ID) == nil {
				all = append(all, &frame{tab: t, target: tg, id: tree.Frame.ID, parent: parent})
			}
			for _, child := range tree.ChildFrames {
				add(child)
			}
		}
		add(tree)
	}
	return all, nil
}

// origin is where a frame's document begins in the tab's viewport, in CSS pixels.
func (f *frame) origin(ctx context.Context) (x, y float64, err error) {
	for ; f.parent != nil; f = f.parent {
		owner, err := f.owner(ctx)
		if err != nil {
			return 0, 0, err
		}
		var box struct{ Model struct{ Content []float64 } }
		err = f.tab.call(ctx, f.parent.target.session, "DOM.getBoxModel", map[string]int{"backendNodeId": owner}, &box)
		if err != nil || len(box.Model.Content) < 2 {
			return 0, 0, errors.Join(err, errors.New("the frame is not visible"))
		}
		x, y = x+box.Model.Content[0], y+box.Model.Content[1]
		for f.parent.parent != nil && f.parent.target == f.parent.parent.target { // the box was in its outermost one
			f = f.parent
		}
	}
	return x, y, nil
}

// owner is the node of a frame's iframe element.
func (f *frame) owner(ctx context.Context) (int, error) {
	owner, err := do(ctx, f.tab.link, f.parent.target.session, dom.GetFrameOwner,
		dom.GetFrameOwnerParams{FrameID: proto.FrameID(f.id)})
	return int(owner.BackendNodeID), err
}

// Target is what an agent names an element by: a ref of a snapshot or a selector.
type Target string

var refRule = lazy.Regexp(`^(?:f([1-9]\d{0,8}))?e([1-9]\d{0,8})$`)

// Ref returns the numbers of a target that is a ref of a snapshot: of its frame, 0 for
// the page itself, and of the element.
func (t Target) Ref() (frame, element int, ok bool) {
	m := refRule().FindStringSubmatch(string(t))
	if m == nil {
		return 0, 0, false
	}
	frame, _ = strconv.Atoi(m[1])
	element, _ = strconv.Atoi(m[2])
	return frame, element, true
}
