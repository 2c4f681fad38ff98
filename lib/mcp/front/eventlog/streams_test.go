package eventlog

import (
	"fmt"
	"slices"
	"testing"
)

// Whatever is added, answered and read: from each event on, a host gets what
// was added after it, in order, or is told that the event is not kept; an event
// is dropped only beyond the limits.
func FuzzStreams(f *testing.F) {
	f.Add([]byte("b0a0a0r0l0r0b0b1a1f1l1"))
	f.Add([]byte("a9a9a9a9a9a9r9a9b1l1b2l2b3l3b4l4"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		limits := Limits{Unsent: 5, UnsentBytes: 40, SentBytes: 12, Finished: 3}
		s := newStreams(false, limits)
		added := map[*Stream][]string{} // the model: all messages of a stream
		answers := map[string]*Stream{}
		made := []*Stream{s.general}
		for i := 0; i+1 < len(ops); i += 2 {
			id := string(ops[i+1])
			switch ops[i] {
			case 'b':
				st, taken := s.begin(nil, []string{id})
				if (st == nil) != (answers[id] != nil) || st == nil && taken != id {
					t.Fatalf("%s begins: %v, %q is taken", id, st, taken)
				}
				if st != nil {
					answers[id] = st
					made = append(made, st)
				}
			case 'a', 'l':
				st, last := answers[id], ops[i] == 'l'
				if st == nil && !last {
					st = s.general
				}
				message := fmt.Sprintf("%d-%x", i, id)
				if st != nil {
					added[st] = append(added[st], message)
				}
				if last {
					delete(answers, id)
				}
				s.add(id, last, []byte(message))
			case 'f':
				s.drop(id)
				if st := answers[id]; st != nil {
					delete(answers, id)
					made = slices.DeleteFunc(made, func(other *Stream) bool { return other == st })
				}
			case 'r': // a host that takes all but the last event
				st := made[int(ops[i+1])%len(made)]
				if s.all[st.number] != st {
					break
				}
				listener := s.attach(st)
				first, events, over, current := s.since(st, st.sent, listener)
				if !current || over != st.closed || first+len(events) != st.end() {
					t.Fatalf("%d events from %d, over %v, current %v", len(events), first, over, current)
				}
				st.sent = max(st.sent, first+len(events)-1)
				s.detach(st, listener)
			}
			finished := 0
			for _, st := range made {
				all := added[st]
				if s.all[st.number] != st {
					if !st.closed {
						t.Fatalf("the open stream %d is forgotten", st.number)
					}
					continue
				}
				if st.closed {
					finished++
				}
				if st.end() != len(all) {
					t.Fatalf("stream %d has %d events, want %d", st.number, st.end(), len(all))
				}
				size := 0
				for from := range len(all) + 1 {
					found, at, err := s.find(fmt.Sprintf("%d-%d", st.number, from))
					if (err == nil) != (from >= st.dropped) || err == nil && (found != st || at != from) {
						t.Fatalf("event %d-%d: %v", st.number, from, err)
					}
					if err != nil {
						continue
					}
					_, events, _, _ := s.since(st, from, st.listener)
					if got := fmt.Sprintf("%s", events); got != fmt.Sprint(all[from:]) {
						t.Fatalf("after %d-%d come %s, want %v", st.number, from, got, all[from:])
					}
				}
				for _, message := range all[st.dropped:] {
					size += len(message)
				}
				if size != st.size || len(st.events) > limits.Unsent || len(st.events) > 1 &&
					size > limits.UnsentBytes {
					t.Fatalf("stream %d keeps %d events of %d bytes, %d counted", st.number, len(st.events), size,
						st.size)
				}
			}
			if finished > limits.Finished {
				t.Fatalf("%d finished streams are kept", finished)
			}
		}
	})
}
