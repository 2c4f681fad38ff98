package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"btools/lib/fleet/supply"
	"btools/lib/launch/options"
	"btools/lib/record"
)

func TestPing(t *testing.T) {
	t.Parallel()
	f := newFirefox(t)
	for _, c := range []struct{ addr, protocol, want string }{
		{f.addr, record.CDP, ""},
		{f.addr, record.BiDi, ""},
		{"127.0.0.1:1", record.CDP, "refused"},
		{listenAndServe(t, http.NotFoundHandler()), record.CDP, "404"},
		{listenAndServe(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })),
			record.CDP, "no answer within 100ms"},
	} {
		within := patience
		if strings.Contains(c.want, "100ms") {
			within = 100 * time.Millisecond
		}
		err := supply.Ping(t.Context(), browserAt(t, c.addr, c.protocol).Instance, within)
		if err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.addr, err, c.want)
		}
	}
}

// A browser that hangs is stopped if the proxy owns it; if not, the status says
// so.
func TestBrowserHangs(t *testing.T) {
	t.Parallel()
	health := supply.Health{Interval: 10 * time.Millisecond, Timeout: 200 * time.Millisecond}
	e := newFirefox(t)
	p := behind(browserAt(t, e.addr, record.CDP))
	p.Spec.Health = health
	serve(t, p)
	p.Relaunch(t.Context(), options.Options{}, false)
	until(t, "it is asked", func() bool { s, _ := p.Status(); return s.LastCheck != nil })
	e.hangs.Store(true)
	until(t, "it is stopped", func() bool { s, _ := p.Status(); return s.State == Stopped })
	if s, _ := p.Status(); !strings.Contains(s.LastExit, "did not answer") {
		t.Errorf("%+v", s)
	}

	e = newFirefox(t)
	p = foreign(browserAt(t, e.addr, record.CDP))
	p.Spec.Health = health
	addr := serve(t, p)
	state := func(want string) func() bool {
		return func() bool { s, _ := p.Status(); return s.State == want && s.LastCheck != nil }
	}
	send(t, addr, "/json/version")
	until(t, "it is well", state(Foreign))
	e.hangs.Store(true)
	until(t, "it is unresponsive", state(Unresponsive))
	e.hangs.Store(false)
	until(t, "it is well again", state(Foreign))
}
