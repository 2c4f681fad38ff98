package source

import (
	"context"
	"strings"
	"testing"
	"time"
)

// A result tells once of each hibernation, and of nothing that was none.
func TestLearnRestored(t *testing.T) {
	var now hibernation
	known, looks := true, 0
	n := &nap{after: time.Minute, look: func(context.Context) (hibernation, bool) {
		looks++
		return now, known
	}}
	says := func(what string, want bool) {
		t.Helper()
		l := &Lease{nap: n}
		l.LearnRestored(t.Context())
		if told := strings.Contains(l.restored, "not been used for 1m0s and was hibernated"); told != want {
			t.Errorf("%s: the result says %q", what, l.restored)
		}
	}
	says("children that were never stopped", false)
	if looks > 0 {
		t.Errorf("a browser whose children run was asked for %d times", looks)
	}
	n.begin(n.after)
	known = false
	says("a browser that is not known", false)
	known, now.Hibernated = true, true
	says("a call that has not woken it", false)
	now = hibernation{RestoredAt: "2026-01-02T10:15:30.123Z"}
	says("a browser that has come back", true)
	says("the next result", false)
	n.begin(n.after)
	says("children that were started again before its hibernation", false)
	n.begin(n.after)
	now.RestoredAt = "2026-01-02T11:15:30.123Z"
	says("a browser that has come back again", true)
	says("the next result", false)
	(&Lease{}).LearnRestored(t.Context()) // a browser that is never hibernated
}

func TestNoteOnARestoredBrowser(t *testing.T) {
	s := &ownByChild{}
	l := &Lease{Browser: Browser{ID: "one", Session: "a"}}
	if r := s.Note(t.Context(), l); r != (Note{}) {
		t.Errorf("the first result says %+v", r)
	}
	l.ID, l.restored = "two", "it was hibernated"
	r := s.Note(t.Context(), l)
	if r != (Note{Restored: "it was hibernated"}) || !strings.Contains(r.Text(), "a new one") {
		t.Errorf("the result of a browser that came back in another process says %+v", r)
	}
	l.restored = ""
	if r := s.Note(t.Context(), l); r != (Note{}) {
		t.Errorf("the next result says %+v", r)
	}
	l.ID = "three"
	if r := s.Note(t.Context(), l); !strings.Contains(r.Replaced, "anew") || r.Restored != "" {
		t.Errorf("the result of another browser says %+v", r)
	}
}
