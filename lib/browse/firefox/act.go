package firefox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"btools/lib/browse"
)

// action is one action of input.performActions.
type action map[string]any

// perform performs actions of the keyboard and the mouse, one after the other, and waits
// for what they cause.
func (t *Tab) perform(ctx context.Context, in string, keys, pointer []action) error {
	since := t.mark()
	if err := t.send(ctx, in, keys, pointer); err != nil && !isCaused(err) {
		return err
	}
	return t.settle(ctx, since)
}

// send performs actions.
func (t *Tab) send(ctx context.Context, in string, keys, pointer []action) error {
	sources := []map[string]any{{"type": "key", "id": "keyboard", "actions": keys}}
	if pointer != nil {
		sources = append(sources, map[string]any{"type": "pointer", "id": "mouse", "actions": pointer})
	}
	return t.b.call(ctx, in, "input.performActions", map[string]any{"context": in, "actions": sources}, nil)
}

var buttons = map[string]int{"": 0, "left": 0, "middle": 1, "right": 2}

// clicks returns what clicks an element.
func (t *Tab) clicks(o browse.ClickOptions) (func(ctx context.Context, f browse.Found[*frame]) error, error) {
	var held []string
	for _, name := range o.Modifiers {
		key, ok := keyCodes[strings.Replace(name, "ControlOrMeta", "Control", 1)]
		if !ok {
			return nil, fmt.Errorf("%q is not a modifier: there are Alt, Control, ControlOrMeta, Meta and Shift", name)
		}
		held = append(held, key)
	}
	count := 1
	if o.Double {
		count = 2
	}
	return func(ctx context.Context, f browse.Found[*frame]) error {
		keys, mouse := clickAt(f.At, buttons[o.Button], count, held)
		return t.perform(ctx, f.Frame.id, keys, mouse)
	}, nil
}

// clickAt returns the actions of some clicks, with keys that are held meanwhile.
func clickAt(at browse.Point, button, count int, held []string) (keys, mouse []action) {
	// Both sources have an action in each step.
	step := func(key, move action) { keys, mouse = append(keys, key), append(mouse, move) }
	pause := action{"type": "pause"}
	for _, key := range held {
		step(action{"type": "keyDown", "value": key}, pause)
	}
	step(pause, action{"type": "pointerMove", "x": int(at.X), "y": int(at.Y)})
	for range count {
		step(pause, action{"type": "pointerDown", "button": button})
		step(pause, action{"type": "pointerUp", "button": button})
	}
	for _, key := range slices.Backward(held) {
		step(action{"type": "keyUp", "value": key}, pause)
	}
	return keys, mouse
}

// hover moves the mouse over an element.
func (t *Tab) hover(ctx context.Context, f browse.Found[*frame]) error {
	return t.perform(ctx, f.Frame.id, []action{},
		[]action{{"type": "pointerMove", "x": int(f.At.X), "y": int(f.At.Y)}})
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
		params["context"] = p.Frame.id
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
