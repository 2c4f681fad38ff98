package offer

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"btools/lib/pool/bus"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a    bus.Answer
		err  error
		want result
	}{
		{bus.Answer{Yes: true}, nil, accepted},
		{bus.Answer{}, nil, declined},
		{bus.Answer{Left: new(3)}, nil, declined},
		{bus.Answer{Left: new(0)}, nil, satisfied},
		{bus.Answer{Yes: true, Left: new(0)}, nil, accepted},
		{bus.Answer{}, bus.ErrNobody, dead},
		{bus.Answer{}, bus.ErrLate, silent},
		{bus.Answer{}, errors.New("it is no JSON"), silent},
	} {
		if got := outcome(c.a, c.err); got != c.want {
			t.Errorf("%+v, %v: %v, want %v", c.a, c.err, got, c.want)
		}
	}
}

// filled returns a gateway with two wants for the pool A and one for B.
func filled(all *gateways, user, id string) *gateway {
	g := all.of(gatewayKey{user, id})
	for _, pool := range []string{"A", "A", "B"} {
		g.add(fmt.Sprint(pool, len(g.wants)), &want{pool: pool})
	}
	return g
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var all gateways
	g := filled(&all, "u", "g")
	offer := func(r result, ended int) {
		t.Helper()
		g.open++
		if got := g.answered(now, "A", r); len(got) != ended || g.open != 0 {
			t.Errorf("%d wants end, not %d; %d are open", len(got), ended, g.open)
		}
	}
	for n, ms := range []time.Duration{5, 10, 20, 40, 80, 160, 200, 200} {
		offer(declined, []int{6: 2, 7: 0}[n])
		if got := g.later(now); got != ms*time.Millisecond {
			t.Errorf("a pause of %v, not %v ms", got, ms)
		}
		now = now.Add(ms * time.Millisecond)
		if got := g.later(now); got != 0 {
			t.Error("then another pause of", got)
		}
	}
	offer(accepted, 0)
	offer(declined, 0)
	if got := g.later(now); got != firstPause {
		t.Error("after a grant a pause of", got)
	}
	now = now.Add(time.Second)
	offer(silent, 0)
	offer(accepted, 0)
	offer(silent, 0)
	offer(silent, 1)
	g = filled(&all, "u", "g")
	offer(satisfied, 2)
	g = filled(&all, "u", "g")
	offer(dead, 4) // one for B was there
	for range maxOpen {
		if g.later(now) != 0 {
			t.Fatal("a pause with", g.open)
		}
		g.open++
	}
	if g.later(now) == 0 {
		t.Error("more than 32 offers are open")
	}
}

// A gateway that takes offers and lets them lapse loses its wants after three, and its user gets none after twenty.
func TestLapses(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var all gateways
	for n := range 20 {
		g := filled(&all, "u", fmt.Sprint("g", n/5))
		if got := len(g.over(now, false)); (got > 0) != (n%5 == 2 || n == 19) {
			t.Errorf("lapse %d: %d wants end", n, got)
		}
		now = now.Add(100 * time.Millisecond)
	}
	late := all.of(gatewayKey{"u", "another"}).later(now)
	if other := all.of(gatewayKey{"v", "g0"}).later(now); late < 9*time.Second || other != 0 {
		t.Errorf("pauses of %v, and of %v for another user", late, other)
	}
	now = now.Add(late)
	g := filled(&all, "u", "g9")
	if g.later(now) != 0 || len(g.wants) != 0 {
		t.Error("it does not end, or it may want", g.wants)
	}
	g.over(now, true)
	g = filled(&all, "u", "g9")
	for range 50 {
		if got := g.over(now, false); got != nil || g.later(now) != 0 {
			t.Fatal("punished for lapses between leases")
		}
		g.over(now, true)
		now = now.Add(time.Second)
	}
	for _, u := range all.users {
		for _, g := range u.gateways {
			g.drop("")
		}
		if u.wants != 0 {
			t.Error(u.wants, "wants are counted that are not there")
		}
	}
	if all.clean(now.Add(time.Minute)); len(all.users) != 0 {
		t.Error("users are kept")
	}
}

// A user has a bound of wants, however many processes it has.
func TestManyWants(t *testing.T) {
	t.Parallel()
	var all gateways
	added := 0
	for n := range maxWants * 2 {
		if all.of(gatewayKey{"u", fmt.Sprint(n % 300)}).add(fmt.Sprint(n), &want{}) {
			added++
		}
	}
	if added != maxWants || !all.of(gatewayKey{"v", "0"}).add("x", &want{}) {
		t.Error(added)
	}
	g := all.of(gatewayKey{"u", "0"})
	g.remove("0")
	if g.remove("0") != nil || g.remove("none") != nil || !g.add("y", &want{}) || g.add("z", &want{}) {
		t.Error("one that leaves makes no room for one")
	}
}

// A host hides after three offers in a row that several gateways could not use.
func TestHiding(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for offers, hides := range map[string]bool{"ab": false, "aaaa": false, "aab": true, "abb": true, "abLa": false,
		"aaLabLba": false, "aaaab": true, "abaL": false} {
		var all gateways
		for _, c := range offers {
			all.used(now, string(c), c == 'L')
		}
		if got := all.hidden == now.Add(hideTime); got != hides || !got && !all.hidden.IsZero() {
			t.Errorf("%s: hidden until %v", offers, all.hidden)
		}
	}
}
