package firefox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"btools/lib/browse"
)

// fill replaces what an element has by text.
func (t *Tab) fill(ctx context.Context, f browse.Found[*frame], text, origin string) error {
	return t.b.run(ctx, f.Frame.id, "fill", map[string]any{"target": f.Find, "value": text, "insert": true,
		"origin": origin}, nil)
}

// typeKeys types a text one key at a time, and looks after each line whether the field has the focus.
func (t *Tab) typeKeys(ctx context.Context, f *frame, text string) error {
	n, all := 0, utf8.RuneCountInString(text)
	for line := range strings.SplitAfterSeq(text, "\n") {
		if line == "" {
			continue
		}
		if n > 0 {
			if err := t.b.run(ctx, f.id, "keeps", nil, nil); err != nil {
				return err
			}
		}
		n += utf8.RuneCountInString(line)
		err := t.send(ctx, f.id, typed(line), nil)
		if isCaused(err) && n < all {
			return fmt.Errorf("not all of the %d characters were typed: a dialog has opened, or the page was replaced",
				all)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// endTyping has a document let all keys through again. It does not wait for that.
func (t *Tab) endTyping(f *frame) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	t.b.conn.Call(ctx, "script.evaluate", map[string]any{"expression": "globalThis.btools?.api.endTyping()",
		"awaitPromise": false, "target": map[string]string{"context": f.id, "sandbox": sandbox}}, nil)
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
func (t *Tab) Press(ctx context.Context, combination string) error {
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
	return t.perform(ctx, t.id, all, nil)
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
