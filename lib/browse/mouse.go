package browse

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// The mouse by coordinates of the viewport, in CSS pixels. It stays where it was moved to,
// and a button stays pressed until it is released.

// inView returns an error if one of the points, given as x and y in turn, is outside of the
// viewport, where no page gets what the mouse does.
func inView(ctx context.Context, t *frames, points ...float64) error {
	v, err := t.viewport(ctx, false)
	if err != nil {
		return err
	}
	for at := range slices.Chunk(points, 2) {
		if x, y := at[0], at[1]; x < 0 || y < 0 || x >= v.Width || y >= v.Height {
			return fmt.Errorf("%v, %v is outside of the viewport, which has %v×%v pixels: scroll what is to be hit "+
				"into it, or browser_resize makes it larger", x, y, v.Width, v.Height)
		}
	}
	return nil
}

// MoveMouse moves the mouse.
func (t *input) MoveMouse(ctx context.Context, x, y float64) error {
	if err := inView(ctx, t.frames, x, y); err != nil {
		return err
	}
	return t.act(ctx, t.moved(x, y))
}

// moved is the event of a move, with the buttons that are pressed.
func (t *input) moved(x, y float64) inputEvent {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	t.mouse = Point{x, y}
	return mouse("mouseMoved", t.mouse, heldIn(t.buttons), t.buttons, 0, 0)
}

// heldIn is the first of the buttons that are pressed, as the browser has it.
func heldIn(buttons int) string {
	for _, name := range []string{"left", "right", "middle"} {
		if buttons&buttonBits[name] != 0 {
			return name
		}
	}
	return "none"
}

// PressMouse presses a button, or releases it.
func (t *input) PressMouse(ctx context.Context, button string, down bool) error {
	return t.act(ctx, t.pressed(button, down, 1))
}

func (t *input) pressed(button string, down bool, clicks int) inputEvent {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	kind := "mouseReleased"
	if t.buttons &^= buttonBits[button]; down {
		kind = "mousePressed"
		t.buttons |= buttonBits[button]
	}
	return mouse(kind, t.mouse, button, t.buttons, clicks, 0)
}

// ClickMouse clicks some times, and holds the button for a while each time.
func (t *input) ClickMouse(ctx context.Context, x, y float64, button string, count int, hold time.Duration) error {
	if err := inView(ctx, t.frames, x, y); err != nil {
		return err
	}
	events := []inputEvent{t.moved(x, y)}
	for n := range count {
		events = append(events, t.pressed(button, true, n+1))
		if hold > 0 {
			if err := t.act(ctx, events...); err != nil {
				return err
			}
			select {
			case <-time.After(hold):
			case <-ctx.Done():
				up := t.pressed(button, false, n+1)
				t.b.conn.Begin(t.main.session, up.method, up.params, nil)
				return context.Cause(ctx)
			}
			events = nil
		}
		events = append(events, t.pressed(button, false, n+1))
	}
	return t.act(ctx, events...)
}

// DragMouse drags from one point to another.
func (t *input) DragMouse(ctx context.Context, fromX, fromY, toX, toY float64) error {
	if err := inView(ctx, t.frames, fromX, fromY, toX, toY); err != nil {
		return err
	}
	return t.act(ctx, t.moved(fromX, fromY), t.pressed("left", true, 1), t.moved((fromX+toX)/2, (fromY+toY)/2),
		t.moved(toX, toY), t.pressed("left", false, 1))
}

// Wheel turns the wheel where the mouse is.
func (t *input) Wheel(ctx context.Context, x, y float64) error {
	t.b.mu.Lock()
	at := t.mouse
	t.b.mu.Unlock()
	return t.act(ctx, inputEvent{"Input.dispatchMouseEvent", map[string]any{"type": "mouseWheel", "x": at.X, "y": at.Y,
		"deltaX": x, "deltaY": y}})
}
