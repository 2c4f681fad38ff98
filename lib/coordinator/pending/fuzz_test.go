package pending

import (
	"encoding/json"
	"fmt"
	"testing"
)

// Whatever happens in whichever order, each request stops once, releases its
// lease once, and is answered once if nobody cancels it; at the end nothing is
// left.
func FuzzEvents(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 9, 0, 10, 0, 11, 0})
	f.Add([]byte{0, 1, 1, 0, 3, 0, 4, 0, 0, 1, 7, 0, 3, 0, 12, 0, 4, 0, 8, 0, 13, 0, 14, 0})
	f.Add([]byte{0, 0, 0, 1, 1, 0, 1, 1, 3, 0, 3, 1, 3, 2, 4, 0, 4, 1, 5, 0, 2, 0, 7, 1, 5, 1, 6, 1, 15, 0})
	f.Fuzz(func(t *testing.T, events []byte) {
		all := newTable()
		all.MaxAwaiting, all.Shared = 3, len(events)%2 == 1
		children := []*child{{name: "a"}, {name: "b", alone: true}}
		var (
			requests                    []*request
			keys                        []string
			died                        = make(chan struct{})
			stopped, answered, released = map[*request]int{}, map[*request]int{}, map[*request]int{}
			silent                      = map[*request]bool{} // may get no answer
		)
		run := func(effects []effect) {
			for _, e := range effects {
				switch e.Kind {
				case Stop:
					stopped[e.Request]++
				case Answer:
					if e.Request.Detached && e.Request.state != Ended {
						t.Fatal("a detached request goes on after its answer")
					}
					if answered[e.Request]++; e.Message == nil {
						silent[e.Request] = true
					}
				case Release:
					e.Lease.Release()
				case RequireInput:
					if len(e.Questions) == 0 {
						t.Fatal("the host is asked nothing")
					}
					keys = append(keys, e.Key)
				case Reply:
					if e.Message[0] != '{' {
						t.Fatalf("a child is answered %s", e.Message)
					}
				case Cancel:
					if e.Child == nil {
						t.Fatal("nobody is told of a cancellation")
					}
					silent[e.Request] = true
				}
			}
		}
		newRequest := func(id byte) *request {
			return &request{ID: json.RawMessage(fmt.Sprint(id)), Method: "tools/call", MayAsk: id%4 != 0,
				Detached: id%7 == 3}
		}
		for n := 0; len(events) > 1; events = events[2:] {
			n++
			op, arg := events[0], events[1]
			c := children[int(arg)%len(children)]
			var r *request
			if len(requests) > 0 {
				r = requests[int(arg)%len(requests)]
			}
			key := fmt.Sprint("q", arg%5)
			switch {
			case op%17 == 0:
				r = newRequest(arg)
				if all.Add(r) == nil {
					requests = append(requests, r)
				}
			case op%17 == 3:
				run(all.Ask(c, json.RawMessage(`"`+key+`"`), key, json.RawMessage("{}")))
			case op%17 == 7:
				run(all.Cancel(json.RawMessage(fmt.Sprint(arg)), "cancelled"))
			case op%17 == 8:
				run(all.Abandon(json.RawMessage(fmt.Sprint(arg))))
			case op%17 == 10:
				all.TakeBack(c, json.RawMessage(`"`+key+`"`))
			case op%17 == 11:
				all.AskDirectly(ServerRequest[*child]{Child: c, ID: json.RawMessage(key)}, arg%3 > 0, ErrMuted)
			case op%17 == 12:
				all.ChildEnded(c)
			case op%17 == 13 && arg > 250:
				all.Mute()
			case op%17 == 14:
				for _, lost := range all.Lost(died) {
					run(all.End(lost, []byte("{}"), "lost"))
				}
			case r == nil:
			case op%17 == 1:
				if all.Relay(r, c, int64(n)) {
					run(all.Relayed(r))
				}
			case op%17 == 2:
				held := false
				_, over := all.Hold(r, Lease{Died: died, Release: func() { released[r]++ }})
				if held = !over; held && stopped[r] > 0 {
					t.Fatal("a request that is over holds a lease")
				}
			case op%17 == 4:
				run(all.Settle(r))
			case op%17 == 5 && len(keys) > 0:
				again := newRequest(arg)
				again.Input = json.RawMessage(`{"q0":{},"q1":{},"q2":1}`)
				if all.Add(again) != nil {
					break
				}
				effects, err := all.Repeat(again, keys[int(arg)%len(keys)])
				if run(effects); err != nil {
					run(all.Finish(again, []byte("{}")))
				}
			case op%17 == 6:
				run(all.Finish(r, []byte("{}")))
			case op%17 == 9:
				run(all.Expire(r, r.round))
				silent[r] = silent[r] || r.state == Ended && answered[r] == 0
			case op%17 == 16:
				all.Detach(r, fmt.Appendf(nil, `"d%d"`, n), int64(n))
			case op%17 == 15:
				if over, again := all.Late(r); over && again {
					t.Fatal("a request is over and has as long again")
				}
			}
		}
		open, _ := all.Close()
		for _, r := range open {
			run(all.Finish(r, []byte("{}")))
		}
		run(all.ExpireAll())
		for _, r := range requests {
			if r.state != Ended && r.state != Answered || stopped[r] != 1 || released[r] > 1 {
				t.Errorf("request %s: state %d, stopped %d times, lease released %d times", r.ID, r.state, stopped[r],
					released[r])
			}
			if answered[r] > 1 || answered[r] == 0 && !silent[r] && r.key == "" {
				t.Errorf("request %s is answered %d times", r.ID, answered[r])
			}
		}
		if len(all.open)+len(all.awaiting) > 0 {
			t.Errorf("%d and %d requests are left", len(all.open), len(all.awaiting))
		}
	})
}
