//go:build linux

package clients_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/websocket"
)

// evidenceSite serves what scripts/clients/har.mjs visits.
func evidenceSite(t *testing.T) string {
	return cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/start":
			http.SetCookie(w, &http.Cookie{Name: "who", Value: r.URL.Query().Get("who"), Path: "/", HttpOnly: true})
			http.SetCookie(w, &http.Cookie{Name: "second", Value: "2"})
			http.Redirect(w, r, "/page?"+r.URL.RawQuery, http.StatusFound)
		case "/page":
			fmt.Fprintf(w, "<!doctype html><title>the page</title><p>page of %s, \"<ü>\"", r.URL.Query().Get("who"))
		case "/image.png":
			w.Header().Set("Content-Type", "image/png")
			w.Write([]byte("\x89PNG\r\n\x1a\n\x00\xff"))
		case "/cached.js":
			w.Header().Set("Cache-Control", "max-age=1000")
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, "1")
		case "/broken":
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		case "/ws":
			c, err := websocket.Accept(w, r)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close(websocket.Normal, "")
			for m, err := c.Next(); err == nil; m, err = c.Next() {
				b, _ := m.Bytes()
				c.Write(append([]byte("echo of "), b...))
			}
		default:
			fmt.Fprintf(w, "<!doctype html><title>%s</title>", r.URL.Path)
		}
	})
}

// archive is the part of an HTTP Archive that is tested.
type archive struct {
	Log struct {
		Version          string
		Creator, Browser struct{ Name, Version string }
		Pages            []struct {
			ID, Title   string
			Started     time.Time `json:"startedDateTime"`
			PageTimings struct{ OnContentLoad, OnLoad float64 }
		}
		Entries []harEntry
	}
}

type nameValue struct{ Name, Value string }

type harEntry struct {
	Pageref string
	Started time.Time `json:"startedDateTime"`
	Time    float64
	Request struct {
		Method, URL, HTTPVersion      string
		Headers, Cookies, QueryString []nameValue
		PostData                      struct {
			MimeType, Text string
			Params         []nameValue
		}
		BodySize int
	}
	Response struct {
		Status                int
		StatusText            string
		Headers, Cookies      []nameValue
		RedirectURL           string
		HeadersSize, BodySize int
		Error                 string `json:"_error"`
		Content               struct {
			Size                     int
			MimeType, Text, Encoding string
		}
	}
	Timings   struct{ Blocked, DNS, Connect, SSL, Send, Wait, Receive float64 }
	ServerIP  string `json:"serverIPAddress"`
	FromCache string `json:"_fromCache"`
	Session   string `json:"_session"`
	Messages  []struct {
		Type, Data string
		Time       float64
	} `json:"_webSocketMessages"`
}

// convert converts a trace, has the result validated, and returns it with what the
// program has said.
func convert(w *cmdtest.World, trace string) (archive, string) {
	w.T.Helper()
	r := w.Run("bproxy", "har", "--with-logins", trace)
	if r.Code != 0 {
		w.T.Fatalf("bproxy har %s: %+v, want exit 0", trace, r)
	}
	path := trace + ".har"
	if err := os.WriteFile(path, []byte(r.Out), 0o600); err != nil {
		w.T.Fatal(err)
	}
	check := cmdtest.Clients(w.T) + "/har-check.mjs"
	if v := w.Run("node", check, path); v.Out != "valid\n" {
		w.T.Errorf("the archive is not valid: %s%s", v.Out, v.Err)
	}
	var a archive
	if err := json.Unmarshal([]byte(r.Out), &a); err != nil {
		w.T.Fatal(err)
	}
	return a, r.Err
}

// visited asserts that an archive has the visit of one client, once.
func (a archive) visited(t *testing.T, site, who string, started time.Time) {
	t.Helper()
	page := "?who=" + who + "&q=a%20b&q="
	var got []string
	entries := map[string]harEntry{}
	for _, e := range a.Log.Entries {
		path := strings.TrimPrefix(strings.TrimPrefix(e.Request.URL, "ws"+strings.TrimPrefix(site, "http")), site)
		if !strings.Contains(path, who) {
			continue
		}
		name := path
		if e.FromCache != "" {
			name += " " + e.FromCache
		}
		if _, twice := entries[name]; twice && strings.HasPrefix(name, "/ws?") {
			t.Errorf("%s has two entries", name)
		}
		got = append(got, name)
		entries[name] = e
		sum := 0.0
		for _, d := range []float64{e.Timings.Blocked, e.Timings.DNS, e.Timings.Connect, e.Timings.Send, e.Timings.Wait,
			e.Timings.Receive} {
			sum += max(0, d)
		}
		if e.Started.Before(started.Add(-time.Second)) || time.Since(e.Started) < 0 || e.Time < sum-0.1 ||
			e.Time > sum+0.1 || e.Time > 60_000 {
			t.Errorf("%s: began %v, took %v ms, the parts %v", name, e.Started, e.Time, e.Timings)
		}
	}
	slices.Sort(got)
	got = slices.Compact(got)
	cached := "/cached.js?" + who + " disk"
	if entries[cached].Request.URL == "" {
		cached = "/cached.js?" + who + " memory"
	}
	want := []string{"/broken?" + who, "/cached.js?" + who, cached, "/image.png?" + who, "/page" + page, "/post?" + who,
		"/second?" + who, "/start" + page, "/ws?" + who}
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Fatalf("the archive has\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	start, doc := entries["/start"+page], entries["/page"+page]
	if r := start.Response; r.Status != 302 || r.RedirectURL != "/page"+page || len(r.Cookies) != 2 ||
		r.Cookies[0] != (nameValue{"who", who}) || r.HeadersSize < 50 {
		t.Errorf("the redirect: %+v", r)
	}
	if q := start.Request.QueryString; !slices.Equal(q, []nameValue{{"who", who}, {"q", "a b"}, {"q", ""}}) {
		t.Errorf("its query: %v", q)
	}
	wantText := fmt.Sprintf("<!doctype html><title>the page</title><p>page of %s, \"<ü>\"", who)
	if c := doc.Response.Content; c.Text != wantText || c.Size != len(wantText) || c.MimeType != "text/html" ||
		doc.Response.Status != 200 || doc.ServerIP != "127.0.0.1" || doc.Request.HTTPVersion != "HTTP/1.1" {
		t.Errorf("the page: %+v", doc)
	}
	if c := doc.Request.Cookies; !slices.Contains(c, nameValue{"who", who}) || len(c) != 2 {
		t.Errorf("its cookies: %v", c)
	}
	p := entries["/post?"+who].Request
	if p.Method != "POST" || p.PostData.Text != "name=value+of+"+who || p.BodySize != len(p.PostData.Text) ||
		!slices.Equal(p.PostData.Params, []nameValue{{"name", "value of " + who}}) {
		t.Errorf("the form: %+v", p)
	}
	if c := entries["/image.png?"+who].Response.Content; c.Encoding != "base64" || c.Text != "iVBORw0KGgoA/w==" ||
		c.Size != 10 {
		t.Errorf("the image: %+v", c)
	}
	if r := entries["/broken?"+who].Response; !strings.HasPrefix(r.Error, "net::ERR_") {
		t.Errorf("the response that breaks off: %+v", r)
	}
	if ws := entries["/ws?"+who]; ws.Response.Status != 101 || len(ws.Messages) != 2 ||
		ws.Messages[0].Type != "send" || ws.Messages[1].Data != "echo of hello "+who ||
		ws.Messages[1].Time < float64(started.Unix()-1) {
		t.Errorf("the WebSocket: %+v", ws)
	}
	pages := 0
	for _, p := range a.Log.Pages {
		switch p.ID {
		case doc.Pageref:
			if start.Pageref != p.ID || entries["/post?"+who].Pageref != p.ID || p.PageTimings.OnLoad <= 0 ||
				p.PageTimings.OnContentLoad <= 0 || p.PageTimings.OnContentLoad > p.PageTimings.OnLoad {
				t.Errorf("the first page: %+v, %+v", p, start)
			}
			pages++
		case entries["/second?"+who].Pageref:
			pages++
		}
	}
	if pages != 2 {
		t.Errorf("of the pages %+v, %d are those of %s", a.Log.Pages, pages, who)
	}
}

// harClients visits the site with clients at once.
func harClients(t *testing.T, p *cmdtest.Proxy, site string, at func(who string) (http, ws string), names ...string) {
	t.Helper()
	script := cmdtest.Clients(t) + "/har.mjs"
	var wg sync.WaitGroup
	for _, name := range names {
		library, _, _ := strings.Cut(name, "-")
		httpURL, wsURL := at(name)
		c := p.W.Cmd("node", script, library, httpURL, wsURL, site, name)
		c.Env = slices.Concat(c.Env, []string{"HOME=" + p.W.Dir})
		wg.Go(func() {
			if out, err := cmdtest.Combined(c); err != nil || string(out) != "done\n" {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		})
	}
	wg.Wait()
}

// Clients on one browser, whose trace becomes one archive.
func TestHAR(t *testing.T) {
	t.Parallel()
	site := evidenceSite(t)
	w := cmdtest.New(t)
	trace := w.Dir + "/trace.jsonl"
	p := w.Proxy("--trace", trace)
	started := time.Now()
	names := []string{"playwright-a", "puppeteer-b"}
	harClients(t, p, site, func(string) (string, string) { return p.URL, "" }, names...)
	p.Stop()
	a, said := convert(w, trace)
	if a.Log.Version != "1.2" || a.Log.Creator.Name != "bproxy" || a.Log.Browser.Name == "" || said != "" {
		t.Errorf("%+v, and messages %q; want version 1.2 by bproxy, the browser's name and no message", a.Log, said)
	}
	for _, name := range names {
		a.visited(t, site, name, started)
	}
	whole, _ := os.ReadFile(trace)
	// Damage costs the damaged lines only, and one that is cut off is the last.
	cut := append([]byte("{\"time\":\x00\n"), whole[:len(whole)-7]...)
	os.WriteFile(trace, cut, 0o600)
	if b, said := convert(w, trace); len(b.Log.Entries) != len(a.Log.Entries) ||
		!strings.Contains(said, "damaged or cut off: 2 lines") {
		t.Errorf("of a damaged trace: %d entries, not %d; %s", len(b.Log.Entries), len(a.Log.Entries), said)
	}
	os.WriteFile(trace, []byte(`{"time":"2026-01-02T03:04:05.678Z","connection":1,"direction":"to_client",`+
		`"message":{"method":"Page.loadEventFired","params":{}}}`+"\n"), 0o600)
	r := w.Run("bproxy", "har", trace)
	r.Exits(t, 65, "no trace has Network events")
	if r.Out != "" {
		t.Errorf("it has printed %q", r.Out)
	}
	w.Run("bproxy", "har", w.Dir+"/none").Exits(t, 65, "no such file")
	w.Run("bproxy", "har", w.Dir).Exits(t, 65, "no trace has Network events")
	w.Run("bproxy", "har").Exits(t, 65, "cannot convert standard input")
	w.Clean()
}

// Each session has a trace of its own, by its name or where the session wants
// it. A disk that is full costs the trace, not the session.
func TestTraceOfSessions(t *testing.T) {
	t.Parallel()
	site := evidenceSite(t)
	w := cmdtest.New(t)
	traces, token := w.Dir+"/traces", w.Dir+"/token"
	if err := os.WriteFile(token, []byte("t0psecret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.Proxy("--isolate", "--trace", traces, "--token-file", token)
	for name, trace := range map[string]string{"mine": w.Dir + "/mine.jsonl", "full": "/dev/full"} {
		w.Run("bproxy", "session", "new", name, "--trace", trace).Exits(t, 0, "")
	}
	w.Run("bproxy", "session", "new", "other", "--trace", w.Dir).Exits(t, 64, "not a file")
	w.Run("bproxy", "session", "list", "--trace", "x").Exits(t, 64, "new session")
	at := func(who string) (string, string) {
		return "", "ws://" + p.Addr + "/session/" + who + "/devtools/browser/" + who + "?token=t0psecret"
	}
	started := time.Now()
	names := []string{"puppeteer-a", "puppeteer-b"} // TestHAR has Playwright
	harClients(t, p, site, at, names...)
	for _, name := range []string{"mine", "full"} {
		_, url := at(name)
		for range 2 {
			if got := cmdtest.AskOnce(t, url, "Target.getTargets", `{}`); !strings.Contains(got, "about:blank") {
				t.Errorf(`got %s, want "about:blank"`, got)
			}
		}
	}
	if said := p.Errs.String(); strings.Count(said, "cannot write the trace") != 1 {
		t.Errorf("about a disk that is full it says %q", said)
	}
	p.Stop()
	for _, name := range names {
		trace := traces + "/" + name + ".jsonl"
		a, said := convert(w, trace)
		if a.visited(t, site, name, started); said != "" || a.Log.Entries[0].Session != name {
			t.Errorf("%s: %s %+v", name, said, a.Log.Entries[0])
		}
	}
	mine := w.Dir + "/mine.jsonl"
	files, _ := filepath.Glob(traces + "/*")
	if len(files) != 4 { // with the archives
		t.Errorf("there are the traces %v", files)
	}
	for _, path := range append(files, mine) {
		text, err := os.ReadFile(path)
		info, _ := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 || strings.Contains(string(text), "t0psecret") {
			t.Errorf("%s: %v, %v", path, err, info.Mode())
		}
	}
	text, _ := os.ReadFile(mine)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 6 || !strings.Contains(lines[0], `"session":"mine"`) ||
		!strings.HasSuffix(lines[0], `"opened":"/devtools/browser/mine"}`) ||
		!strings.HasSuffix(lines[1],
			`"direction":"to_browser","message":{"id":1,"method":"Target.getTargets","params":{}}}`) ||
		!strings.Contains(lines[2], `"direction":"to_client","message":{"id":1,"result":{"targetInfos":`) {
		t.Errorf("the trace of mine:\n%s", text)
	}
	w.Clean()
}
