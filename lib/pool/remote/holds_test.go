package remote

import (
	"slices"
	"testing"
	"time"
)

// A gateway knows before the host that a lease has ended, if their clocks' rates differ by at most 20 %.
func TestTheGatewayKnowsFirst(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for _, rate := range []float64{0.8, 0.9, 1, 1.1, 1.2} { // of the gateway's clock, the host's being true
		clock := func(after time.Duration) time.Time { return began.Add(time.Duration(float64(after) * rate)) }
		for _, late := range []time.Duration{0, time.Millisecond, 3 * time.Second} { // until a hold arrives
			var h Holds
			h.Add(clock(0), "l", "boot")
			sent := 4 * time.Second
			h.Answered(clock(sent), "boot", nil)
			ends := sent + late + EndTime // the hold that arrived last
			if lost, again := h.Lost(clock(sent)); len(lost) > 0 || again != clock(sent).Add(LossTime) {
				t.Error(rate, lost, again)
			}
			if lost, again := h.Lost(clock(ends)); !slices.Equal(lost, []string{"l"}) || !again.IsZero() {
				t.Errorf("rate %v, %v late: %v are lost when the host ends the lease", rate, late, lost)
			}
		}
	}
}

func TestHolds(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	var h Holds
	if lost, again := h.Lost(at(0)); lost != nil || !again.IsZero() {
		t.Error("no leases:", lost, again)
	}
	h.Add(at(0), "a", "one")
	if lost, _ := h.Lost(at(7.9)); lost != nil {
		t.Error("too early:", lost)
	}
	h.Add(at(5), "b", "one") // a grant is a sign of life
	if lost, again := h.Lost(at(12.9)); lost != nil || again != at(13) {
		t.Error("after another grant:", lost, again)
	}
	h.Answered(at(9), "one", nil)
	if lost := h.Answered(at(8), "one", []string{"a"}); lost != nil { // it came later
		t.Error("an answer that is older than another:", lost)
	}
	h.Add(at(10.5), "c", "one")
	h.Add(at(9.5), "d", "one") // its grant was slow
	if lost := h.Answered(at(10.6), "one", []string{"a", "x"}); !slices.Equal(lost, []string{"a"}) {
		t.Error("one that has ended:", lost)
	}
	h.Remove("b")
	if got := h.Leases(); !slices.Equal(got, []string{"c", "d"}) {
		t.Error(got)
	}
	if lost, _ := h.Lost(at(18.6)); !slices.Equal(lost, []string{"c", "d"}) || h.Leases() != nil {
		t.Error("no answer for 8 s:", lost)
	}
}
