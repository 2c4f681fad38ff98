package virtual

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"btools/lib/jsonrpc"
	"btools/lib/settings"
)

// What a session emulates, all its pages have before they run, after navigations, in new
// tabs and pop-ups, and when the session is back from hibernation; the next session on the
// same Chrome has nothing of it.
func TestEmulation(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		fmt.Fprintf(w, `<meta name=viewport content="width=device-width"><script>const headers = [%q, %q, %q, %t],
			first = [innerWidth, devicePixelRatio, navigator.maxTouchPoints, navigator.language,
				(1.5).toLocaleString(), new Date(0).getHours()]</script>`,
			r.Header.Get("X-Test"), r.Header.Get("Accept-Language"), r.Header.Get("Sec-CH-UA-Mobile"),
			strings.Contains(r.UserAgent(), "Android 10; K"))
	}))
	t.Cleanup(site.Close)
	o := Options{Settings: settings.Settings{Device: "pixel-7", Geolocation: "52.52,13.405", Timezone: "Asia/Tokyo",
		Locale: "de-DE", Header: []string{"X-Test: yes"}}}
	const what = `Promise.all([navigator.userAgentData?.getHighEntropyValues(['model']), new Promise(done =>
		navigator.geolocation ? navigator.geolocation.getCurrentPosition(p => done(p.coords.latitude),
			e => done(e.message)) : done('none'))]).then(x => [...first, ...headers, x[0]?.model, x[1]].join(' '))`
	const want = `"412 2.625 5 de-DE 1,5 9 yes de-DE ?1 true Pixel 7 52.52"`
	b := sharedChrome(t)
	s := newSession(t, b, o)
	check := func(s *Session, when string) {
		t.Helper()
		p := connect(t, s, "")
		page := p.attach(p.pages()[0])
		for _, address := range []string{"/a", "/b"} {
			p.goTo(page, strings.Replace(site.URL, "127.0.0.1", "localhost", 1)+address)
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
	}
	check(s, "at first")
	saved, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.End(t.Context())
	o.Tabs, o.Login = saved.Tabs, saved.State
	check(newSession(t, b, o), "after hibernation")
	off := connect(t, newSession(t, b, Options{Settings: settings.Settings{Offline: true}}), "")
	if got := off.visit("", site.URL); got != "net::ERR_INTERNET_DISCONNECTED" {
		t.Errorf("offline: %s", got)
	}
	plain := connect(t, newSession(t, b, Options{}), "")
	page := plain.attach(plain.pages()[0])
	plain.goTo(page, site.URL)
	if got := plain.do(page, "first.concat(headers).join(' ')"); strings.Contains(got, "de") ||
		strings.Contains(got, "yes") {
		t.Errorf("another session: %s", got)
	}
}
