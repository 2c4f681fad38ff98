package tools

import (
	"cmp"
	"context"
	"time"

	"btools/lib/browse"
)

func mouseMove(ctx context.Context, r *reply, t *browse.Tab, a struct{ X, Y float64 }) error {
	return r.tells(t.MoveMouse(ctx, a.X, a.Y), "Moved the mouse to %v, %v", a.X, a.Y)
}

func mouseClick(ctx context.Context, r *reply, t *browse.Tab, a struct {
	X, Y       float64
	Button     string
	ClickCount float64
	Delay      float64
}) error {
	err := t.ClickMouse(ctx, a.X, a.Y, cmp.Or(a.Button, "left"), max(1, int(a.ClickCount)),
		time.Duration(a.Delay)*time.Millisecond)
	return r.tells(err, "Clicked at %v, %v", a.X, a.Y)
}

func mouseDrag(ctx context.Context, r *reply, t *browse.Tab, a struct{ StartX, StartY, EndX, EndY float64 }) error {
	return r.tells(t.DragMouse(ctx, a.StartX, a.StartY, a.EndX, a.EndY), "Dragged from %v, %v to %v, %v", a.StartX,
		a.StartY, a.EndX, a.EndY)
}

// pressMouse returns the function of a tool that presses a button, or releases it.
func pressMouse(down bool) func(context.Context, *reply, *browse.Tab, struct{ Button string }) error {
	return func(ctx context.Context, r *reply, t *browse.Tab, a struct{ Button string }) error {
		button, did := cmp.Or(a.Button, "left"), "Released"
		if down {
			did = "Pressed"
		}
		return r.tells(t.PressMouse(ctx, button, down), "%s the %s button", did, button)
	}
}

func mouseWheel(ctx context.Context, r *reply, t *browse.Tab, a struct{ DeltaX, DeltaY float64 }) error {
	return r.tells(t.Wheel(ctx, a.DeltaX, a.DeltaY), "Turned the wheel by %v, %v", a.DeltaX, a.DeltaY)
}
