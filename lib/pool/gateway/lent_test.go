package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/guard"
	"btools/lib/pool"
	"btools/lib/pool/remote"
)

// fakeHost answers as a host does; each third answer is lost.
type fakeHost struct {
	mu       sync.Mutex
	requests []string
	answers  int
	lines    []string
	ended    api.Notices
	leases   int
	unheard  []string // leases whose process does not answer
}

const fakeAddr = "127.0.9.1:80"

func (h *fakeHost) answer(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, _ := io.ReadAll(r.Body)
	h.requests = append(h.requests, r.URL.Path+" "+string(b))
	var answer any
	switch r.URL.Path {
	case "/lease", "/renew":
		if r.URL.Path == "/lease" {
			h.leases++
		}
		id := fmt.Sprint("lease_1_aaaaaaaaaaaaaaa", h.leases)
		answer = map[string]any{"v": 1, "lease": map[string]any{"id": id, "pool": "A", "instance": "0"}}
	case "/hold":
		var p pool.Holding
		json.Unmarshal(b, &p)
		held := pool.Held{Gone: []string{}, Unheard: h.unheard, Notices: map[string]api.Notices{}}
		for _, id := range p.Leases {
			n := h.ended
			if n.Last = len(h.lines); n.Last > p.After[id] {
				n.Lines = h.lines[p.After[id]:]
			}
			if n.Ended != "" {
				held.Gone = append(held.Gone, id)
			}
			held.Notices[id] = n
		}
		answer = held
	default:
		answer = struct{}{}
	}
	if h.answers++; r.URL.Path != "/lease" && h.answers%3 == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	text, _ := json.Marshal(answer)
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(string(text)))}, nil
}

// asked returns how many requests a fake host has got that have a beginning.
func (h *fakeHost) asked(beginning string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.requests {
		if strings.HasPrefix(r, beginning) {
			n++
		}
	}
	return n
}

// lentTest runs a test with the leases of a gateway, and a host that has had one which keeps "k". All its events are
// in the list.
func lentTest(t *testing.T, test func(t *testing.T, l *Lent, h *fakeHost, events *[]string)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 0, 0, 1)
		h := &fakeHost{}
		c.strangers[fakeAddr] = h.answer
		var events []string
		l := NewLent(c.current()[0].Gateway, guard.Guard{}, func(e pool.Event, held time.Duration) {
			events = append(events, fmt.Sprintf("%s of %s after %v: %s", e.Event, e.By, held.Round(time.Second), e.Why))
		})
		l.kept["A k"] = &remote.Offer{Region: "r", Host: "h", Pool: "A", URL: "http://" + fakeAddr}
		defer func() {
			c.current()[0].end(nil)
			l.Close()
		}()
		test(t, l, h, &events)
	})
}

var ann = &control.Peer{UID: 70001}

// again leases from the fake host.
func (t *Lent) again(tt *testing.T, ctx context.Context, r LoanRequest) (id string) {
	tt.Helper()
	r.Request, r.By = Request{Pool: "A", Keep: "k", Holder: "h"}, ann
	rec, is := t.Again(ctx, r)
	if !is {
		tt.Fatal("there is no lease")
	}
	var l struct{ ID string }
	rec.Get("lease", &l)
	return l.ID
}

// A lease whose process at the host does not answer is lost when the host may have ended it, and no other is.
func TestAnUnheardLease(t *testing.T) {
	lentTest(t, func(t *testing.T, l *Lent, h *fakeHost, events *[]string) {
		lost, other := l.again(t, t.Context(), LoanRequest{}), l.again(t, t.Context(), LoanRequest{})
		h.mu.Lock()
		h.unheard = []string{lost}
		h.mu.Unlock()
		time.Sleep(remote.LossTime - 3*time.Second)
		if !l.Has(lost) {
			t.Error("it is lost at once")
		}
		time.Sleep(5 * time.Second)
		if l.Has(lost) || !l.Has(other) || !strings.Contains((*events)[len(*events)-1], "has not answered for 8s") {
			t.Errorf("%v", *events)
		}
	})
}

// A request for one region does not get a browser of another one, whose host had the last lease.
func TestKeepOfAnotherRegion(t *testing.T) {
	lentTest(t, func(t *testing.T, l *Lent, h *fakeHost, _ *[]string) {
		for region, want := range map[string]bool{"": true, "r": true, "other": false} {
			r := LoanRequest{Request: Request{Pool: "A", Keep: "k", Region: region}, By: ann}
			if _, is := l.Again(t.Context(), r); is != want || l.Keeps(r) != want {
				t.Errorf("region %q: there is a lease %v, want %v", region, is, want)
			}
		}
	})
}

// The holder gets each line once and in order, however many answers of the host are lost, and why the lease has ended.
func TestNoticesOfALease(t *testing.T) {
	lentTest(t, func(t *testing.T, l *Lent, h *fakeHost, events *[]string) {
		id := l.again(t, t.Context(), LoanRequest{})
		go func() {
			for n := range 150 {
				time.Sleep(time.Duration(n%7) * 100 * time.Millisecond)
				h.mu.Lock()
				h.lines = append(h.lines, fmt.Sprint("line ", n))
				h.mu.Unlock()
			}
			h.mu.Lock()
			h.ended = api.Notices{Ended: "another one has it", Yielded: true}
			h.mu.Unlock()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var got []string
		n := api.Notices{}
		for n.Ended == "" {
			var is bool
			var err error
			if n, is, err = l.Notices(ctx, id, n.Last); !is || err != nil {
				t.Fatal(n, is, err)
			}
			got = append(got, n.Lines...)
		}
		if len(got) != 150 || !slices.IsSortedFunc(got, func(a, b string) int {
			var i, k int
			fmt.Sscanf(a+" "+b, "line %d line %d", &i, &k)
			return i - k
		}) {
			t.Errorf("%d lines: %v", len(got), got)
		}
		if _, is, _ := l.Notices(t.Context(), id, 0); !n.Yielded || is || l.Len() > 0 {
			t.Errorf("at the end: %+v, %d leases", n, l.Len())
		}
		if len(*events) != 2 || !strings.HasPrefix((*events)[1], "yielded of uid:70001") {
			t.Errorf("%v", *events)
		}
	})
}

// A lease ends with its time to live, its connection unless it was confirmed, or its host; requests are repeated until
// the host answers; the lease of somebody else is as unknown as none.
func TestEndsOfLeases(t *testing.T) {
	lentTest(t, func(t *testing.T, l *Lent, h *fakeHost, events *[]string) {
		ctx, leave := context.WithCancel(t.Context())
		brief := l.again(t, ctx, LoanRequest{TTL: time.Minute})
		bound := l.again(t, ctx, LoanRequest{Binding: pool.Binding{Bound: true}})
		confirmed := l.again(t, ctx, LoanRequest{Binding: pool.Binding{Confirm: true}})
		waits := l.again(t, ctx, LoanRequest{Binding: pool.Binding{Confirm: true}})
		if err := l.Confirm(confirmed); err != nil {
			t.Error(err)
		}
		if err := l.Confirm(confirmed); control.ErrorOf(err).Code != control.BadRequest {
			t.Errorf("confirmed twice: %v", err)
		}
		leave()
		synctest.Wait()
		time.Sleep(time.Second)
		if l.Len() != 2 || l.Has(bound) || l.Has(waits) || h.asked("/release") < 2 {
			t.Errorf("%d leases, after %v", l.Len(), *events)
		}
		bob := &control.Peer{UID: 70002}
		if !l.MayUse(ann, brief) || l.MayUse(bob, brief) || len(l.ReleaseAll(bob)) > 0 {
			t.Error("another user may end it")
		}
		if p := l.Status(bob, "A"); len(p) != 1 || p[0].Instances[0].Lease != "" || p[0].Instances[0].Host != "h" ||
			len(l.Status(bob, "B")) > 0 || l.Status(ann, "")[0].Instances[1].Lease != confirmed {
			t.Errorf("%+v", p)
		}
		if err := l.Rest(brief); err != nil || h.asked("/rest") == 0 {
			t.Error(err)
		}
		time.Sleep(50 * time.Second)
		if i := l.Status(ann, "")[0].Instances[0]; i.LeaseIdle == nil || *i.LeaseIdle < 50_000 {
			t.Errorf("%+v", i)
		}
		if _, err := l.Renew(brief, 0); err != nil || h.asked("/renew") == 0 {
			t.Error(err)
		}
		time.Sleep(58 * time.Second)
		if i := l.Status(ann, "")[0].Instances[0]; i.Lease != brief || i.LeaseIdle != nil {
			t.Errorf("%+v", i)
		}
		time.Sleep(3 * time.Second)
		if l.Has(brief) || !l.Has(confirmed) {
			t.Error("it outlives its time")
		}
		h.mu.Lock()
		h.ended.Ended = "it has gone"
		h.mu.Unlock()
		time.Sleep(3 * time.Second)
		if l.Len() > 0 || !strings.HasPrefix((*events)[len(*events)-1], "lost of uid:70001") {
			t.Errorf("%v", *events)
		}
		if h.asked(`/lease {"here":true,"holder":"h","keep":"`) != 4 {
			t.Errorf("%v", h.requests)
		}
	})
}
