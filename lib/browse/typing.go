package browse

import "context"

// Type fills an editable element with text, or, slowly, types it one key at a time
// after what is there. With submit it presses Enter afterwards.
func (t *Tab) Type(ctx context.Context, target Target, text string, slowly, submit bool) (string, error) {
	f, err := t.ready(ctx, target, forFill)
	if err != nil {
		return "", err
	}
	since := t.mark()
	if slowly {
		err = t.typeKeys(ctx, f, text)
	} else {
		err = t.fill(ctx, f, text)
	}
	if err == nil && submit {
		var events []inputEvent
		if events, err = press("Enter"); err == nil {
			err = t.inputs(ctx, events...)
		}
	}
	if err != nil && !isCaused(err) {
		return "", err
	}
	return f.what, t.settle(ctx, since)
}

func (t *Tab) typeKeys(ctx context.Context, f found, text string) error {
	if err := t.run(ctx, f.frame, "focus", map[string]any{"target": f.find}, nil); err != nil {
		return err
	}
	for _, r := range text {
		name := string(r)
		if r == '\n' {
			name = "Enter"
		}
		events, err := press(name)
		if err != nil {
			return err
		}
		if err := t.inputs(ctx, events...); err != nil {
			return err
		}
	}
	return nil
}

// fill replaces what an element has by text.
func (t *Tab) fill(ctx context.Context, f found, text string) error {
	var insert bool
	err := t.run(ctx, f.frame, "fill", map[string]any{"target": f.find, "value": text}, &insert)
	if err != nil || !insert {
		return err
	}
	if text == "" {
		events, err := press("Delete")
		if err != nil {
			return err
		}
		return t.inputs(ctx, events...)
	}
	return t.inputs(ctx, inputEvent{"Input.insertText", map[string]string{"text": text}})
}

// Press presses a key, or several: Control+a.
func (t *Tab) Press(ctx context.Context, combination string) error {
	if err := t.gone(); err != nil {
		return err
	}
	events, err := press(combination)
	if err != nil {
		return err
	}
	return t.act(ctx, events...)
}
