package tools

import (
	"cmp"
	"context"
	"time"
)

func mouseMove(ctx context.Context, r *reply, a struct{ X, Y float64 }) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	r.page = pageChanges
	if err = t.MoveMouse(ctx, a.X, a.Y); err == nil {
		r.did("Moved the mouse to %v, %v", a.X, a.Y)
	}
	return err
}

func mouseClick(ctx context.Context, r *reply, a struct {
	X, Y       float64
	Button     string
	ClickCount float64
	Delay      float64
}) error {
	t, err := r.touch(ctx)
	if err != nil {
		return err
	}
	r.page, r.acts = pageChanges, true
	err = t.ClickMouse(ctx, a.X, a.Y, cmp.Or(a.Button, "left"), max(1, int(a.ClickCount)),
		time.Duration(a.Delay)*time.Millisecond)
	if err == nil {
		r.did("Clicked at %v, %v", a.X, a.Y)
	}
	return err
}

func mouseDrag(ctx context.Context, r *reply, a struct{ StartX, StartY, EndX, EndY float64 }) error {
	t, err := r.touch(ctx)
	if err != nil {
		return err
	}
	r.page, r.acts = pageChanges, true
	if err = t.DragMouse(ctx, a.StartX, a.StartY, a.EndX, a.EndY); err == nil {
		r.did("Dragged from %v, %v to %v, %v", a.StartX, a.StartY, a.EndX, a.EndY)
	}
	return err
}

func mouseDown(ctx context.Context, r *reply, a struct{ Button string }) error {
	return r.press(ctx, a.Button, true)
}

func mouseUp(ctx context.Context, r *reply, a struct{ Button string }) error {
	return r.press(ctx, a.Button, false)
}

func (r *reply) press(ctx context.Context, button string, down bool) error {
	t, err := r.touch(ctx)
	if err != nil {
		return err
	}
	r.page = pageChanges
	button = cmp.Or(button, "left")
	if err = t.PressMouse(ctx, button, down); err == nil && down {
		r.did("Pressed the %s button", button)
	} else if err == nil {
		r.did("Released the %s button", button)
	}
	return err
}

func mouseWheel(ctx context.Context, r *reply, a struct{ DeltaX, DeltaY float64 }) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	r.page = pageChanges
	if err = t.Wheel(ctx, a.DeltaX, a.DeltaY); err == nil {
		r.did("Turned the wheel by %v, %v", a.DeltaX, a.DeltaY)
	}
	return err
}
