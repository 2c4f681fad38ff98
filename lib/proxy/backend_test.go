package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"btools/lib/launch/options"
	"btools/lib/launcher"
	"btools/lib/record"
)

// probe is a log for whose every message the status is asked.
type probe struct {
	slog.Handler
	proxy *Proxy
}

func (h probe) Handle(context.Context, slog.Record) error {
	h.proxy.Status()
	return nil
}

// A log may block, so nothing is logged under the lock.
func TestLogsWithoutLock(t *testing.T) {
	e := newEndpoint(t)
	fail := make(chan bool, 10)
	p := &Proxy{
		Idle: time.Millisecond,
		Launch: func(context.Context, options.Options, string) (*launcher.Browser, error) {
			if <-fail {
				return nil, errors.New("no such browser")
			}
			return e.browser(t, record.CDP), nil
		},
	}
	p.Log = slog.New(probe{slog.NewTextHandler(io.Discard, nil), p})
	addr := serve(t, p)
	fail <- true
	if code, body := ask(t, addr, "/json/version"); code != 502 || !strings.Contains(body, "no such browser") {
		t.Errorf("%d %s", code, body)
	}
	fail <- false
	if code, body := ask(t, addr, "/json/version"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	until(t, "the idle browser is stopped", func() bool { s, _ := p.Status(); return s.State != Ready })
}

// ask asks the proxy for a path.
func ask(t testing.TB, addr, path string) (int, string) {
	t.Helper()
	c := http.Client{Timeout: 20 * time.Second}
	r, err := c.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}
