package firefox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/browse"
)

// ready waits until a target can be acted on, as far as the needs say, and returns where
// it is and how results name it.
func (t *Tab) ready(ctx context.Context, target browse.Target, needs ...string) (p place, at point, what string,
	err error) {
	if p, err = t.locate(ctx, target); err != nil {
		return p, at, "", err
	}
	wants := map[string]bool{}
	for _, n := range needs {
		wants[n] = true
	}
	var got struct {
		X, Y  float64
		Moves bool
		What  string
		Frame int // its number in the frame around it; -1: none
	}
	err = t.b.run(ctx, p.context, "ready", map[string]any{"target": p.find, "needs": wants,
		"ms": browse.ActionTimeout.Milliseconds()}, &got)
	if err != nil {
		return p, at, "", fmt.Errorf("%s: %w", target, err)
	}
	if err = t.usable(ctx, p.context, got.Frame); err != nil {
		return p, at, "", fmt.Errorf("%s: its %w", target, err)
	}
	return p, point{got.X, got.Y, got.Moves}, got.What, nil
}

// usable returns an error if a document's frame, which has a number in the one around it, is inert.
func (t *Tab) usable(ctx context.Context, context string, number int) error {
	for number >= 0 {
		t.b.mu.Lock()
		around, ok := t.b.parents[context]
		t.b.mu.Unlock()
		if !ok {
			return nil
		}
		if err := t.b.run(ctx, around, "usableFrame", map[string]any{"number": number}, &number); err != nil {
			return err
		}
		context = around
	}
	return nil
}

// point is a place in a document's viewport, in CSS pixels.
type point struct {
	x, y  float64
	moves bool // what is there does not stop moving
}

// action is one action of input.performActions.
type action map[string]any

// perform performs actions of the keyboard and the mouse, one after the other, and waits
// for what they cause.
func (t *Tab) perform(ctx context.Context, in string, keys, pointer []action) error {
	since := t.mark()
	if _, err := t.send(ctx, in, keys, pointer); err != nil {
		return err
	}
	return t.settle(ctx, since)
}

// send performs actions. It returns whether they are done: not if they have opened a dialog, or ended the document.
func (t *Tab) send(ctx context.Context, in string, keys, pointer []action) (done bool, err error) {
	sources := []map[string]any{{"type": "key", "id": "keyboard", "actions": keys}}
	if pointer != nil {
		sources = append(sources, map[string]any{"type": "pointer", "id": "mouse", "actions": pointer})
	}
	done, err = t.orDialog(ctx, func() error {
		return t.b.call(ctx, in, "input.performActions", map[string]any{"context": in, "actions": sources}, nil)
	})
	if errors.Is(err, errClosed) || errors.Is(err, errFrameGone) {
		return false, nil // which the action has caused
	}
	return done, err
}

var buttons = map[string]int{"": 0, "left": 0, "middle": 1, "right": 2}

// Click clicks an element, and returns how results name it.
func (t *Tab) Click(ctx context.Context, target browse.Target, o browse.ClickOptions) (string, error) {
	var held []string
	for _, name := range o.Modifiers {
		key, ok := keyCodes[strings.Replace(name, "ControlOrMeta", "Control", 1)]
		if !ok {
			return "", fmt.Errorf("%q is not a modifier: there are Alt, Control, ControlOrMeta, Meta and Shift", name)
		}
		held = append(held, key)
	}
	count := 1
	if o.Double {
		count = 2
	}
	for end := time.Now().Add(browse.ActionTimeout); ; {
		p, at, what, err := t.ready(ctx, target, "point", "hit", "enabled", "watch")
		if err != nil {
			return "", err
		}
		keys, mouse := clickAt(at, buttons[o.Button], count, held)
		if err := t.perform(ctx, p.context, keys, mouse); err != nil {
			return what, err
		}
		hit := ""
		if !at.moves || t.b.run(ctx, p.context, "missed", nil, &hit) != nil || hit == "" {
			return what, nil
		}
		if time.Now().After(end) {
			return what, fmt.Errorf("%s moves: the clicks hit %s, and were kept from it", what, hit)
		}
	}
}

// clickAt returns the actions of some clicks, with keys that are held meanwhile.
func clickAt(at point, button, count int, held []string) (keys, mouse []action) {
	// Both sources have an action in each step.
	step := func(key, move action) { keys, mouse = append(keys, key), append(mouse, move) }
	pause := action{"type": "pause"}
	for _, key := range held {
		step(action{"type": "keyDown", "value": key}, pause)
	}
	step(pause, action{"type": "pointerMove", "x": int(at.x), "y": int(at.y)})
	for range count {
		step(pause, action{"type": "pointerDown", "button": button})
		step(pause, action{"type": "pointerUp", "button": button})
	}
	for _, key := range slices.Backward(held) {
		step(action{"type": "keyUp", "value": key}, pause)
	}
	return keys, mouse
}

// Hover moves the mouse over an element.
func (t *Tab) Hover(ctx context.Context, target browse.Target) (string, error) {
	p, at, what, err := t.ready(ctx, target, "point", "hit")
	if err != nil {
		return "", err
	}
	return what, t.perform(ctx, p.context, []action{},
		[]action{{"type": "pointerMove", "x": int(at.x), "y": int(at.y)}})
}

// Scroll scrolls.
func (t *Tab) Scroll(ctx context.Context, o browse.ScrollOptions) (s browse.Scrolled, err error) {
	at, find := t.id, any(nil)
	if o.Target != "" {
		p, _, _, err := t.ready(ctx, o.Target)
		if err != nil {
			return s, err
		}
		at, find = p.context, p.find
	}
	return s, t.b.run(ctx, at, "scroll", o.ScrollArguments(find), &s)
}

// Choose chooses options of a select, by label or value, and returns the labels.
func (t *Tab) Choose(ctx context.Context, target browse.Target, values []string) (what string, labels []string,
	err error) {
	p, _, what, err := t.ready(ctx, target, "enabled")
	if err != nil {
		return "", nil, err
	}
	since := t.mark()
	err = t.b.run(ctx, p.context, "choose", map[string]any{"target": p.find, "values": values}, &labels)
	if err != nil {
		return "", nil, err
	}
	return what, labels, t.settle(ctx, since)
}

// Check checks or clears a checkbox or a radio button.
func (t *Tab) Check(ctx context.Context, target browse.Target, on bool) (string, error) {
	p, _, what, err := t.ready(ctx, target, "enabled")
	if err != nil {
		return "", err
	}
	var is bool
	state := func() error { return t.b.run(ctx, p.context, "checked", map[string]any{"target": p.find}, &is) }
	if err := state(); err != nil || is == on {
		return what, err
	}
	if _, err := t.Click(ctx, target, browse.ClickOptions{}); err != nil {
		return what, err
	}
	if state() == nil && is != on {
		return what, fmt.Errorf("%s was clicked, and is as it was before", what)
	}
	return what, nil
}

// AwaitText waits until a text is visible in the page, or, if not wanted, until it is
// not.
func (t *Tab) AwaitText(ctx context.Context, text string, wanted bool, most time.Duration) error {
	for end := time.Now().Add(most); ; {
		seen := false
		for i, at := range t.tree(ctx) {
			var has bool
			err := t.b.run(ctx, at, "hasText", map[string]any{"want": text}, &has)
			if err != nil && i == 0 {
				return err
			}
			seen = seen || has
		}
		switch {
		case seen == wanted:
			return nil
		case time.Now().After(end) && wanted:
			return fmt.Errorf("the text %q did not appear within %v", text, most)
		case time.Now().After(end):
			return fmt.Errorf("the text %q was still there after %v", text, most)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Holds reports whether a function in the page returns something that is true. What it throws is a browse.Thrown.
func (t *Tab) Holds(ctx context.Context, function string) (bool, error) {
	value, _, err := t.Evaluate(ctx, function, "")
	if isLost(err) { // the document that has come in its place is asked the next time
		return false, nil
	}
	if err == nil && t.Dialog() != "" {
		return false, errors.New("a dialog is open")
	}
	return err == nil && browse.IsTrue(value), err
}

// IsLoaded reports whether the page is as far as domcontentloaded or load.
func (t *Tab) IsLoaded(ctx context.Context, state string) (loaded bool, err error) {
	switch {
	case state == "idle":
		return false, errors.New("what Firefox requests is not known: load is load or domcontentloaded there")
	case t.State(ctx).Leaving != "":
		return false, nil
	case state == "domcontentloaded":
		return t.Holds(ctx, "document.readyState !== 'loading'")
	}
	return t.Holds(ctx, "document.readyState === 'complete'")
}

// Screenshot is a picture of the viewport, the whole page or an element.
func (t *Tab) Screenshot(ctx context.Context, o browse.ScreenshotOptions) (s browse.Screenshot, err error) {
	mime := "image/" + o.Type
	params := map[string]any{"context": t.id, "format": map[string]string{"type": mime}}
	if o.Model { // its size is read below
		delete(params, "format")
	}
	s.What = "viewport"
	switch {
	case o.Target != "":
		s.What = string(o.Target)
		p, element, err := t.element(ctx, o.Target)
		if err != nil {
			return s, err
		}
		params["context"] = p.context
		params["clip"] = map[string]any{"type": "element", "element": map[string]string{"sharedId": element}}
	case o.FullPage:
		s.What = "full page"
		params["origin"] = "document"
	}
	var got struct{ Data []byte }
	if err := t.b.call(ctx, t.id, "browsingContext.captureScreenshot", params, &got); err != nil {
		return s, fmt.Errorf("cannot take a picture: %w", err)
	}
	s.Data = got.Data
	if !o.Model {
		return s, nil
	}
	w, h := sizeOfPNG(got.Data)
	less, note := browse.ScaleDown(w, h, true)
	if note == "" && o.Type == "png" {
		return s, nil
	}
	s.Note = note
	err = t.b.run(ctx, t.id, "scale", map[string]any{"data": got.Data, "type": mime, "by": less}, &s.Data)
	if err != nil {
		return s, fmt.Errorf("cannot convert the picture: %w", err)
	}
	return s, nil
}

// sizeOfPNG is the width and the height of a picture, as its header has them; 0: it is none.
func sizeOfPNG(data []byte) (width, height float64) {
	if len(data) < 24 || string(data[12:16]) != "IHDR" {
		return 0, 0
	}
	return float64(binary.BigEndian.Uint32(data[16:])), float64(binary.BigEndian.Uint32(data[20:]))
}
