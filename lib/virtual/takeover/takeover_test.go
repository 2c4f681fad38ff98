package takeover

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// One person has control at a time, keeps it over a lost connection, and loses it without input.
func TestHold(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 10, 4, 0, 0, time.UTC)
	var h Hold
	if h.Over(now) || h.Give("") || !h.Ends().IsZero() {
		t.Error("nobody has control, and it ends")
	}
	if err := h.Take("anna", false, false, now); err != nil {
		t.Fatal(err)
	}
	if err := h.Take("ben", false, false, now); err == nil || err.Error() !=
		"another person has control of this session since 10:04" {
		t.Error(err)
	}
	if h.Refusal().Error() != "a person has control of this session since 10:04; nothing was done" {
		t.Error(h.Refusal())
	}
	h.Lose("ben", now)
	if h.Over(now.Add(Lost)) {
		t.Error("another one's lost connection has ended it")
	}
	h.Lose("anna", now)
	if h.Over(now.Add(Lost-1)) || h.Take("anna", true, false, now.Add(Lost-1)) != nil || h.Since != now || !h.Scripts {
		t.Errorf("it is not resumed: %+v", h)
	}
	h.Use(now.Add(time.Hour))
	if end := now.Add(time.Hour + Quiet); h.Over(end.Add(-1)) || !h.Over(end) || h.Holder != "" {
		t.Errorf("it goes on: %+v", h)
	}
	if h.Take("ben", false, false, now) != nil || h.Give("anna") || !h.Give("ben") || h.Holder != "" {
		t.Errorf("it was not given back: %+v", h)
	}
}

// The queue is one a CDP session, in the order of all.
func TestQueue(t *testing.T) {
	t.Parallel()
	type command struct {
		session string
		n       int
		until   time.Time
	}
	r := rand.New(rand.NewPCG(1, 2))
	sessions := []string{"", "a", "b"}
	var q Queue[int]
	var model []command
	now := time.Unix(0, 0)
	for n := range 1_000_000 {
		session := sessions[r.IntN(len(sessions))]
		switch r.IntN(5) {
		case 0, 1:
			err := q.Add(session, n, now)
			if full := len(model) >= MaxWaiting; full != (err != nil) {
				t.Fatalf("%d wait, and Add: %v", len(model), err)
			} else if !full {
				model = append(model, command{session, n, now.Add(Patience)})
			}
		case 2:
			now = now.Add(time.Duration(r.IntN(int(Patience))))
		case 3:
			got, ok := q.Late(now)
			if late := len(model) > 0 && !now.Before(model[0].until); late != ok || ok && got != model[0].n {
				t.Fatalf("late is %d, %v", got, ok)
			} else if ok {
				model = model[1:]
			}
		case 4:
			if got, ok := q.Next(); ok != (len(model) > 0) || ok && got != model[0].n {
				t.Fatalf("next is %d, %v", got, ok)
			} else if ok {
				model = model[1:]
			}
		}
		blocks := slices.ContainsFunc(model, func(c command) bool { return c.session == session })
		if q.Blocks(session) != blocks {
			t.Fatalf("blocks is %v", !blocks)
		}
		if due := q.Due(); due.IsZero() != (len(model) == 0) || len(model) > 0 && due != model[0].until {
			t.Fatalf("due is %v", due)
		}
	}
}

// What is pressed is released in the opposite order, each once.
func TestPressed(t *testing.T) {
	t.Parallel()
	var p Pressed
	for _, in := range []struct{ session, method, params string }{
		{"a", "Input.dispatchMouseEvent", `{"type":"mousePressed","button":"left","x":1,"y":1}`},
		{"a", "Input.dispatchMouseEvent", `{"type":"mouseMoved","button":"left","x":2,"y":2}`},
		{"a", "Input.dispatchMouseEvent", `{"type":"mousePressed","button":"right","x":1,"y":1}`},
		{"a", "Input.dispatchMouseEvent", `{"type":"mouseReleased","button":"right","x":1,"y":1}`},
		{"a", "Input.dispatchKeyEvent", `{"type":"rawKeyDown","key":"A","code":"KeyA"}`},
		{"a", "Input.dispatchKeyEvent", `{"type":"char","text":"A"}`},
		{"a", "Input.dispatchKeyEvent", `{"type":"keyDown","key":"B","code":"KeyB"}`},
		{"a", "Input.dispatchKeyEvent", `{"type":"keyUp","key":"b","code":"KeyB"}`},
		{"b", "Input.dispatchKeyEvent", `{"type":"keyUp","key":"A","code":"KeyA"}`},
		{"b", "Input.dispatchTouchEvent", `{"type":"touchStart","touchPoints":[{"x":1,"y":1}]}`},
		{"b", "Input.insertText", `{"text":"A"}`},
		{"a", "Input.setInterceptDrags", `{"enabled":true}`},
		{"b", "Input.setInterceptDrags", `{"enabled":true}`},
		{"a", "Input.setInterceptDrags", `{"enabled":false}`},
	} {
		p.Note(in.session, in.method, json.RawMessage(in.params))
	}
	if !p.Releases("a", "Input.dispatchKeyEvent", json.RawMessage(`{"type":"keyUp","key":"A","code":"KeyA"}`)) ||
		p.Releases("a", "Input.dispatchMouseEvent", json.RawMessage(`{"type":"mouseReleased","button":"right"}`)) {
		t.Error("what releases is not known")
	}
	var got []string
	for _, c := range p.Release() {
		got = append(got, fmt.Sprint(c.Session, " ", c.Method, " ", c.Params["type"]))
	}
	want := []string{"b Input.dispatchTouchEvent touchCancel", "a Input.dispatchKeyEvent keyUp",
		"a Input.dispatchDragEvent dragCancel", "a Input.dispatchMouseEvent mouseReleased"}
	if !slices.Equal(got, want) || p.Any() {
		t.Errorf("released: %q", got)
	}
	if got := fmt.Sprint(p.Drags(true)); got != "[{b Input.setInterceptDrags map[enabled:true]}]" {
		t.Errorf("drags come by %s", got)
	}
}
