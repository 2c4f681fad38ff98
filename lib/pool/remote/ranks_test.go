package remote

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// Hosts are asked in the order of their ranks, from one below the last that had room, and from the first one each
// second.
func TestRanks(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	table := New([]string{"r"}, time.Second, []string{"r0", "r1", "r2", "r3"}, rand.New(rand.NewPCG(1, 1)))
	// request returns the ranks that a new request asks until it has an offer or waits. Of those with an answer, only
	// some have room, and the host of one of them cannot serve it.
	request := func(has string, silent, cannot string) string {
		r := &Request{ID: "r", Pool: "p", Began: now}
		table.Enter(now, r)
		var asked []string
		for {
			steps, _ := table.Due(now)
			i := slices.IndexFunc(steps, func(s Step) bool { return s.Do == Ask })
			if i < 0 {
				break
			}
			s := steps[i]
			asked = append(asked, s.Rank)
			var o *Offer
			if strings.Contains(has, s.Rank) {
				o = &Offer{ID: "o", Region: "r", Host: "h", Pool: "p"}
			}
			none := s.Rank == cannot
			if s.Rank == silent {
				now = now.Add(AnswerTime)
				table.Asked(now, s.Seq, nil, false, false)
			} else if table.Asked(now, s.Seq, o, none, !none); r.reaches[0].waits || r.taking != nil {
				break
			}
		}
		table.Leave(r)
		return strings.Join(asked, " ")
	}
	for _, test := range []struct {
		later                     time.Duration
		has, silent, cannot, want string
	}{
		{0, "r0 r1", "", "", "r0"},
		{0, "r1", "", "", "r0 r1"},
		{0, "r3", "", "", "r0 r1 r2 r3"},
		{0, "r3", "", "", "r2 r3"},
		{0, "r0 r2", "", "", "r2"},
		{0, "r0", "", "", "r1 r2 r3 r0"},
		{0, "r3", "", "r2", "r0 r1 r2 r3"},
		{time.Second, "r0 r3", "", "", "r0"},
		{0, "", "", "", "r0 r1 r2 r3"},
		{time.Second, "r2 r0", "r0", "", "r0 r1 r2"},
		{0, "r2 r0", "r0", "", "r1 r2"},
		{2 * time.Second, "r0", "", "", "r0"},
		{0, "", "r3", "", "r0 r1 r2 r3 r0 r1 r2 r3 r0 r1 r2 r3"},
	} {
		now = now.Add(test.later)
		if got := request(test.has, test.silent, test.cannot); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}
