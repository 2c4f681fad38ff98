package virtual

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/settings"
)

// silence is a WAV file of ten silent seconds.
func silence() string {
	const rate, size = 8000, 80000
	b := []byte("RIFF\x00\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00")
	b = binary.LittleEndian.AppendUint32(b, rate)
	b = binary.LittleEndian.AppendUint32(b, rate)
	b = append(b, "\x01\x00\x08\x00data"...)
	b = binary.LittleEndian.AppendUint32(b, size)
	b = append(b, strings.Repeat("\x80", size)...)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-8))
	return base64.StdEncoding.EncodeToString(b)
}

// Pages of an unused session are hidden, also those whose focus a client
// emulates, until its next command; pages that play something are not.
func TestThrottle(t *testing.T) {
	t.Parallel()
	b := sharedChrome(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><script>n = 0; (function f() { n++; requestAnimationFrame(f) })()</script>`)
		if r.URL.Path == "/media" {
			fmt.Fprintf(w, `<audio id=a loop src="data:audio/wav;base64,%s"></audio>`, silence())
		}
	}))
	defer server.Close()
	s := newSession(t, b, Options{})
	p, page := attached(t, s)
	p.must(page, "Page.enable", nil)
	p.must(page, focusEmulation, map[string]bool{"enabled": true}) // as Playwright does
	p.must(page, "Page.navigate", map[string]string{"url": server.URL})
	p.event("Page.loadEventFired", "")
	page = p.pages()[0]
	media := jsonrpc.GetString(p.must("", "Target.createTarget", map[string]string{"url": server.URL + "/media"}),
		"targetId")

	// look evaluates in a page, which is not use.
	look := func(page, expression string) string {
		t.Helper()
		b.mu.Lock()
		own := b.targets[page].own
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got, err := s.link.Call(ctx, own, "Runtime.evaluate",
			map[string]any{"expression": expression, "returnByValue": true, "userGesture": true})
		if err != nil {
			t.Fatal(err)
		}
		return string(jsonrpc.Get(jsonrpc.Get(got, "result"), "value"))
	}
	isHidden := func(page string) bool { return look(page, "document.hidden") == "true" }
	paints := func(page string) bool {
		was := look(page, "n")
		for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if look(page, "n") != was {
				return true
			}
		}
		return false
	}
	until(t, "the audio plays", func() bool {
		return look(media, "!!window.a && (a.play(), !a.paused && a.currentTime > 0)") == "true"
	})
	until(t, "the page paints", func() bool { return paints(page) })
	until(t, "all is answered", func() bool { return !s.isBusy() })

	s.throttle.hideUnused(time.Now().Add(-time.Minute))
	if isHidden(page) {
		t.Error("a page of a session that is used is hidden")
	}
	p.events = nil
	s.throttle.hideUnused(time.Now())
	until(t, "the page is hidden", func() bool { return isHidden(page) })
	until(t, "it does not paint", func() bool { return !paints(page) })
	if isHidden(media) {
		t.Error("a page that plays something is hidden")
	}

	// A person who looks leaves it so, and one who takes control has it as it was.
	anna := person(t, s, "anna")
	anna.attach(page)
	if !isHidden(page) {
		t.Error("a person who looks wakes the page")
	}
	anna.take("anna-anna-anna-anna")
	until(t, "a person has control of the page as it was", func() bool { return !isHidden(page) })
	anna.must("", "Btools.give", nil)
	s.throttle.hideUnused(time.Now())
	until(t, "the page is hidden again", func() bool { return isHidden(page) })

	// The next command, of any client, finds the page as it was.
	other := connect(t, s, page)
	got := other.must("", "Runtime.evaluate",
		map[string]any{"expression": "document.visibilityState + document.hasFocus()"})
	if value := jsonrpc.GetString(got, "result", "value"); value != "visibletrue" {
		t.Errorf("a command finds the page %s", value)
	}
	until(t, "it paints", func() bool { return paints(page) })
	p.must("", "Target.getTargets", nil)
	if other := connect(t, s, page); len(p.events) > 0 || len(other.events) > 0 {
		t.Errorf("a client was told %s", p.events)
	}

	// What a client has frozen is not thawed.
	other.must("", "Page.setWebLifecycleState", map[string]string{"state": "frozen"})
	until(t, "all is answered", func() bool { return !s.isBusy() })
	s.throttle.hideUnused(time.Now())
	b.mu.Lock()
	throttled := b.targets[page].throttled
	b.mu.Unlock()
	if throttled {
		t.Error("a page that a client has frozen is throttled")
	}
}

// A command finds the page visible however soon the session is throttled again.
func TestThrottleSoon(t *testing.T) {
	t.Parallel()
	b := sharedBrowser(t)
	s := newSession(t, b, Options{Settings: settings.Settings{Throttle: 2 * time.Millisecond}})
	p, page := attached(t, s)
	p.must(page, "Page.enable", nil)
	p.must(page, focusEmulation, map[string]bool{"enabled": true})
	p.must(page, "Page.navigate", map[string]string{"url": "data:text/html,<title>soon</title>"})
	p.event("Page.loadEventFired", "")
	for range 40 {
		for end := time.Now().Add(patience); !s.throttle.on.Load(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the session is not throttled within %v", patience)
			}
		}
		got := p.must(page, "Runtime.evaluate", map[string]any{"expression": "document.visibilityState"})
		if value := jsonrpc.GetString(got, "result", "value"); value != "visible" {
			t.Fatalf("a command finds the page %s, want visible", value)
		}
	}
}
