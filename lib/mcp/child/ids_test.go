package child

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"testing"

	"btools/lib/jsonrpc"
)

// The set is that of a map, as long as there are few ranges.
func TestIDs(t *testing.T) {
	var s idSet
	model := map[int64]bool{}
	for range 100_000 {
		n := rand.Int64N(300)
		if rand.IntN(2) == 0 {
			s.add(n)
			model[n] = true
		} else if got := s.remove(n); got != model[n] {
			t.Fatalf("%d: %v in %v", n, got, s)
		} else {
			delete(model, n)
		}
	}
	left := 0
	for i, r := range s {
		left += int(r.to - r.from + 1)
		if r.from > r.to || i > 0 && s[i-1].to+1 >= r.from {
			t.Errorf("%v", s)
		}
	}
	if left != len(model) {
		t.Errorf("%d, want %d", left, len(model))
	}
	for n := range int64(3 * maxRanges) {
		s.add(1000 + 2*n)
	}
	if len(s) > maxRanges {
		t.Errorf("%d ranges", len(s))
	}
}

// Calls that are cancelled, and that the child never answers, take no memory.
// An answer that comes all the same is nobody's.
func TestCancelledCallsAreForgotten(t *testing.T) {
	p := &Process{spec: &Spec{Name: "c"}, calls: map[int64]call{}, in: jsonrpc.NewWriter(io.Discard, 1<<30, nil)}
	p.stderr.log = io.Discard
	defer p.in.Close()
	m, _ := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{}}`))
	for range 20_000 {
		n := p.NewID()
		p.Relay(n, m, func(*jsonrpc.Message, error) { t.Error("a cancelled call is answered") })
		p.Cancel(n, "enough")
	}
	if len(p.calls) != 0 || len(p.forgotten) != 1 {
		t.Errorf("%d calls, %d ranges", len(p.calls), len(p.forgotten))
	}
	if answer, ours := p.answerTo(json.RawMessage("7")); answer != nil || !ours || len(p.forgotten) != 2 {
		t.Errorf("%v, %d ranges", ours, len(p.forgotten))
	}
	if _, ours := p.answerTo(json.RawMessage("20001")); ours {
		t.Error("what was never asked is answered")
	}
}
