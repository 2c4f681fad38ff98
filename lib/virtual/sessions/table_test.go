package sessions

import (
	"testing"
	"time"
)

// FuzzTable does what the bytes say: any order of users, creations, traffic and
// time. A session is there as long as somebody may rely on it, and no longer.
func FuzzTable(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add([]byte{0, 0, 3, 0, 6, 6, 200, 9, 9, 1, 4, 7, 200})
	f.Fuzz(func(t *testing.T, ops []byte) {
		const most = 2
		now := time.Unix(0, 0)
		table := table{grace: 10 * time.Second, idle: time.Minute, hibernate: 20 * time.Second, max: most,
			entries: map[Key]*entry{}}
		users := map[*entry]int{}
		spoke := map[*entry]*time.Time{}
		for _, op := range ops {
			k := Key{Name: "x", Kind: Kind(op % 3)}
			switch e := table.entries[k]; {
			case op >= 100:
				now = now.Add(time.Duration(op-99) * time.Second / 2)
			case op < 50:
				sleeps := e != nil && e.state == asleep
				if (e == nil || sleeps) && table.awake() == most {
					if _, _, err := table.enter(k); err == nil {
						t.Fatal("one session too many")
					}
					break
				}
				got, created, err := table.enter(k)
				if err != nil || created != (e == nil || sleeps) || e != nil && got != e {
					t.Fatalf("entering %v: created %v, %v", k, created, err)
				}
				users[got]++
				if sleeps { // the registry says that it is used now
					*spoke[got] = now
				}
			case e == nil:
			case op < 70 && (e.state == creating || e.state == waking):
				at := now
				table.created(e, func() time.Time { return at })
				spoke[e] = &at
			case op < 80 && e.state != creating:
				*spoke[e] = now
			case users[e] > 0:
				users[e]--
				if dropped := table.leave(e, now); dropped != (e.state == creating && users[e] == 0) {
					t.Fatalf("the creation of %v was dropped: %v, with %d users", k, dropped, users[e])
				}
			}
			ended, drowsy, next, ok := table.expire(now)
			for _, e := range ended {
				if e.state == creating || e.key.Kind != Named && users[e] > 0 || e.key.Kind == Named &&
					now.Sub(*spoke[e]) < table.idle ||
					e.key.Kind == Anonymous && now.Sub(e.left) < table.grace || table.entries[e.key] == e {
					t.Fatalf("%v has ended with %d users", e.key, users[e])
				}
			}
			for _, e := range drowsy {
				if e.key.Kind != Named || users[e] > 0 || now.Sub(e.left) < Settle ||
					now.Sub(*spoke[e]) < table.hibernate {
					t.Fatalf("%v is hibernated with %d users", e.key, users[e])
				}
				if sleeps := table.saved(e, op%2 == 0, now); sleeps != (op%2 == 0) {
					t.Fatalf("%v is hibernated: %v", e.key, sleeps)
				}
			}
			if ok && !next.After(now) {
				t.Fatal("the next end has passed")
			}
			for _, e := range table.entries {
				if e.state != creating && (e.key.Kind == Named && now.Sub(*spoke[e]) >= table.idle ||
					e.key.Kind == Anonymous && users[e] == 0 && now.Sub(e.left) >= table.grace ||
					e.key.Kind == Single &&
						users[e] == 0) {
					t.Fatalf("%v is still there", e.key)
				}
				if !ok && e.state != creating && (e.key.Kind == Named || users[e] == 0) {
					t.Fatalf("nobody knows when %v ends", e.key)
				}
			}
		}
	})
}
