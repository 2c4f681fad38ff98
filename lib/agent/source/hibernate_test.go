package source

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control/api"
	"btools/lib/record"
)

func at(hour int) *record.Time {
	return &record.Time{Time: time.Date(2026, 1, 2, hour, 15, 30, 123e6, time.UTC)}
}

// A result tells once of each hibernation, and of nothing that was none.
func TestNoteOnAHibernatedBrowser(t *testing.T) {
	var now *api.Hibernation
	looks := 0
	u, n := &ownerUse{Source: &Source{}}, &hibernated{}
	says := func(what string, want bool) {
		t.Helper()
		l := &Lease{note: n, look: func(context.Context) *api.Hibernation { looks++; return now }}
		r := u.Note(t.Context(), l)
		if told := strings.Contains(r.Restored, "not been used for 1m0s and was hibernated"); told != want {
			t.Errorf("%s: the result says %+v", what, r)
		}
	}
	says("children that were never stopped", false)
	if looks > 0 {
		t.Errorf("a browser whose children run was asked for %d times", looks)
	}
	n.begin(time.Minute)
	says("a browser that is not known", false)
	now = &api.Hibernation{Hibernated: true}
	says("a call that has not woken it", false)
	now = &api.Hibernation{RestoredAt: at(10)}
	says("a browser that has come back", true)
	says("the next result", false)
	n.begin(time.Minute)
	says("children that were started again before its hibernation", false)
	n.begin(time.Minute)
	now.RestoredAt = at(11)
	died := make(chan struct{})
	close(died)
	if r := u.Note(t.Context(), &Lease{note: n, Died: died}); r != (Note{}) {
		t.Errorf("the result of a browser that has ended says %+v", r)
	}
	says("a browser that has come back again", true)
	says("the next result", false)
}

// After a crash a result says as of when logins and data are, and what is not back; before it, once, what is not kept.
func TestNoteOnWhatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const large = "http://a.example: it has more than 64 MiB of storage"
		u := &ownerUse{Source: &Source{}}
		now := &api.Hibernation{}
		l := &Lease{Browser: Browser{ID: "one"}, look: func(context.Context) *api.Hibernation { return now }}
		says := func(what string, want ...string) {
			t.Helper()
			got := u.Note(t.Context(), l).Text()
			for _, want := range want {
				if !strings.Contains(got, want) || want == "" && got != "" {
					t.Errorf("%s: %q, want %q", what, got, want)
				}
			}
			time.Sleep(unkeptEvery)
		}
		says("the first", "")
		says("all is kept", "")
		now.Unkept = []string{large}
		says("an origin has become large", "does not come back if this browser ends without warning: "+large)
		says("it is still", "")
		now.Unkept = append(now.Unkept, "http://b.example: more")
		says("another one", "without warning: http://b.example: more.")
		kept := at(10)
		now = &api.Hibernation{RestoredAt: at(11), Lost: []string{large},
			Crash: &api.Crash{KeptAt: *kept, EndedAt: record.Time{Time: kept.Add(3100 * time.Millisecond)}}}
		l.ID, l.replaced, l.restores = "two", "it crashed", true
		says("it has crashed", "its pages were reloaded. Logins and stored data are as they were 3s before it ended, "+
			"at 10:15:30 UTC: what has changed since is lost. ", "missing or older: "+large+". What was typed")
		now.Crash, now.Lost = nil, nil
		l.ID = "three"
		says("it was saved before", "Logins and stored data are as before. ")
	})
}

func TestNoteOnARestoredBrowser(t *testing.T) {
	u := &ownerUse{Source: &Source{}}
	now := &api.Hibernation{RestoredAt: at(10)}
	l := &Lease{Browser: Browser{ID: "one", Session: "a"}, note: &hibernated{},
		look: func(context.Context) *api.Hibernation { return now }}
	if r := u.Note(t.Context(), l); r != (Note{}) {
		t.Errorf("the first result says %+v", r)
	}
	l.ID = "two"
	l.note.begin(time.Minute)
	r := u.Note(t.Context(), l)
	if !strings.Contains(r.Restored, "was hibernated") || r.Replaced != "" || !strings.Contains(r.Text(), "a new one") {
		t.Errorf("the result of a browser that came back in another process says %+v", r)
	}
	if r := u.Note(t.Context(), l); r != (Note{}) {
		t.Errorf("the next result says %+v", r)
	}
	l.ID = "three"
	if r := u.Note(t.Context(), l); !strings.Contains(r.Replaced, "anew") || r.Restored != "" {
		t.Errorf("the result of another browser says %+v", r)
	}
	l.ID, l.replaced, l.restores = "four", "it crashed", true
	if r := u.Note(t.Context(), l); !strings.Contains(r.Restored, "it crashed") || r.Replaced != "" {
		t.Errorf("the result of a browser that came back after a crash says %+v", r)
	}
}
