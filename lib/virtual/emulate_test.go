package virtual

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"btools/lib/emulate"
	"btools/lib/jsonrpc"
	"btools/lib/settings"
)

// What a session emulates, all its pages have before they run, after navigations, in new
// tabs and pop-ups, and when the session is back from hibernation; the next session on the
// same Chrome has nothing of it.
func TestEmulation(t *testing.T) {
	t.Parallel()
	// What a worker or a frame of another site is told. Chrome 156 tells workers that pages share their own
	// browser's user agent, but in client hints.
	const part = `[navigator.userAgent.includes('Android 10; K') || !!self.SharedWorkerGlobalScope,
		navigator.userAgentData?.mobile ?? true, navigator.language, (1.5).toLocaleString(),
		new Date(0).getHours(), self.begun || !!self.WorkerGlobalScope].join()`
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		switch r.URL.Path {
		case "/worker":
			w.Header().Set("content-type", "text/javascript")
			fmt.Fprintf(w, `const told = %s
				self.postMessage?.(told); onconnect = e => e.ports[0].postMessage(told)`, part)
			return
		case "/frame":
			fmt.Fprintf(w, `<script>parent.postMessage(%s, '*')</script>`, part)
			return
		case "/parts":
			fmt.Fprintf(w, `<script>const parts = {}, told = name => e => parts[name] = e.data
				new Worker('/worker').onmessage = told('worker')
				new SharedWorker('/worker').port.onmessage = told('shared')
				onmessage = told('frame')</script><iframe src="http://%s/frame"></iframe>`,
				strings.Replace(r.Host, "localhost", "other.localhost", 1))
			return
		}
		fmt.Fprintf(w, `<meta name=viewport content="width=device-width"><script>const headers = [%q, %q, %q, %t],
			first = [self.begun, innerWidth, devicePixelRatio, navigator.maxTouchPoints, navigator.language,
				(1.5).toLocaleString(), new Date(0).getHours()]</script>`,
			r.Header.Get("X-Test"), r.Header.Get("Accept-Language"), r.Header.Get("Sec-CH-UA-Mobile"),
			strings.Contains(r.UserAgent(), "Android 10; K"))
	}))
	t.Cleanup(site.Close)
	o := Options{Settings: settings.Settings{Emulation: emulate.Emulation{Device: "pixel-7",
		Geolocation: "52.52,13.405", Timezone: "Asia/Tokyo", Locale: "de-DE", Header: []string{"X-Test: yes"}},
		InitScript: []string{"/a.js\nself.begun = true", "/b.js\n// nothing"}}}
	const what = `Promise.all([navigator.userAgentData?.getHighEntropyValues(['model']), new Promise(done =>
		navigator.geolocation ? navigator.geolocation.getCurrentPosition(p => done(p.coords.latitude),
			e => done(e.message)) : done('none'))]).then(x => [...first, ...headers, x[0]?.model, x[1]].join(' '))`
	const want = `"true 412 2.625 5 de-DE 1,5 9 yes de-DE ?1 true Pixel 7 52.52"`
	b := sharedChrome(t)
	s := newSession(t, b, o)
	here := strings.Replace(site.URL, "127.0.0.1", "localhost", 1)
	check := func(s *Session, when string) {
		t.Helper()
		p := connect(t, s, "")
		first := p.pages()[0]
		page := p.attach(first)
		for _, address := range []string{"/a", "/b"} {
			p.goTo(page, here+address)
			if got := p.do(page, what); got != want {
				t.Errorf("%s, %s: %s, want %s", when, address, got, want)
			}
		}
		p.must("", "Target.setDiscoverTargets", map[string]bool{"discover": true})
		p.must(page, "Runtime.evaluate", map[string]any{"expression": "void open('/popup')", "userGesture": true})
		popup := jsonrpc.GetString(p.event("Target.targetInfoChanged", "/popup"), "params", "targetInfo", "targetId")
		got := p.attach(popup)
		p.awaitTrue(got, "document.readyState === 'complete' && location.pathname === '/popup'")
		if got := p.do(got, what); got != want {
			t.Errorf("%s, a pop-up: %s, want %s", when, got, want)
		}
		p.must("", "Target.closeTarget", map[string]string{"targetId": first})
		alone := ""
		for end := time.Now().Add(patience); alone != want && time.Now().Before(end); {
			p.goTo(got, here+"/c") // Chrome takes the opener's language from the process, and then it is given again
			alone = p.do(got, what)
		}
		if alone != want {
			t.Errorf("%s, a pop-up without its opener: %s, want %s", when, alone, want)
		}
		p.goTo(got, here+"/parts")
		p.awaitTrue(got, "Object.keys(parts).length === 3")
		const all = `"frame: true,true,de-DE,1,5,9,true shared: true,true,de-DE,1,5,9,true ` +
			`worker: true,true,de-DE,1,5,9,true"`
		if got := p.do(got, "Object.keys(parts).sort().map(x => x + ': ' + parts[x]).join(' ')"); got != all {
			t.Errorf("%s, parts of a page: %s, want %s", when, got, all)
		}
	}
	check(s, "at first")
	changes := connect(t, s, "")
	page := changes.attach(changes.pages()[0])
	for _, c := range []struct{ change, answer, told string }{
		{`{"timezone":"Europe/Paris","headers":[],"device":"300x200"}`, `"device":"300x200"`,
			`"true 300 1 0 de-DE 1,5 1  ?0"`},
		{`{"permissions":["midi"],"locale":"de-DE"}`, `"permissions":["midi"]`, `"true 300 1 0 de-DE 1,5 1  ?0"`},
		{`{"timezone":"Mars/Olympus"}`, "no time zone", `"true 300 1 0 de-DE 1,5 1  ?0"`},
		{`{"device":"iPhone 12"}`, "near are iPhone 13", `"true 300 1 0 de-DE 1,5 1  ?0"`},
		{`{"timezone":"Etc//UTC"}`, "setTimezoneOverride: Invalid timezone", `"true 300 1 0 de-DE 1,5 1  ?0"`},
		{`{"reset":true,"offline":true}`, `"offline":true`, ""},
		{`{"offline":false}`, `"timezone":"Asia/Tokyo"`, `"true 412 2.625 5 de-DE 1,5 9 yes ?1"`},
	} {
		got := string(changes.call("", "Btools.emulate", json.RawMessage(c.change)))
		if !strings.Contains(got, c.answer) {
			t.Errorf("%s: %s", c.change, got)
		}
		if c.told == "" {
			continue
		}
		changes.goTo(page, here)
		if got := changes.do(page, "[...first, headers[0], headers[2]].join(' ')"); got != c.told {
			t.Errorf("%s: %s, want %s", c.change, got, c.told)
		}
	}
	saved, err := s.Snapshot(t.Context(), false)
	for end := time.Now().Add(patience); err == ErrBusy && time.Now().Before(end); {
		saved, err = s.Snapshot(t.Context(), false) // the last answer is on its way
	}
	if err != nil {
		t.Fatal(err)
	}
	s.End(t.Context())
	o.Tabs, o.Login, o.Emulated = saved.Tabs, saved.State, saved.Emulated
	check(newSession(t, b, o), "after hibernation")
	if _, err := b.NewSession(t.Context(), Options{Settings: settings.Settings{
		Emulation: emulate.Emulation{Timezone: "Etc//UTC"}}}); err == nil ||
		!strings.Contains(err.Error(), "setTimezoneOverride: Invalid timezone") {
		t.Errorf("a session with a time zone that Chrome does not know: %v", err)
	}
	if _, err := b.NewSession(t.Context(), Options{Settings: settings.Settings{
		InitScript: []string{"/a.js\n1", "/b.js\n\nreturn ]"}}}); err == nil ||
		!strings.Contains(err.Error(), "the init script /b.js, line 2: SyntaxError") {
		t.Errorf("a session with a script that has no syntax: %v", err)
	}
	o = Options{Settings: settings.Settings{Emulation: emulate.Emulation{Offline: true}}}
	off := connect(t, newSession(t, b, o), "")
	if got := off.visit("", site.URL); got != "net::ERR_INTERNET_DISCONNECTED" {
		t.Errorf("offline: %s", got)
	}
	plain := connect(t, newSession(t, b, Options{}), "")
	page = plain.attach(plain.pages()[0])
	plain.goTo(page, site.URL)
	if got := plain.do(page, "first.concat(headers).join(' ')"); strings.Contains(got, "de") ||
		strings.Contains(got, "yes") {
		t.Errorf("another session: %s", got)
	}
}
