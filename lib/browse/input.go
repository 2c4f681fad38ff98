package browse

import (
	"context"
	"errors"
	"fmt"
	"strings"
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

// inputs sends input events without waiting between them, and waits until the page
// has handled the last one, or until a dialog opens.
func (t *Tab) inputs(ctx context.Context, events ...inputEvent) error {
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

func mouse(kind string, at point, button string, buttons, clicks, modifiers int) inputEvent {
	return inputEvent{"Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.x, "y": at.y, "button": button,
		"buttons": buttons, "clickCount": clicks, "modifiers": modifiers}}
}

var buttonBits = map[string]int{"left": 1, "right": 2, "middle": 4}

// click are the events of a click.
func click(at point, button string, count, modifiers int) []inputEvent {
	all := []inputEvent{mouse("mouseMoved", at, "none", 0, 0, modifiers)}
	for n := range count {
		all = append(all, mouse("mousePressed", at, button, buttonBits[button], n+1, modifiers),
			mouse("mouseReleased", at, button, 0, n+1, modifiers))
	}
	return all
}

// key is one of the keyboard.
type key struct {
	name, code string
	number     int    // windowsVirtualKeyCode
	text       string // what it types
	location   int
}

// named are the keys that type no letter.
var named = map[string]key{
	"Backspace": {code: "Backspace", number: 8}, "Tab": {code: "Tab", number: 9},
	"Enter":  {code: "Enter", number: 13, text: "\r"},
	"Escape": {code: "Escape", number: 27}, "PageUp": {code: "PageUp", number: 33},
	"PageDown": {code: "PageDown", number: 34}, "End": {code: "End", number: 35}, "Home": {code: "Home", number: 36},
	"ArrowLeft": {code: "ArrowLeft", number: 37}, "ArrowUp": {code: "ArrowUp", number: 38},
	"ArrowRight": {code: "ArrowRight", number: 39}, "ArrowDown": {code: "ArrowDown", number: 40},
	"Insert": {code: "Insert", number: 45}, "Delete": {code: "Delete", number: 46},
	"Shift":   {code: "ShiftLeft", number: 16, location: 1},
	"Control": {code: "ControlLeft", number: 17, location: 1},
	"Alt":     {code: "AltLeft", number: 18, location: 1}, "Meta": {code: "MetaLeft", number: 91, location: 1},
	"CapsLock": {code: "CapsLock", number: 20}, "ContextMenu": {code: "ContextMenu", number: 93},
	"Pause": {code: "Pause", number: 19}, "ScrollLock": {code: "ScrollLock", number: 145},
	"NumLock": {code: "NumLock", number: 144}, "PrintScreen": {code: "PrintScreen", number: 44},
}

// aliases are other names of keys.
var aliases = map[string]string{"Esc": "Escape", "Return": "Enter", "Del": "Delete", "Ctrl": "Control",
	"Cmd": "Meta", "Command": "Meta", "Option": "Alt", "Up": "ArrowUp", "Down": "ArrowDown", "Left": "ArrowLeft",
	"Right": "ArrowRight", "Space": " ", "Spacebar": " ", "ControlOrMeta": "Control"}

// onKey are the characters on the keys of a US keyboard that are not letters: the
// key, its number, what it types, and what it types with Shift.
var onKey = []struct {
	code   string
	number int
	plain  string
	shift  string
}{
	{"Digit1", 49, "1", "!"}, {"Digit2", 50, "2", "@"}, {"Digit3", 51, "3", "#"}, {"Digit4", 52, "4", "$"},
	{"Digit5", 53, "5", "%"}, {"Digit6", 54, "6", "^"}, {"Digit7", 55, "7", "&"}, {"Digit8", 56, "8", "*"},
	{"Digit9", 57, "9", "("}, {"Digit0", 48, "0", ")"}, {"Minus", 189, "-", "_"}, {"Equal", 187, "=", "+"},
	{"BracketLeft", 219, "[", "{"}, {"BracketRight", 221, "]", "}"}, {"Backslash", 220, `\`, "|"},
	{"Semicolon", 186, ";", ":"}, {"Quote", 222, "'", `"`}, {"Backquote", 192, "`", "~"}, {"Comma", 188, ",", "<"},
	{"Period", 190, ".", ">"}, {"Slash", 191, "/", "?"}, {"Space", 32, " ", " "},
}

// keyOf is the key of a name or of a character; shift says that it needs Shift.
func keyOf(name string) (k key, shift, ok bool) {
	if a, is := aliases[name]; is {
		name = a
	}
	if k, ok := named[name]; ok {
		k.name = name
		return k, false, true
	}
	if len(name) >= 2 && name[0] == 'F' && strings.Trim(name[1:], "0123456789") == "" {
		var n int
		fmt.Sscan(name[1:], &n)
		if n >= 1 && n <= 24 {
			return key{name: name, code: name, number: 111 + n}, false, true
		}
	}
	if len(name) == 1 && (name[0] >= 'a' && name[0] <= 'z' || name[0] >= 'A' && name[0] <= 'Z') {
		upper := strings.ToUpper(name)
		return key{name: name, code: "Key" + upper, number: int(upper[0]), text: name}, name == upper, true
	}
	for _, c := range onKey {
		if name == c.plain || name == c.code {
			return key{name: c.plain, code: c.code, number: c.number, text: c.plain}, false, true
		}
		if name == c.shift {
			return key{name: c.shift, code: c.code, number: c.number, text: c.shift}, true, true
		}
	}
	return key{}, false, false
}

// press are the events of a key, with the modifiers before it: Control+Shift+A.
func press(combination string) (all []inputEvent, err error) {
	parts := strings.Split(combination, "+")
	if strings.HasSuffix(combination, "+") && len(combination) > 0 { // the key + itself
		parts = append(strings.Split(strings.TrimSuffix(strings.TrimSuffix(combination, "+"), "+"), "+"), "+")
		if combination == "+" {
			parts = []string{"+"}
		}
	}
	bits := 0
	var held []key
	for _, m := range parts[:len(parts)-1] {
		k, _, ok := keyOf(m)
		if !ok || modifierBits[k.name] == 0 {
			return nil, fmt.Errorf("%q is not a modifier key: there are Alt, Control, Meta and Shift", m)
		}
		bits |= modifierBits[k.name]
		held = append(held, k)
		all = append(all, stroke("rawKeyDown", k, bits))
	}
	last := parts[len(parts)-1]
	k, shift, ok := keyOf(last)
	if !ok {
		if len([]rune(last)) == 1 { // of another layout
			return append(all, inputEvent{"Input.insertText", map[string]string{"text": last}}), nil
		}
		return nil, errors.New("there is no key " + fmt.Sprintf("%q", last) +
			": keys are such as a, Enter, ArrowLeft, F5 and Control+a")
	}
	if bits&8 != 0 && len(k.text) == 1 && !shift {
		if upper := strings.ToUpper(k.text); upper != k.text {
			k.text, k.name = upper, upper
		}
	}
	if shift {
		bits |= 8
	}
	if bits&^8 != 0 {
		k.text = ""
	}
	kind := "keyDown"
	if k.text == "" {
		kind = "rawKeyDown"
	}
	all = append(all, stroke(kind, k, bits), stroke("keyUp", k, bits))
	for i := len(held) - 1; i >= 0; i-- {
		bits &^= modifierBits[held[i].name]
		all = append(all, stroke("keyUp", held[i], bits))
	}
	return all, nil
}

func stroke(kind string, k key, bits int) inputEvent {
	params := map[string]any{"type": kind, "key": k.name, "code": k.code, "windowsVirtualKeyCode": k.number,
		"modifiers": bits, "location": k.location}
	if kind == "keyDown" {
		params["text"], params["unmodifiedText"] = k.text, k.text
	}
	return inputEvent{"Input.dispatchKeyEvent", params}
}
