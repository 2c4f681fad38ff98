package takeover

import (
	"cmp"
	"encoding/json"
	"slices"

	"btools/lib/jsonrpc"
)

// Pressed is the buttons, keys and fingers that a client holds down, and the CDP sessions in which it intercepts drags,
// by what it has sent. The zero value is none.
type Pressed struct {
	all   []down
	drags []string // CDP sessions
}

// down is one of them.
type down struct {
	session string // of CDP
	what    string // which button or key; "touch" for all fingers
	up      Command
	drops   bool // what may be dragged by it must be dropped nowhere
}

// Command is a command that releases one of them.
type Command struct {
	Session string
	Method  string
	Params  map[string]any
}

// outside is where a button is released: nothing is clicked there.
const outside = -1

const interceptDrags = "Input.setInterceptDrags"

// Drags returns the commands by which the client intercepts drags, or stops it for some time: Chrome tells only one of
// the CDP sessions of a page.
func (p *Pressed) Drags(on bool) (all []Command) {
	for _, session := range p.drags {
		all = append(all, Command{Session: session, Method: interceptDrags, Params: map[string]any{"enabled": on}})
	}
	return all
}

// maxPressed bounds what a client holds down, more than hands do.
const maxPressed = 64

// Any reports whether there are any.
func (p *Pressed) Any() bool { return len(p.all) > 0 }

// Note notes an input, such as Input.dispatchKeyEvent.
func (p *Pressed) Note(session, method string, params json.RawMessage) {
	if method == interceptDrags {
		p.drags = slices.DeleteFunc(p.drags, func(s string) bool { return s == session })
		if string(jsonrpc.Get(params, "enabled")) == "true" && len(p.drags) < maxPressed {
			p.drags = append(p.drags, session)
		}
		return
	}
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
		d.what, isDown, d.drops = in.Button, in.Type == "mousePressed", in.Button == "left"
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

// dragsNothing is what an event has that ends a drag: Chrome wants it.
var dragsNothing = map[string]any{"items": []any{}, "dragOperationsMask": 1}

// Release returns the commands that release all, the last that was pressed first. What is dragged is dropped nowhere:
// without an end of the drag, the page would get no input of a mouse any more.
func (p *Pressed) Release() (all []Command) {
	for _, d := range slices.Backward(p.all) {
		if d.drops {
			all = append(all, Command{Session: d.session, Method: "Input.dispatchDragEvent",
				Params: map[string]any{"type": "dragCancel", "x": 0, "y": 0, "data": dragsNothing}})
		}
		all = append(all, d.up)
	}
	p.all = nil
	return all
}
