package hub

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func anyInstance(Info) bool { return true }

// claimed claims an instance in the background.
func claimed(ctx context.Context, h *Hub, as string, wanted func(Info) bool) <-chan string {
	got := make(chan string, 1)
	go func() {
		l, err := h.Claim(ctx, Claimant{As: as}, wanted)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- l.Instance.ID
	}()
	return got
}

// An instance has one holder at a time: until its context ends, or the instance
// does.
func TestClaim(t *testing.T) {
	h, url := testHub(t, limits{})
	a, player := join(t, url, nil)
	player.welcomed()
	first, release := context.WithCancel(t.Context())
	if got := <-claimed(first, h, "", anyInstance); got != a.InstanceID {
		t.Fatalf("claimed %s, want %s", got, a.InstanceID)
	}
	if all := h.List(); len(all) != 1 || !all[0].Claimed {
		t.Errorf("%+v is listed, want it claimed", all)
	}
	second := claimed(t.Context(), h, "second", anyInstance)
	b, player2 := join(t, url, nil)
	player2.welcomed()
	if got := <-second; got != b.InstanceID {
		t.Errorf("claimed %s, want the other one, %s", got, b.InstanceID)
	}
	if l := h.Find("second"); l == nil || l.Instance.ID != b.InstanceID {
		t.Error("it is not found by the name of its claim")
	}
	if got := <-claimed(t.Context(), h, "second", anyInstance); got != `the name "second" is in use` {
		t.Errorf("a second claim has the same name: %s", got)
	}
	third := claimed(t.Context(), h, "", anyInstance)
	release()
	if got := <-third; got != a.InstanceID {
		t.Errorf("claimed %s, want %s, which was released", got, a.InstanceID)
	}
	// One that joins again with its ID is another browser to its holder.
	h.Find(b.InstanceID).Disconnect()
	again, player3 := join(t, url, map[string]any{"instanceId": b.InstanceID})
	player3.welcomed()
	if got := <-claimed(t.Context(), h, "second", anyInstance); got != again.InstanceID || got != b.InstanceID {
		t.Errorf("claimed %s, want %s again", got, b.InstanceID)
	}
}

// A holder that says who it is may claim an instance again, which others don't get
// before all of its claims have ended.
func TestClaimAgain(t *testing.T) {
	h, url := testHub(t, limits{})
	a, player := join(t, url, nil)
	player.welcomed()
	ctx, release := context.WithCancel(t.Context())
	try := func(who Claimant) string {
		l, err := h.TryClaim(ctx, who, anyInstance)
		switch {
		case err != nil:
			return err.Error()
		case l == nil:
			return ""
		}
		return l.Instance.ID
	}
	for _, step := range []struct {
		who  Claimant
		want string
	}{
		{Claimant{As: "x", By: "me"}, a.InstanceID},
		{Claimant{As: "y", By: "me"}, a.InstanceID},
		{Claimant{As: "y", By: "me"}, `the name "y" is in use`},
		{Claimant{As: "z", By: "you"}, ""},
		{Claimant{As: "z"}, ""},
	} {
		if got := try(step.who); got != step.want {
			t.Errorf("%+v claims %q, want %q", step.who, got, step.want)
		}
	}
	for _, name := range []string{"x", "y"} {
		if l := h.Find(name); l == nil || l.Instance.ID != a.InstanceID {
			t.Errorf("it is not found as %s", name)
		}
	}
	next := claimed(t.Context(), h, "z", anyInstance)
	release()
	if got := <-next; got != a.InstanceID {
		t.Errorf("claimed %s after all claims have ended", got)
	}
}

// Nobody gets what somebody else has, and a holder that does not want an
// instance leaves it to others.
func TestClaimsAtOnce(t *testing.T) {
	h, url := testHub(t, limits{})
	const n = 10
	ctx, cancel := context.WithCancelCause(t.Context())
	var mu sync.Mutex
	got := map[string]int{}
	var wg, have sync.WaitGroup
	have.Add(n)
	for range 2 * n {
		wg.Go(func() {
			l, err := h.Claim(ctx, Claimant{}, anyInstance)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				got[l.Instance.ID]++
				have.Done()
			}
		})
	}
	for range n {
		_, p := join(t, url, nil)
		p.welcomed()
	}
	have.Wait()
	cancel(errors.New("enough"))
	wg.Wait()
	for id, times := range got {
		if times != 1 {
			t.Errorf("%s was claimed %d times", id, times)
		}
	}
	if len(got) != n {
		t.Errorf("%d instances were claimed, want %d", len(got), n)
	}
}
