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
	number int    // in refs, such as f1e2; 0: the tab itself
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

	agentScript = sync.OnceValue(func() string {
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
	refs *refs
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
		map[string]any{"expression": agentScript(), "contextId": w.id}, &got)
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

// refs are what a snapshot has given elements and frames as names, in all tabs.
type refs struct {
	frames []*frame // that have had a number, from 1
	next   int      // number of an element
}

// numbered gives a frame the number that it has in refs.
func (t *frames) numbered(f *frame) *frame {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	r := t.refs
	i := slices.IndexFunc(r.frames, func(old *frame) bool { return old.id == f.id && old.tab == f.tab })
	if i >= 0 {
		f.number = i + 1
		r.frames[i] = f
		return f
	}
	r.frames = append(r.frames, f)
	f.number = len(r.frames)
	return f
}

// prefix is what the refs of a frame begin with.
func (f *frame) prefix() string {
	if f.number == 0 {
		return ""
	}
	return "f" + strconv.Itoa(f.number)
}

// inner is the frame in an iframe element of a frame, nil if it has none.
func (f *frame) inner(ctx context.Context, ref int) (*frame, error) {
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
	return f.tab.numbered(f.tab.frameOf(described.Node.FrameID, f)), nil
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

// place is an element's frame, and how our scripts find it there: by the number of
// a ref or by a selector.
type place struct {
	frame *frame
	find  any
}

// locate finds the frame of a target. It waits until a selector matches something.
func (t *frames) locate(ctx context.Context, target Target) (place, error) {
	if m := refRule().FindStringSubmatch(string(target)); m != nil {
		n, _ := strconv.Atoi(m[2])
		i, _ := strconv.Atoi(m[1])
		t.b.mu.Lock()
		defer t.b.mu.Unlock()
		if n >= t.refs.next {
			return place{}, fmt.Errorf("there is no ref %s: take a new browser_snapshot", target)
		}
		if m[1] == "" {
			return place{t.mainFrame(), n}, nil
		}
		if i > len(t.refs.frames) || t.refs.frames[i-1].tab != t {
			return place{}, fmt.Errorf("there is no ref %s in this tab: take a new browser_snapshot", target)
		}
		return place{t.refs.frames[i-1], n}, nil
	}
	end := time.Now().Add(t.b.of(ActionTimeout))
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		f, err := t.firstWith(ctx, "count", map[string]any{"target": string(target)})
		switch late := time.Now().After(end); {
		case f != nil:
			return place{f, string(target)}, nil
		case err != nil && (late || !isPassing(err)):
			return place{}, err
		case late:
			return place{}, fmt.Errorf("nothing matches %q: within %v no element appeared", target,
				t.b.of(ActionTimeout))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return place{}, context.Cause(ctx)
		}
	}
}

// firstWith is the first frame of which a function of our scripts says something else
// than 0 or false, nil if it is none. A frame of another site that does not answer has
// nothing.
func (t *frames) firstWith(ctx context.Context, name string, args map[string]any) (*frame, error) {
	all, err := t.allFrames(ctx)
	if err != nil {
		return nil, err
	}
	for i, f := range all {
		if f.target != t.main && t.patience(f.target.session) != answering {
			continue
		}
		var got any
		err := t.run(ctx, f, name, args, &got)
		if err == nil && got != 0.0 && got != false {
			return f, nil
		}
		if err != nil && (i == 0 || ctx.Err() != nil) {
			return nil, err
		}
	}
	return nil, nil
}
