package supply

import (
	"errors"
	"testing"
	"time"

	"btools/lib/exit"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	refused := errors.New("no memory")
	now := time.Unix(1000, 0)
	var r Retry
	for n, c := range []struct {
		ran          time.Duration
		launch       error
		at, onDemand time.Duration
		words        string
	}{
		{time.Minute, nil, 0, 0, "a new browser replaces it; its pages are lost"},
		{time.Second, nil, time.Second, time.Second, "another one is launched in 1s"},
		{time.Second, nil, 2 * time.Second, time.Second, "another one is launched in 2s"},
		{time.Second, refused, 4 * time.Second, 4 * time.Second, "another one is launched in 4s"},
		{6 * time.Minute, nil, 0, 0, "a new browser replaces it; its pages are lost"},
		{6 * time.Minute, refused, time.Second, time.Second, "another one is launched in 1s"},
	} {
		words := r.Failed(now, c.ran, c.launch)
		if words != c.words || r.At.Sub(now) != c.at || r.OnDemand.Sub(now) != c.onDemand || r.Definite {
			t.Errorf("step %d: %q, in %v, %v on demand", n, words, r.At.Sub(now), r.OnDemand.Sub(now))
		}
	}
	for range 10 {
		r.Failed(now, 0, refused)
	}
	if r.At.Sub(now) != time.Minute {
		t.Error("the longest delay is", r.At.Sub(now))
	}
	r.Reset()
	if r.Failed(now, 0, nil); r.At != now {
		t.Error("after a reset:", r.At.Sub(now))
	}
	r = Retry{Off: true}
	if words := r.Failed(now, 0, exit.Errorf(exit.Config, "no such browser")); r.At != Never || r.OnDemand != Never ||
		!r.Definite || words != "it will not be replaced (RESTART=never)" {
		t.Errorf("%q %+v", words, r)
	}
}

func TestWear(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wear Wear
		uses int
		want Grounds
	}{
		{Wear{}, 1000, Grounds{}},
		{Wear{Once: true, MaxUses: 3, MaxAge: time.Minute}, 0, Grounds{}},
		{Wear{Once: true, MaxUses: 1}, 1, Grounds{Used, "has had a lease (ISOLATED=true)"}},
		{Wear{MaxUses: 3}, 2, Grounds{}},
		{Wear{MaxUses: 3}, 3, Grounds{Used, "has had 3 leases (MAX_USES=3)"}},
		{Wear{MaxAge: time.Minute}, 1, Grounds{}},
		{Wear{MaxAge: time.Second}, 1, Grounds{Old, "is 30s old (MAX_AGE=1s)"}},
	} {
		if got := c.wear.Of(c.uses, 30*time.Second); got != c.want {
			t.Errorf("%+v, %d uses: %+v", c.wear, c.uses, got)
		}
	}
	const mib = 1 << 20
	heavy := Grounds{TooHeavy, "has 201 MiB of memory (MAX_MEMORY=200MiB)"}
	if (Wear{}).OfMemory(1000*mib) != (Grounds{}) || (Wear{MaxMemory: 200 * mib}).OfMemory(200*mib) != (Grounds{}) ||
		(Wear{MaxMemory: 200 * mib}).OfMemory(201*mib) != heavy {
		t.Error((Wear{MaxMemory: 200 * mib}).OfMemory(201 * mib))
	}
}
