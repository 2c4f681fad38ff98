package proxy

import (
	"context"
	"sync"
	"testing"
)

// held holds a browser in the background. It returns once the request waits, or has been answered.
func (w *world) held(ctx context.Context, who Holder, name string) <-chan string {
	w.Helper()
	got, before := make(chan string, 1), w.waiting()
	done := make(chan struct{})
	go func() {
		defer close(done)
		j, err := w.hub.Hold(ctx, who, name)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- j.Instance.ID
	}()
	for w.waiting() == before {
		select {
		case <-done:
			return got
		default:
		}
	}
	return got
}

// waiting returns the number of requests that wait for a browser.
func (w *world) waiting() int {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.hub.holds.free.Waiting() + w.hub.holds.launched.Waiting()
}

// joins has another browser join, and returns its ID.
func (w *world) joins(id string) string {
	w.Helper()
	w.join(id)
	return w.id
}

func (w *world) want(what string, got <-chan string, want string) {
	w.Helper()
	if g := <-got; g != want {
		w.Errorf("%s: got %s, want %s", what, g, want)
	}
}

// A browser has one holder at a time: until its context ends, or the browser leaves.
func TestHold(t *testing.T) {
	w := startHub(t)
	a := w.joins("")
	first, release := context.WithCancel(t.Context())
	w.want("the first", w.held(first, Holder{}, ""), a)
	if j := w.hub.Find(a); j == nil || !w.hub.IsHeld(j) {
		t.Error("it is not listed as held")
	}
	second := w.held(t.Context(), Holder{As: "second"}, "")
	b := w.joins("")
	w.want("the one that has joined since", second, b)
	if j := w.hub.Find("second"); j == nil || j.Instance.ID != b {
		t.Error("it is not found by the name of its holder")
	}
	w.want("a second holder of a name", w.held(t.Context(), Holder{As: "second"}, ""), `the name "second" is in use`)
	third := w.held(t.Context(), Holder{}, "")
	byName := w.held(t.Context(), Holder{}, b)
	release()
	w.want("one that was released", third, a)
	// One that joins again with its ID is another browser to its holder.
	w.hub.Find(b).Disconnect()
	if again := w.joins(b); again != b {
		t.Errorf("%s joins again as %s", b, again)
	}
	w.want("one that has joined again", byName, b)
	if w.hub.Find("second") != nil {
		t.Error("the name of its holder before has stayed")
	}
}

// Those that wait are served in the order in which they came, and one that gives up leaves its place.
func TestHoldInOrder(t *testing.T) {
	w := startHub(t)
	const n = 5
	var ends []context.CancelFunc
	var waiting []<-chan string
	for range n {
		ctx, end := context.WithCancel(t.Context())
		ends = append(ends, end)
		waiting = append(waiting, w.held(ctx, Holder{}, ""))
	}
	ends[1]()
	w.want("one that gives up", waiting[1], context.Canceled.Error())
	a := w.joins("")
	for _, k := range []int{0, 2, 3, 4} {
		w.want("the next", waiting[k], a)
		for _, later := range waiting[k+1:] {
			if len(later) > 0 {
				t.Errorf("request %d was overtaken", k+1)
			}
		}
		ends[k]()
	}
}

// A holder that says who it is may hold a browser again, which others don't get
// before all of its holds have ended.
func TestHoldAgain(t *testing.T) {
	w := startHub(t)
	a := w.joins("")
	ctx, release := context.WithCancel(t.Context())
	for _, step := range []struct {
		who  Holder
		want string
	}{
		{Holder{As: "x", By: "me"}, a},
		{Holder{As: "y", By: "me"}, a},
		{Holder{As: "y", By: "me"}, `the name "y" is in use`},
		{Holder{As: "z", By: "you"}, ""},
		{Holder{As: "z"}, ""},
	} {
		got := ""
		if j, err := w.hub.TryHold(ctx, step.who, a); err != nil {
			got = err.Error()
		} else if j != nil {
			got = j.Instance.ID
		}
		if got != step.want {
			t.Errorf("%+v holds %q, want %q", step.who, got, step.want)
		}
	}
	for _, name := range []string{"x", "y"} {
		if j := w.hub.Find(name); j == nil || j.Instance.ID != a {
			t.Errorf("it is not found as %s", name)
		}
	}
	next := w.held(t.Context(), Holder{As: "z"}, "")
	release()
	w.want("after all holds have ended", next, a)
}

// Nobody gets what somebody else has, while browsers and holders come and go.
func TestHoldsAtOnce(t *testing.T) {
	w := startHub(t)
	const n = 10
	var mu sync.Mutex
	held := map[string]bool{}
	var wg sync.WaitGroup
	for range 4 * n {
		wg.Go(func() {
			ctx, release := context.WithCancel(t.Context())
			defer release()
			j, err := w.hub.Hold(ctx, Holder{}, "")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			if held[j.Instance.ID] {
				t.Errorf("%s has two holders", j.Instance.ID)
			}
			held[j.Instance.ID] = true
			mu.Unlock()
			mu.Lock()
			delete(held, j.Instance.ID)
			mu.Unlock()
		})
	}
	for range n {
		w.joins("")
	}
	wg.Wait()
}
