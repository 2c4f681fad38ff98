package browse

import (
	"context"
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
		case "/loops":
			fmt.Fprint(w, `<script>setTimeout(() => { for (;;); }, 100)</script>`)
		}
	}))
	defer site.Close()
	defer site.CloseClientConnections()
	url, _ := chrometest.StartShell(t)
	b, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	open := func(t *testing.T, path string) *Tab {
		t.Helper()
		tab, err := b.Current(t.Context())
		if err == nil {
			_, err = tab.Navigate(t.Context(), site.URL+path)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}

	t.Run("responses that the page does not read", func(t *testing.T) {
		tab := open(t, "/unread")
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
	t.Run("a page that runs a script without end is closed", func(t *testing.T) {
		tab := open(t, "/loops")
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
