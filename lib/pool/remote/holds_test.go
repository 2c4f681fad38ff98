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
			h.Add(clock(0), "l")
			sent := 4 * time.Second
			h.Answered(clock(sent), []string{"l"}, nil)
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
	h.Add(at(0), "a")
	if lost, again := h.Lost(at(7.9)); lost != nil || again != at(8) {
		t.Error("too early:", lost, again)
	}
	h.Add(at(5), "b") // by which the host does not have another one go on
	if lost, again := h.Lost(at(8)); !slices.Equal(lost, []string{"a"}) || again != at(13) {
		t.Error("after another grant:", lost, again)
	}
	h.Add(at(6), "c") // the grant is slow, so that a hold that was sent after it does not name it
	h.Answered(at(9), []string{"b", "x"}, nil)
	h.Answered(at(7), []string{"b"}, nil) // it came later
	if lost, again := h.Lost(at(14)); !slices.Equal(lost, []string{"c"}) || again != at(17) {
		t.Error("one that was not held:", lost, again)
	}
	h.Add(at(14), "d")
	if lost := h.Answered(at(15), []string{"b", "d"}, []string{"b", "x"}); !slices.Equal(lost, []string{"b"}) {
		t.Error("one that has ended:", lost)
	}
	h.Add(at(16), "e")
	h.Remove("e")
	if got := h.Leases(); !slices.Equal(got, []string{"d"}) {
		t.Error(got)
	}
	if lost, again := h.Lost(at(23)); !slices.Equal(lost, []string{"d"}) || !again.IsZero() || len(h.Leases()) > 0 {
		t.Error("no answer for 8 s:", lost, again)
	}
}
