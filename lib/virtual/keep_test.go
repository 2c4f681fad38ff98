package virtual

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// A session that is kept is read again when it has changed; what is read brings it
// back after the end of its Chrome.
func TestLook(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<script>
			const found = [localStorage.token, sessionStorage.cart, document.cookie].join()</script>`)
	}))
	t.Cleanup(site.Close)
	b, process := openProcess(t, chrometest.StartShell)
	log := &syncBuffer{}
	b.log = slog.New(slog.NewTextHandler(log, nil))
	s := newSession(t, b, Options{Keep: true})
	look := func() *Snapshot {
		t.Helper()
		now, err := s.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	// until looks until what is read has a text.
	until := func(what, text string) (now *Snapshot) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			if now = look(); now != nil && strings.Contains(string(now.State.Export())+now.text(), text) {
				return now
			}
			if time.Now().After(end) {
				t.Fatalf("no look has shown %s", what)
			}
		}
	}
	p := connect(t, s, "")
	page := p.enter(site.URL)
	p.must("", "Target.setDiscoverTargets", map[string]any{"discover": true, "filter": []any{map[string]any{}}})
	p.must("", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true,
		"flatten": true})
	p.events = nil
	until("the page", site.URL)
	p.do(page, `localStorage.token = 'one'`)
	until("localStorage", `"one"`)
	p.do(page, fillDatabase)
	until("a database", `"things"`)
	p.do(page, `new Promise((done) => {
		const r = indexedDB.open('files')
		r.onupgradeneeded = () => r.result.createObjectStore('s').add(new DOMRect(1, 2, 3, 4), 1)
		r.onsuccess = () => { r.result.close(); done() }
	})`)
	for end := time.Now().Add(patience); !strings.Contains(log.String(), `database \"files\": DOMRect`); look() {
		if time.Now().After(end) {
			t.Fatalf("nobody is told of a database that is not kept:\n%s", log)
		}
	}
	p.do(page, `document.cookie = 'sid=two'`)
	until("a cookie", `"two"`)
	p.do(page, `sessionStorage.cart = 'three'`)
	saved := until("sessionStorage", `"three"`)
	p.pages()
	for _, e := range p.events {
		t.Errorf("a client was told of what nobody should see: %s", e)
	}
	process.Kill()
	<-s.Done()
	if err := s.Err(); err != ErrBrowserEnded {
		t.Errorf("the session has ended: %v", err)
	}
	s = newSession(t, openShell(t), Options{Keep: true, Login: saved.State, Tabs: saved.Tabs})
	p = connect(t, s, "")
	page = p.attach(p.pages()[0])
	p.awaitPage(page, site.URL)
	if got := p.do(page, "found"); got != `"one,three,sid=two"` {
		t.Errorf("after the end of its Chrome the page has %s", got)
	}
	if got := p.do(page, readDatabase); got != wantDatabase {
		t.Errorf("after the end of its Chrome the database has\n%s, want\n%s", got, wantDatabase)
	}
	until("what was restored", `"one"`)
}

func (s *Snapshot) text() (all string) {
	for _, tab := range s.Tabs {
		all += tab.URL + string(tab.Page)
	}
	return all
}

// The session with the browser's own profile is kept, too. What a new profile lacks is
// restored, and the page that the next browser starts with is closed.
func TestLookOfProfile(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<script>const found = [localStorage.token, document.cookie].join()</script>`)
	}))
	t.Cleanup(site.Close)
	b, process := openProcess(t, chrometest.StartShell)
	s := newSession(t, b, Options{DefaultContext: true, Keep: true})
	p := connect(t, s, "")
	page := p.enter(site.URL)
	p.do(page, `localStorage.token = 'one'; document.cookie = 'sid=two'`)
	var saved *Snapshot
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		now, err := s.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if saved = now; now != nil && strings.Contains(string(now.State.Export())+now.text(), `"one"`) {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no look has shown what the page stores")
		}
	}
	// So is a page that was open when the session began.
	s.End(t.Context())
	s = newSession(t, b, Options{DefaultContext: true, Keep: true})
	p = connect(t, s, "")
	page = p.attach(p.pages()[0])
	p.do(page, `localStorage.token = 'three'`)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		now, err := s.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if now != nil && strings.Contains(string(now.State.Export()), `"three"`) {
			saved = now
			break
		}
		if time.Now().After(end) {
			t.Fatal("no look has shown what a page stores that was open before")
		}
	}
	process.Kill()
	<-s.Done()
	s = newSession(t, openShell(t), Options{DefaultContext: true, Keep: true, Login: saved.State, Tabs: saved.Tabs})
	p = connect(t, s, "")
	for end := time.Now().Add(patience); len(p.pages()) != 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the pages are %v, want the one that was open", p.pages())
		}
	}
	page = p.attach(p.pages()[0])
	p.awaitPage(page, site.URL)
	if got := p.do(page, "found"); got != `"three,sid=two"` {
		t.Errorf("after the end of its Chrome the page has %s", got)
	}
}

// However often the Chrome of many sessions is killed, all logins and tabs come
// back.
func TestManyCrashes(t *testing.T) {
	if !long {
		t.Skip("it kills 20 Chromes under 50 sessions each: LONG=1 runs it")
	}
	const rounds, sessions = 20, 50
	site, _ := member(t)
	saved := make([]*Snapshot, sessions)
	for round := range rounds {
		b, process := openProcess(t, func(t testing.TB) (string, *os.Process) { return chrometest.Start(t) })
		all := make([]*Session, sessions)
		for i := range all {
			o := Options{Keep: true}
			if saved[i] != nil {
				o.Login, o.Tabs = saved[i].State, saved[i].Tabs
			}
			all[i] = newSession(t, b, o)
			p := connect(t, all[i], "")
			page := p.attach(p.pages()[0])
			if round == 0 {
				p.goTo(page, fmt.Sprintf("%s/login?%d", site, i))
				p.do(page, fmt.Sprintf("localStorage.token = 'token %d'", i))
			} else {
				p.awaitPage(page, site)
				got := p.do(page, "[found, location.search, navigator.cookieEnabled].join()")
				if want := fmt.Sprintf(`"token %d,?%d,true"`, i, i); got != want {
					t.Errorf("round %d: session %d has %s, want %s", round, i, got, want)
				}
			}
		}
		for i, s := range all {
			for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
				now, err := s.Look(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if now != nil {
					saved[i] = now
				}
				state, token := string(saved[i].State.Export()), fmt.Sprintf("token %d", i)
				if strings.Contains(saved[i].text(), "/login") && strings.Contains(state, token) &&
					strings.Contains(state, "s3cret-cookie") {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("session %d is not kept", i)
				}
			}
		}
		began := time.Now()
		for _, s := range all {
			if now, err := s.Look(t.Context()); err != nil || now != nil {
				t.Errorf("nothing has changed: %v, %v", now, err)
			}
		}
		t.Logf("round %d: a look at nothing new takes %v", round, time.Since(began)/sessions)
		process.Kill()
		<-b.Done()
	}
}
