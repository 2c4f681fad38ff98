package browse

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Type fills an editable element with text, or, slowly, types it one key at a time
// after what is there. With submit it presses Enter afterwards. It returns how results name
// the element, and what that has made of the text, and sends nothing to another element.
func (e *Elements[F]) Type(ctx context.Context, target Target, text string, slowly, submit bool) (what string,
	err error) {
	f, err := e.Ready(ctx, target, forFill)
	if err != nil {
		return "", err
	}
	run := func(script string, args map[string]any, result any) error {
		return e.on.Run(ctx, f.Frame, script, args, result)
	}
	at, text, err := resolved(ctx, lines(text), slowly, func(name string, origin *string) error {
		return run(name, map[string]any{"target": f.Find}, origin)
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", target, err)
	}
	settle := e.on.Watch()
	defer func() {
		if err != nil {
			e.on.EndTyping(f.Frame)
		}
	}()
	if !slowly {
		err = e.on.Fill(ctx, f, text, at)
	} else if err = run("focus", map[string]any{"target": f.Find}, nil); err == nil {
		err = e.on.TypeKeys(ctx, f.Frame, text)
	}
	var became string
	if err == nil {
		err = run("typed", map[string]any{"value": text, "enter": submit, "secret": at != ""}, &became)
	}
	if err == nil && submit {
		if err = e.on.TypeKeys(ctx, f.Frame, "\n"); err == nil {
			err = run("entered", nil, nil)
		}
	}
	if err != nil && !e.on.Caused(err) {
		return "", err
	}
	return f.What + became, settle(ctx)
}

type resolvingKey struct{}

// Resolving returns a context for a call whose texts are resolved for the origin at which they are typed.
func Resolving(ctx context.Context, resolve func(text, origin string) (string, error)) context.Context {
	return context.WithValue(ctx, resolvingKey{}, resolve)
}

// resolved returns a text as it is to be typed, and the origin of the document that it is for; "": any. Run runs a
// script in that document. Slowly is that it would be typed by keys, which go to whatever has the focus: a page could
// move that to a document of another origin.
func resolved(ctx context.Context, text string, slowly bool, run func(name string, origin *string) error) (origin,
	typed string, err error) {
	resolve, ok := ctx.Value(resolvingKey{}).(func(text, origin string) (string, error))
	if !ok || !strings.Contains(text, "{{") {
		return "", text, nil
	}
	if err = run("originOf", &origin); err == nil {
		typed, err = resolve(text, origin)
	}
	if err == nil && slowly && typed != text {
		err = errors.New("a secret is typed as a whole, and nothing was typed: leave out slowly")
	}
	return origin, lines(typed), err
}

// lines returns a text whose lines end as those of fields do.
func lines(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// endTyping has a document let all keys through again. It does not wait for that.
func (t *input) endTyping(f *frame) {
	t.b.mu.Lock()
	w, ok := f.target.worlds[f.id]
	t.b.mu.Unlock()
	if ok && w.loaded {
		t.begin(f.target.session, "Runtime.evaluate",
			map[string]any{"expression": "btools.api.endTyping()", "contextId": w.id})
	}
}

// typeKeys types a text one key at a time, as long as the field has the focus.
func (t *input) typeKeys(ctx context.Context, f *frame, text string) error {
	all := []rune(text)
	for n, r := range all {
		name := string(r)
		if r == '\n' {
			name = "Enter"
		}
		events, err := press(name)
		if err == nil && n > 0 {
			err = t.run(ctx, f, "keeps", nil, nil)
		}
		if err == nil {
			if err = t.inputs(ctx, events...); n == len(all)-1 {
				return err
			}
		}
		if isCaused(err) {
			return fmt.Errorf("not all of the %d characters were typed: %v", len(all), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fill replaces what an element has by text.
func (t *input) fill(ctx context.Context, f Found[*frame], text, origin string) error {
	var insert bool
	err := t.run(ctx, f.Frame, "fill", map[string]any{"target": f.Find, "value": text, "origin": origin,
		"insert": origin != ""}, &insert) // in the same document
	if err != nil || !insert {
		return err
	}
	if text == "" {
		empty, _ := press("Delete") // which there is
		return t.inputs(ctx, empty...)
	}
	return t.inputs(ctx, inputEvent{"Input.insertText", map[string]string{"text": text}})
}

// Press presses a key, or several: Control+a.
func (t *input) Press(ctx context.Context, combination string) error {
	if err := t.gone(); err != nil {
		return err
	}
	events, err := press(combination)
	if err != nil {
		return err
	}
	return t.act(ctx, events...)
}
