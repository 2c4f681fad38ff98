package takeover

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Pressed is the buttons, keys and fingers that a client holds down, by what it has sent. The zero value is none.
type Pressed struct {
	all []down
}

// down is one of them.
type down struct {
	session string // of CDP
	what    string // which button or key; "touch" for all fingers
	up      Command
}

// Command is a command that releases one of them.
type Command struct {
	Session string
	Method  string
	Params  map[string]any
}

// outside is where a button is released: nothing is clicked there.
const outside = -1

// maxPressed bounds what a client holds down, more than hands do.
const maxPressed = 64

// Any reports whether there are any.
func (p *Pressed) Any() bool { return len(p.all) > 0 }

// Note notes an input, such as Input.dispatchKeyEvent.
func (p *Pressed) Note(session, method string, params json.RawMessage) {
	d, isDown, ok := read(session, method, params)
	if !ok {
		return
	}
	p.all = slices.DeleteFunc(p.all, d.is)
	if isDown && len(p.all) < maxPressed {
		p.all = append(p.all, d)
	}
}

// Releases reports whether an input releases one of them.
func (p *Pressed) Releases(session, method string, params json.RawMessage) bool {
	d, isDown, ok := read(session, method, params)
	return ok && !isDown && slices.ContainsFunc(p.all, d.is)
}

func (d *down) is(o down) bool { return o.session == d.session && o.what == d.what }

// read returns what an input presses or releases; false: neither.
func read(session, method string, params json.RawMessage) (d down, isDown, ok bool) {
	var in struct {
		Type, Button, Code, Key string
		WindowsVirtualKeyCode   int
		TouchPoints             []json.RawMessage
	}
	if json.Unmarshal(params, &in) != nil {
		return d, false, false // Chrome refuses it
	}
	d = down{session: session, up: Command{Session: session, Method: method}}
	switch method {
	case "Input.dispatchMouseEvent":
		d.what, isDown = in.Button, in.Type == "mousePressed"
		d.up.Params = map[string]any{"type": "mouseReleased", "button": in.Button, "x": outside, "y": outside}
		return d, isDown, isDown || in.Type == "mouseReleased"
	case "Input.dispatchKeyEvent":
		// Shift may have changed what the key types since it was pressed.
		d.what, isDown = "key "+cmp.Or(in.Code, in.Key), in.Type != "keyUp"
		d.up.Params = map[string]any{"type": "keyUp", "code": in.Code, "key": in.Key,
			"windowsVirtualKeyCode": in.WindowsVirtualKeyCode}
		return d, isDown, in.Type != "char"
	case "Input.dispatchTouchEvent":
		d.what, isDown = "touch", len(in.TouchPoints) > 0
		d.up.Params = map[string]any{"type": "touchCancel", "touchPoints": []any{}}
		return d, isDown, true
	}
	return d, false, false
}

// Release returns the commands that release all, the last that was pressed first.
func (p *Pressed) Release() (all []Command) {
	for _, d := range slices.Backward(p.all) {
		all = append(all, d.up)
	}
	p.all = nil
	return all
}
