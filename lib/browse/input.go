package browse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/chromedp/chromedp/kb"
)

// point is a place in the tab's viewport, in CSS pixels.
type point struct{ x, y float64 }

// Modifiers of input events, as the protocol numbers them.
var modifierBits = map[string]int{"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8, "ControlOrMeta": 2}

// modifiers are the bits of some keys.
func modifiers(names []string) (bits int, err error) {
	for _, n := range names {
		bit, ok := modifierBits[n]
		if !ok {
			return 0, fmt.Errorf("%q is not a modifier: there are Alt, Control, ControlOrMeta, Meta and Shift", n)
		}
		bits |= bit
	}
	return bits, nil
}

// input is the mouse and the keyboard of a tab.
type input struct {
	*effects
	mouse   Point           // where tools by coordinates have left it
	buttons int             // that they have pressed
	dragged json.RawMessage // what the page would drag
}

// inputs sends input events without waiting between them, and waits until the page
// has handled the last one, or until a dialog opens.
func (t *input) inputs(ctx context.Context, events ...inputEvent) error {
	last := len(events) - 1
	for _, e := range events[:last] {
		t.b.conn.Begin(t.main.session, e.method, e.params, nil)
	}
	return t.call(ctx, t.main.session, events[last].method, events[last].params, nil)
}

// inputEvent is one command of the Input domain.
type inputEvent struct {
	method string
	params any
}

func mouse(kind string, at Point, button string, buttons, clicks, modifiers int) inputEvent {
	return inputEvent{"Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": button,
		"buttons": buttons, "clickCount": clicks, "modifiers": modifiers}}
}

var buttonBits = map[string]int{"left": 1, "right": 2, "middle": 4}

// click are the events of a click.
func click(at Point, button string, count, modifiers int) []inputEvent {
	all := []inputEvent{mouse("mouseMoved", at, "none", 0, 0, modifiers)}
	for n := range count {
		all = append(all, mouse("mousePressed", at, button, buttonBits[button], n+1, modifiers),
			mouse("mouseReleased", at, button, 0, n+1, modifiers))
	}
	return all
}

// aliases are other names of keys.
var aliases = map[string]string{"Esc": "Escape", "Return": "Enter", "Del": "Delete", "Ctrl": "Control",
	"Cmd": "Meta", "Command": "Meta", "Option": "Alt", "Up": "ArrowUp", "Down": "ArrowDown", "Left": "ArrowLeft",
	"Right": "ArrowRight", "Spacebar": " ", "ControlOrMeta": "Control"}

// keys are those of a US keyboard, by what the DOM calls them: the character "A", or the code
// "Digit1".
var keys = sync.OnceValue(func() map[string]kb.Key {
	all := map[string]kb.Key{}
	for _, k := range kb.Keys {
		all[k.Key] = *k
		if !k.Shift {
			all[k.Code] = *k
		}
	}
	for name, code := range map[string]int64{"Shift": 16, "Control": 17, "Alt": 18} { // on both sides of the keyboard
		k := all[name]
		k.Windows = code
		all[name] = k
	}
	return all
})

// keyOf is the key of a name or of a character.
func keyOf(name string) (k kb.Key, ok bool) {
	k, ok = keys()[cmp.Or(aliases[name], name)]
	return k, ok
}

// Combination splits keys such as Control+Shift+A into their names, as the DOM has them. All but the last
// are modifiers.
func Combination(keys string) (names []string, err error) {
	before, isPlus := strings.CutSuffix(keys, "+") // the key itself
	if isPlus {
		before = strings.TrimSuffix(before, "+")
	}
	if before != "" {
		names = strings.Split(before, "+")
	}
	if isPlus {
		names = append(names, "+")
	}
	for i, name := range names {
		names[i] = cmp.Or(aliases[name], name)
		if i < len(names)-1 && modifierBits[names[i]] == 0 {
			return nil, fmt.Errorf("%q is not a modifier key: there are Alt, Control, Meta and Shift", name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("there is no key without a name")
	}
	return names, nil
}

// press are the events of a key, with the modifiers before it: Control+Shift+A.
func press(combination string) (all []inputEvent, err error) {
	parts, err := Combination(combination)
	if err != nil {
		return nil, err
	}
	bits := 0
	var held []kb.Key
	for _, m := range parts[:len(parts)-1] {
		k, _ := keyOf(m)
		bits |= modifierBits[k.Key]
		held = append(held, k)
		all = append(all, stroke("rawKeyDown", k, bits))
	}
	last := parts[len(parts)-1]
	k, ok := keyOf(last)
	letter, size := utf8.DecodeRuneInString(last)
	switch {
	case ok:
	case size == 0 || size < len(last):
		return nil, errors.New("there is no key " + fmt.Sprintf("%q", last) +
			": keys are such as a, Enter, ArrowLeft, F5 and Control+a")
	case unicode.IsControl(letter) && bits == 0: // no key types it
		return []inputEvent{{"Input.insertText", map[string]string{"text": last}}}, nil
	default: // of another layout
		k = kb.Key{Key: last, Text: last}
	}
	if bits&8 != 0 && utf8.RuneCountInString(k.Text) == 1 && !k.Shift {
		if upper := strings.ToUpper(k.Text); upper != k.Text {
			k.Text, k.Key = upper, upper
		}
	}
	if k.Shift {
		bits |= 8
	}
	if bits&^8 != 0 {
		k.Text = ""
	}
	kind := "keyDown"
	if k.Text == "" {
		kind = "rawKeyDown"
	}
	all = append(all, stroke(kind, k, bits), stroke("keyUp", k, bits))
	for i := len(held) - 1; i >= 0; i-- {
		bits &^= modifierBits[held[i].Key]
		all = append(all, stroke("keyUp", held[i], bits))
	}
	return all, nil
}

func stroke(kind string, k kb.Key, bits int) inputEvent {
	params := map[string]any{"type": kind, "key": k.Key, "code": k.Code, "windowsVirtualKeyCode": k.Windows,
		"modifiers": bits}
	if modifierBits[k.Key] != 0 {
		params["location"] = 1 // the left one
	}
	if kind == "keyDown" {
		params["text"], params["unmodifiedText"] = k.Text, k.Text
	}
	return inputEvent{"Input.dispatchKeyEvent", params}
}
