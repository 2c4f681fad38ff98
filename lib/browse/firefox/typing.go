package firefox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"btools/lib/browse"
)

// Type fills an editable element with text, or, slowly, types it one key at a time
// after what is there. With submit it presses Enter afterwards.
func (b *Browser) Type(ctx context.Context, target browse.Target, text string, slowly, submit bool) (string, error) {
	p, _, what, err := b.ready(ctx, target, "enabled", "editable")
	if err != nil {
		return "", err
	}
	args := map[string]any{"target": p.find, "value": text}
	if slowly {
		if err = b.run(ctx, p.context, "focus", args, nil); err == nil {
			err = b.perform(ctx, p.context, typed(text), nil)
		}
	} else {
		err = b.fill(ctx, p, args, text)
	}
	if err == nil && submit {
		err = b.perform(ctx, p.context, typed("\n"), nil)
	}
	return what, err
}

func (b *Browser) fill(ctx context.Context, p place, args map[string]any, text string) error {
	var insert bool
	if err := b.run(ctx, p.context, "fill", args, &insert); err != nil || !insert {
		return err
	}
	raw, err := json.Marshal(text)
	if err != nil {
		return err
	}
	command := "'insertText', false, " + string(raw)
	if text == "" {
		command = "'delete'"
	}
	_, err = b.script(ctx, p.context, "document.execCommand("+command+")")
	return err
}

// typed are the actions that type a text.
func typed(text string) (all []action) {
	for _, r := range text {
		key := string(r)
		if r == '\n' {
			key = keyCodes["Enter"]
		}
		all = append(all, action{"type": "keyDown", "value": key}, action{"type": "keyUp", "value": key})
	}
	return all
}

// keyCodes are the keys that type no letter, as WebDriver has them.
var keyCodes = map[string]string{
	"Backspace": "\ue003", "Tab": "\ue004", "Enter": "\ue007", "Shift": "\ue008", "Control": "\ue009", "Alt": "\ue00a",
	"Pause": "\ue00b", "Escape": "\ue00c", "Space": " ", "PageUp": "\ue00e", "PageDown": "\ue00f", "End": "\ue010",
	"Home": "\ue011", "ArrowLeft": "\ue012", "ArrowUp": "\ue013", "ArrowRight": "\ue014", "ArrowDown": "\ue015",
	"Insert": "\ue016", "Delete": "\ue017", "F1": "\ue031", "F2": "\ue032", "F3": "\ue033", "F4": "\ue034",
	"F5": "\ue035", "F6": "\ue036", "F7": "\ue037", "F8": "\ue038", "F9": "\ue039", "F10": "\ue03a", "F11": "\ue03b",
	"F12": "\ue03c", "Meta": "\ue03d",
}

// Press presses a key, or several: Control+a.
func (b *Browser) Press(ctx context.Context, combination string) error {
	keys, err := keysOf(combination)
	if err != nil {
		return err
	}
	var all []action
	for _, key := range keys {
		all = append(all, action{"type": "keyDown", "value": key})
	}
	for _, key := range slices.Backward(keys) {
		all = append(all, action{"type": "keyUp", "value": key})
	}
	tab, err := b.tab(ctx)
	if err != nil {
		return err
	}
	return b.perform(ctx, tab, all, nil)
}

// keysOf returns the keys of a combination, as WebDriver has them.
func keysOf(combination string) (keys []string, err error) {
	names, err := browse.Combination(combination)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		key, ok := keyCodes[name]
		if !ok && utf8.RuneCountInString(name) != 1 {
			return nil, fmt.Errorf("there is no key %q: there are letters, and names such as Enter and ArrowLeft", name)
		}
		switch {
		case ok:
		case slices.Contains(names, "Shift"): // Firefox knows the capitals of the US layout alone
			key = strings.ToUpper(name)
		default:
			key = name
		}
		keys = append(keys, key)
	}
	return keys, nil
}
