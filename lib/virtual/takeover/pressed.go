package takeover

import (
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

// Note notes an input, such as Input.dispatchKeyEvent.
func (p *Pressed) Note(session, method string, params json.RawMessage) {
	var in struct {
		Type, Button, Code, Key string
		WindowsVirtualKeyCode   int
		TouchPoints             []json.RawMessage
	}
	if json.Unmarshal(params, &in) != nil {
		return // Chrome refuses it
	}
	d := down{session: session, up: Command{session, method, map[string]any{}}}
	isDown := false
	switch method {
	case "Input.dispatchMouseEvent":
		if in.Type != "mousePressed" && in.Type != "mouseReleased" {
			return
		}
		d.what, isDown = in.Button, in.Type == "mousePressed"
		d.up.Params = map[string]any{"type": "mouseReleased", "button": in.Button, "x": outside, "y": outside}
	case "Input.dispatchKeyEvent":
		if in.Type == "char" {
			return
		}
		d.what, isDown = "key "+in.Code+" "+in.Key, in.Type != "keyUp"
		d.up.Params = map[string]any{"type": "keyUp", "code": in.Code, "key": in.Key,
			"windowsVirtualKeyCode": in.WindowsVirtualKeyCode}
	case "Input.dispatchTouchEvent":
		d.what, isDown = "touch", len(in.TouchPoints) > 0
		d.up.Params = map[string]any{"type": "touchCancel", "touchPoints": []any{}}
	default:
		return
	}
	p.all = slices.DeleteFunc(p.all, func(o down) bool { return o.session == session && o.what == d.what })
	if isDown && len(p.all) < maxPressed {
		p.all = append(p.all, d)
	}
}

// Release returns the commands that release all, the last that was pressed first.
func (p *Pressed) Release() (all []Command) {
	for _, d := range slices.Backward(p.all) {
		all = append(all, d.up)
	}
	p.all = nil
	return all
}
