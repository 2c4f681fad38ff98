package browse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

func TestTabs(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/unread":
			fmt.Fprint(w, `<script>fetch("/short"); fetch("/endless"); fetch("/mute")</script>`)
		case "/short":
			fmt.Fprint(w, "all of it")
		case "/endless", "/mute":
			if r.URL.Path == "/endless" {
				fmt.Fprint(w, "a part")
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/slow":
			time.Sleep(time.Second)
			fmt.Fprint(w, "<title>It has come</title>")
		case "/drips":
			fmt.Fprint(w, "a part")
			w.(http.Flusher).Flush()
			time.Sleep(4 * time.Second)
			fmt.Fprint(w, " and the rest")
		case "/loops":
			fmt.Fprint(w, `<script>setTimeout(() => { for (;;); }, 100)</script>`)
		case "/freezes": // before it is parsed
			fmt.Fprint(w, `<p>before<script>for (;;);</script>`)
		}
	}))
	defer site.Close()
	defer site.CloseClientConnections()
	url, _ := chrometest.StartShell(t)
	b, err := Open(t.Context(), url, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	open := func(t *testing.T, b *Browser, path string) *Tab {
		t.Helper()
		tab, err := b.Current(t.Context())
		if err == nil {
			_, err = tab.Navigate(t.Context(), site.URL+path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tab.(*Tab)
	}

	t.Run("responses that the page does not read", func(t *testing.T) {
		tab := open(t, b, "/unread")
		for path, want := range map[string]struct {
			body, err string
			whole     bool
		}{"/short": {"all of it", "", true}, "/endless": {"a part", "", false}, "/mute": {"", "nothing", false}} {
			for _, r := range tab.Requests() {
				if !strings.HasSuffix(r.URL, path) {
					continue
				}
				body, whole, err := tab.ResponseBody(t.Context(), r)
				if string(body) != want.body || whole != want.whole || (err != nil) != (want.err != "") ||
					err != nil && !strings.Contains(err.Error(), want.err) {
					t.Errorf("%s: %q, whole %v, %v, want %+v", path, body, whole, err, want)
				}
			}
		}
	})
	t.Run("a page that freezes by itself is stopped", func(t *testing.T) {
		b, err := Open(t.Context(), url, 200*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		began := time.Now()
		tab := open(t, b, "/freezes")
		if s, err := tab.Snapshot(t.Context(), SnapshotOptions{}); err != nil || !strings.Contains(s, "before") {
			t.Errorf("its script is not stopped: %q, %v", s, err)
		}
		if took := time.Since(began); took >= ScriptTimeout {
			t.Errorf("it took %v", took)
		}
	})
	t.Run("an address that the page is loading already", func(t *testing.T) {
		tab := open(t, b, "/unread")
		tab.begin(tab.main.session, "Page.navigate", map[string]string{"url": site.URL + "/slow"})
		if err := b.wait(t.Context(), tab.isLeaving); err != nil {
			t.Fatal(err)
		}
		if _, err := tab.Navigate(t.Context(), site.URL+"/slow"); err != nil {
			t.Errorf("it is not loaded: %v", err)
		}
		if s := tab.State(t.Context()); s.Title != "It has come" {
			t.Errorf("the tab is at %+v", s)
		}
	})
	t.Run("a body that comes slowly is read to its end", func(t *testing.T) {
		b, err := Open(t.Context(), url, 800*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		r, err := b.Fetch(t.Context(), site.URL+"/drips", FetchOptions{Method: "GET"})
		if err != nil || string(r.Body) != "a part and the rest" {
			t.Errorf("it is %+v, %v", r, err)
		}
	})
	t.Run("a request without time for its tab ends for want of time", func(t *testing.T) {
		mine := errors.New("my time is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, mine)
		defer cancel()
		if _, err := b.Fetch(ctx, site.URL+"/short", FetchOptions{Method: "GET"}); !errors.Is(err, mine) {
			t.Errorf("it says %v", err)
		}
	})
	t.Run("a page that runs a script without end is closed", func(t *testing.T) {
		tab := open(t, b, "/loops")
		for tab.answers(tab.main.session) {
			continue // the script has not begun
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := b.CloseTab(ctx, -1); err != nil {
			t.Errorf("it is not closed: %v", err)
		}
	})
}

// A document that the page before it has replaced by another one is not there.
func TestIsOvertaken(t *testing.T) {
	const frame = "main"
	tab := newTab(&Browser{}, &target{id: frame}, targetInfo{})
	commit := func(loader string) { tab.committed(loader, "") }
	leaving := func(what string, want bool) {
		t.Helper()
		if got := tab.isLeaving(); got != want {
			t.Errorf("%s: the page is leaving: %v, want %v", what, got, want)
		}
	}
	overtaken := func(loader string, want bool) {
		t.Helper()
		if got := tab.isOvertaken(loader); got != want {
			t.Errorf("document %s is overtaken: %v, want %v", loader, got, want)
		}
	}
	begin := func(loader string) { tab.begins(frame, loader, "") }
	ask := func() { tab.requests(frame) }

	begin("1")
	commit("1")
	leaving("it has come", false)
	ask() // it goes on by itself
	begin("2")
	leaving("it goes on", true)
	commit("2")
	leaving("the next one has come", false)
	overtaken("1", false)
	overtaken("2", false) // by nothing yet

	begin("3") // by an agent
	begin("4") // the page before it replaces itself once more
	commit("3")
	leaving("the page before it has begun to replace it", true)
	overtaken("3", false)
	commit("4")
	leaving("it is replaced", false)
	overtaken("3", true)

	ask()
	begin("5") // the page goes on
	begin("6") // an agent has it leave instead
	commit("6")
	leaving("the agent's has come", false)
	ask()
	begin("7") // which goes on by itself
	commit("7")
	overtaken("6", false)
}

// A page that is replaced again and again is said to be, in words for an agent.
func TestPagesThatAreReplaced(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<meta http-equiv=refresh content=0><button id=b>Buy</button>`)
	}))
	defer site.Close()
	url, _ := chrometest.StartShell(t)
	b, err := Open(t.Context(), url, 400*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	tab, err := b.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tab.Navigate(t.Context(), site.URL)
	said := map[string]int{}
	for range 30 {
		_, _, err := tab.Evaluate(t.Context(), "() => new Promise(() => {})", "")
		if err == nil {
			t.Fatal("a promise that is never kept has a value")
		}
		said[err.Error()]++
	}
	for text := range said {
		if !strings.Contains(text, "the page has been replaced") && !strings.Contains(text, "the page is leaving") {
			t.Errorf("it says %q", text)
		}
	}
}
