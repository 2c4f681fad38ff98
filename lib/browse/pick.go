package browse

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Picked is an element that a person has chosen.
type Picked struct {
	// Selector matches nothing else. It is a ref if only that tells the element from one
	// in another frame.
	Selector string `json:"selector"`
	Text     string `json:"text"`
	Box      Box    `json:"box"`

	What string `json:"-"` // as results name it
}

// Box is where an element is in the viewport, in CSS pixels.
type Box struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
}

// picking is a choice that has not been made yet.
type picking struct {
	on       map[*target]int // the targets that take it, and the tab's navigations then
	by       *target         // in which an element was chosen; nil: none yet
	node     int
	canceled bool
}

// picker has a person choose an element.
type picker struct {
	*elements
	picking *picking // nil: none is to be chosen
}

// released is how long a person keeps the button of a mouse pressed.
const released = 300 * time.Millisecond

// Errors of a choice.
var (
	ErrNotPicked = errors.New("nobody has chosen an element")
	errCanceled  = errors.New("the person has cancelled the choice with Escape")
)

// highlight is how DevTools shows the element under the mouse.
var highlight = map[string]any{"showInfo": true, "contentColor": map[string]any{"r": 111, "g": 168, "b": 220, "a": 0.5},
	"borderColor": map[string]any{"r": 255, "g": 140, "b": 0, "a": 0.9}}

// inspect has a page choose an element at the next click, which DevTools takes from the
// page together with all other input of the mouse, or ends that.
func inspect(on bool) map[string]any {
	if on {
		return map[string]any{"mode": "searchForNode", "highlightConfig": highlight}
	}
	return map[string]any{"mode": "none", "highlightConfig": highlight}
}

// Pick has a person choose an element of the tab by a click in the browser's window.
// The page is not told of it. ErrNotPicked: it has not happened in that time.
func (t *picker) Pick(ctx context.Context, most time.Duration) (*Picked, error) {
	if err := t.gone(); err != nil {
		return nil, err
	}
	session := t.main.session
	for _, c := range []struct {
		method string
		params any
	}{{"Page.bringToFront", nil}, {"DOM.enable", nil}, {"Overlay.enable", nil},
		{"Overlay.setInspectMode", inspect(true)}} {
		if err := t.call(ctx, session, c.method, c.params, nil); err != nil {
			return nil, err
		}
	}
	t.b.mu.Lock()
	p := &picking{on: map[*target]int{t.main: t.navigations}}
	t.picking = p
	t.b.mu.Unlock()
	defer t.endPicking(p)
	wait, cancel := context.WithTimeoutCause(ctx, most, ErrNotPicked)
	defer cancel()
	err := t.b.wait(wait, func() bool {
		t.inspectLocked(p)
		return p.by != nil || p.canceled || t.closed || t.crashed || t.dialog != nil
	})
	if err == nil {
		err = t.gone()
	}
	switch {
	case err != nil:
		return nil, err
	case p.canceled:
		return nil, errCanceled
	case p.by == nil:
		return nil, errDialog
	}
	select { // the end of the click is not the page's either
	case <-time.After(released):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return t.picked(ctx, p)
}

// inspectLocked has frames of other sites take part, and new documents.
func (t *picker) inspectLocked(p *picking) {
	for _, part := range append([]*target{t.main}, t.parts...) {
		if n, ok := p.on[part]; ok && n == t.navigations {
			continue
		}
		p.on[part] = t.navigations
		t.b.conn.Begin(part.session, "DOM.enable", nil, nil)
		t.b.conn.Begin(part.session, "Overlay.enable", nil, nil)
		t.b.conn.Begin(part.session, "Overlay.setInspectMode", inspect(true), nil)
	}
}

func (t *picker) endPicking(p *picking) {
	t.b.mu.Lock()
	t.picking = nil
	t.b.mu.Unlock()
	for part := range p.on {
		t.b.conn.Begin(part.session, "Overlay.setInspectMode", inspect(false), nil)
		t.b.conn.Begin(part.session, "Overlay.disable", nil, nil)
		t.b.conn.Begin(part.session, "DOM.disable", nil, nil)
	}
}

// picked describes the element that was chosen.
func (t *picker) picked(ctx context.Context, p *picking) (*Picked, error) {
	frames, err := t.allFrames(ctx)
	if err != nil {
		return nil, err
	}
	for i, f := range frames {
		if f.target != p.by {
			continue
		}
		w, err := f.world(ctx)
		if err != nil {
			continue // it has gone meanwhile
		}
		var resolved struct{ Object remote }
		err = t.call(ctx, p.by.session, "DOM.resolveNode",
			map[string]any{"backendNodeId": p.node, "executionContextId": w.id}, &resolved)
		if err != nil || resolved.Object.ObjectID == "" {
			continue // it is in another frame, as below
		}
		if picked, err := t.identify(ctx, f, frames[:i], resolved.Object.ObjectID); err != nil || picked != nil {
			return picked, err
		}
	}
	return nil, errors.New("the element that was chosen is not in the page any more")
}

// identify describes an element of a frame, nil if it is one of another frame. Its
// selector matches nothing in the frames that are searched before.
func (t *picker) identify(ctx context.Context, f *frame, before []*frame, object string) (*Picked, error) {
	defer t.b.conn.Begin(f.target.session, "Runtime.releaseObject", map[string]string{"objectId": object}, nil)
	refs := &t.b.refs
	var answer struct {
		Value *struct {
			Picked
			What, Ref string
			Selectors []string
			Next      int
		}
		Fault string
	}
	var got struct {
		Result           struct{ Value any }
		ExceptionDetails *exception
	}
	got.Result.Value = &answer
	err := t.call(ctx, f.target.session, "Runtime.callFunctionOn", map[string]any{"objectId": object,
		"functionDeclaration": "function (args) { return btools.run('identify', { el: this, ...args }) }",
		"arguments": []any{map[string]any{"value": map[string]any{"next": refs.number(),
			"prefix": refs.prefix(f)}}},
		"awaitPromise": true, "returnByValue": true}, &got)
	switch {
	case err != nil:
		return nil, err
	case got.ExceptionDetails != nil:
		return nil, got.ExceptionDetails
	case answer.Fault != "":
		return nil, errors.New(answer.Fault)
	case answer.Value == nil:
		return nil, nil
	}
	v := answer.Value
	refs.used(v.Next)
	p := &v.Picked
	p.What, p.Selector = v.What, v.Ref
	for _, s := range v.Selectors {
		if t.matchesNone(ctx, before, s) {
			p.Selector = s
			break
		}
	}
	x, y, err := f.origin(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.What, err)
	}
	p.Box.X, p.Box.Y = p.Box.X+x, p.Box.Y+y
	return p, nil
}

// matchesNone reports whether a selector matches nothing in these frames.
func (t *picker) matchesNone(ctx context.Context, frames []*frame, selector string) bool {
	for _, f := range frames {
		var n int
		if err := t.run(ctx, f, "count", map[string]any{"target": selector}, &n); err != nil && !isLost(err) || n > 0 {
			return false
		}
	}
	return true
}
