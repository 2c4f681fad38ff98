//go:build linux

package cmdtest

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// Consent is the endpoint of a Chrome that asks its user to allow each
// WebSocket. Its user allows all, or none.
type Consent struct {
	WSURL string // of the browser
	HTTP  string
	PID   int

	Mu        sync.Mutex
	Refuses   bool
	NoJSON    bool // as Chrome since version 144
	Questions int
	requests  int // of /json
}

// Consent launches a Chromium that asks its user for each connection.
func (w *World) Consent() *Consent {
	w.T.Helper()
	x := Parse(w.T, w.Run("blaunch", "--browser", "chrome-headless-shell"))
	target, err := url.Parse(x.Instance.HTTPURL)
	if err != nil {
		w.T.Fatal(err)
	}
	c := &Consent{PID: x.Instance.PID}
	to := httputil.NewSingleHostReverseProxy(target)
	to.ErrorHandler = func(rw http.ResponseWriter, _ *http.Request, err error) {
		http.Error(rw, err.Error(), http.StatusBadGateway)
	}
	s := Serve(w.T, func(rw http.ResponseWriter, r *http.Request) {
		c.Mu.Lock()
		refuses := false
		if r.Header.Get("Upgrade") != "" {
			c.Questions++
			refuses = c.Refuses
		} else {
			c.requests++
			if refuses = c.NoJSON; refuses {
				c.Mu.Unlock()
				http.NotFound(rw, r)
				return
			}
		}
		c.Mu.Unlock()
		if refuses {
			http.Error(rw, "the user said no", http.StatusForbidden)
			return
		}
		to.ServeHTTP(rw, r)
	})
	at := strings.TrimPrefix(s, "http://")
	browser, err := url.Parse(x.Instance.WSURL)
	if err != nil {
		w.T.Fatal(err)
	}
	c.HTTP, c.WSURL = s, "ws://"+at+browser.Path
	return c
}

// CheckAsked asserts how often the user was asked so far, and how many requests of
// /json there were.
func (c *Consent) CheckAsked(t *testing.T, questions, requests int) {
	t.Helper()
	c.Mu.Lock()
	defer c.Mu.Unlock()
	if c.Questions != questions || c.requests != requests {
		t.Errorf("the user was asked %d times, want %d; /json %d times, want %d", c.Questions, questions, c.requests,
			requests)
	}
}
