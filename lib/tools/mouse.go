package tools

import (
	"cmp"
	"context"
	"time"

	"btools/lib/browse"
)

func mouseMove(ctx context.Context, r *reply, t *browse.Tab, a struct{ X, Y float64 }) error {
	err := t.MoveMouse(ctx, a.X, a.Y)
	if err == nil {
		r.did("Moved the mouse to %v, %v", a.X, a.Y)
	}
	return err
}

func mouseClick(ctx context.Context, r *reply, t *browse.Tab, a struct {
	X, Y       float64
	Button     string
	ClickCount float64
	Delay      float64
}) error {
	err := t.ClickMouse(ctx, a.X, a.Y, cmp.Or(a.Button, "left"), max(1, int(a.ClickCount)),
		time.Duration(a.Delay)*time.Millisecond)
	if err == nil {
		r.did("Clicked at %v, %v", a.X, a.Y)
	}
	return err
}

func mouseDrag(ctx context.Context, r *reply, t *browse.Tab, a struct{ StartX, StartY, EndX, EndY float64 }) error {
	err := t.DragMouse(ctx, a.StartX, a.StartY, a.EndX, a.EndY)
	if err == nil {
		r.did("Dragged from %v, %v to %v, %v", a.StartX, a.StartY, a.EndX, a.EndY)
	}
	return err
}

// pressMouse returns the function of a tool that presses a button, or releases it.
func pressMouse(down bool) func(context.Context, *reply, *browse.Tab, struct{ Button string }) error {
	return func(ctx context.Context, r *reply, t *browse.Tab, a struct{ Button string }) error {
		button, did := cmp.Or(a.Button, "left"), "Released"
		if down {
			did = "Pressed"
		}
		err := t.PressMouse(ctx, button, down)
		if err == nil {
			r.did("%s the %s button", did, button)
		}
		return err
	}
}

func mouseWheel(ctx context.Context, r *reply, t *browse.Tab, a struct{ DeltaX, DeltaY float64 }) error {
	err := t.Wheel(ctx, a.DeltaX, a.DeltaY)
	if err == nil {
		r.did("Turned the wheel by %v, %v", a.DeltaX, a.DeltaY)
	}
	return err
}
