package virtual

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"btools/lib/emulate"
	"btools/lib/jsonrpc"
	"btools/lib/settings"
)

// A session goes on in another context as it was: logins, pages, what reloading
// these would lose.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		http.SetCookie(w, &http.Cookie{Name: "seen", Value: "yes"})
		fmt.Fprintf(w, `<script>
			const found = sessionStorage.getItem('draft') + ' ' + localStorage.getItem('token')
		</script><div style="height:9000px">%s</div>`, r.URL.Path)
	}))
	t.Cleanup(server.Close)
	b := sharedChrome(t)
	s := newSession(t, b, Options{})
	p := connect(t, s, "")
	first := p.enter(server.URL + "/first")
	p.do(first, `sessionStorage.setItem('draft', 'half a sentence "\u2028'); localStorage.setItem('token', 'x');
		scrollTo(0, 4321)`)
	other := jsonrpc.GetString(p.must("", "Target.createTarget", map[string]any{"url": server.URL + "/other?q#h"}),
		"targetId")
	attach := map[string]any{"targetId": other, "flatten": true}
	p.awaitPage(jsonrpc.GetString(p.must("", "Target.attachToTarget", attach), "sessionId"), server.URL)

	saved, err := s.Snapshot(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	saved = &Snapshot{}
	if err := json.Unmarshal(text, saved); err != nil {
		t.Fatal(err)
	}
	s = newSession(t, b, Options{Login: saved.State, Tabs: saved.Tabs})
	p = connect(t, s, "")
	pages := p.pages()
	if len(pages) != 2 {
		t.Fatalf("the session has %d pages, want 2", len(pages))
	}
	sessions := map[string]string{}
	for _, page := range pages {
		attach["targetId"] = page
		own := jsonrpc.GetString(p.must("", "Target.attachToTarget", attach), "sessionId")
		p.awaitPage(own, server.URL)
		sessions[p.do(own, "location.pathname + location.search + location.hash")] = own
	}
	if sessions[`"/other?q#h"`] == "" {
		t.Errorf("the pages are %v, want /first and /other?q#h", sessions)
	}
	first = sessions[`"/first"`]
	if got, want := p.do(first, "found"), `"half a sentence \"\u2028 x"`; decoded(t, got) != decoded(t, want) {
		t.Errorf("the first script of the page has found %s, want %s", got, want)
	}
	if got := p.do(first, "document.cookie"); got != `"seen=yes"` {
		t.Errorf("the cookies are %s", got)
	}
	for end := time.Now().Add(patience); p.do(first, "scrollY") != "4321"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the page is scrolled to %s, want 4321", p.do(first, "scrollY"))
		}
	}
	// Only the reload has the scripts.
	p.do(first, "sessionStorage.clear()")
	p.goTo(first, server.URL+"/first?again")
	if got := p.do(first, "found"); got != `"null x"` {
		t.Errorf("a later document of the page has found %s, want nothing but the token", got)
	}
}

func decoded(t *testing.T, text string) (s string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// A server that does not answer, and pages that are not of the web, do not keep
// a session from starting.
func TestTabsThatDoNotLoad(t *testing.T) {
	t.Parallel()
	hang := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(func() {
		hang.CloseClientConnections()
		hang.Close()
	})
	page := json.RawMessage(`{"origin":"x","scrolled":[],"items":[]}`)
	s := newSession(t, sharedBrowser(t), Options{Tabs: []Tab{
		{URL: hang.URL, Page: page}, {URL: "http://127.0.0.1:1/", Page: page}, {URL: "chrome://settings"},
		{URL: "file:///"}, {URL: "about:blank"},
	}})
	if n := s.Stats().TabCount; n != 5 {
		t.Errorf("the session has %d pages, want 5", n)
	}
	for _, info := range s.Targets() {
		url := jsonrpc.GetString(info, "url")
		if strings.HasPrefix(url, "chrome://settings") || strings.HasPrefix(url, "file:") {
			t.Errorf("%s was opened", url)
		}
	}
}

// A tab whose server does not answer when the session comes back is not lost: it is
// shown with its address, saved as it was, and complete once its server is back.
func TestTabsOfServersThatAreDown(t *testing.T) {
	t.Parallel()
	var down, dead atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			<-r.Context().Done()
			return
		}
		if dead.Load() {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<script>const found = sessionStorage.getItem('cart')</script>`)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	b := openShell(t)
	b.commit = 100 * time.Millisecond // while a server is down, that is waited for
	s := newSession(t, b, Options{})
	p := connect(t, s, "")
	cart := server.URL + "/cart?step=3"
	p.do(p.enter(cart), "sessionStorage.setItem('cart', 'three things')")
	next := func() {
		t.Helper()
		p.conn.Close(1000, "")
		for s.isBusy() {
			time.Sleep(time.Millisecond)
		}
		saved, err := s.Snapshot(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		s.End(t.Context())
		s = newSession(t, b, Options{Login: saved.State, Tabs: saved.Tabs})
		p = connect(t, s, "")
		for info := range jsonrpc.Elements(jsonrpc.Get(p.must("", "Target.getTargets", nil), "targetInfos")) {
			if got := jsonrpc.GetString(info, "url"); got != cart {
				t.Errorf("a tab is listed as %q, want %q", got, cart)
			}
		}
	}
	for _, fault := range []*atomic.Bool{&down, &dead, &down} {
		fault.Store(true)
		next()
		fault.Store(false)
		server.CloseClientConnections()
	}
	next()
	page := p.attach(p.pages()[0])
	p.awaitPage(page, server.URL)
	if got := p.do(page, "found"); got != `"three things"` {
		t.Errorf("the sessionStorage of the page has %s", got)
	}
	dead.Store(true)
	next()
	dead.Store(false)
	page = p.attach(p.pages()[0])
	p.goTo(page, cart) // a person tries again
	if got := p.do(page, "found"); got != `"three things"` {
		t.Errorf("after another try the sessionStorage of the page has %s", got)
	}
	p.goTo(page, "about:blank")
	if tabs := s.pages.tabs(t.Context()); len(tabs) != 1 || !isBlank(tabs[0].URL) {
		t.Errorf("a page that was left is saved as %+v", tabs)
	}
}

// A page that replaces itself for ever counts as a tab as long as it is open.
func TestTabLimitOfLastingPages(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		fmt.Fprint(w, `<script>setTimeout(() => location.replace('/?' + Math.random()))</script>`)
	}))
	t.Cleanup(site.Close)
	s := newSession(t, sharedBrowser(t), Options{Settings: settings.Settings{TabLimit: 1}})
	p := connect(t, s, "")
	for range 8 {
		p.must("", "Target.createTarget", map[string]string{"url": site.URL})
	}
	for end := time.Now().Add(patience); len(p.pages()) > 1; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d pages are open, want 1", len(p.pages()))
		}
	}
}

// The pages of a session have the permissions that its settings grant, and those of the
// next one on the same Chrome do not.
func TestGrantedPermissions(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	t.Cleanup(site.Close)
	names := settings.Named("GRANT").Values
	of := func(grant ...string) string {
		o := Options{Settings: settings.Settings{Emulation: emulate.Emulation{Grant: grant}}}
		p := connect(t, newSession(t, sharedChrome(t), o), "")
		return p.do(p.enter(site.URL), `Promise.all(['geolocation', 'notifications', 'camera'].map(name =>
			navigator.permissions.query({name}).then(p => p.state))).then(all => all.join(' '))`)
	}
	for _, x := range []struct {
		grant []string
		want  string
	}{{nil, `"prompt prompt prompt"`}, {[]string{"geolocation"}, `"granted prompt prompt"`},
		{names, `"granted granted granted"`}} {
		if got := of(x.grant...); got != x.want {
			t.Errorf("with %q granted: %s, want %s", x.grant, got, x.want)
		}
	}
}
