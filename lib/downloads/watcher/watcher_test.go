package watcher

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/downloads"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// patience is how long a test waits before it says that something hangs.
const patience = time.Minute

// site serves /file?NAME as a file with this name, and /slow, which never ends.
func site(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/file":
			w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", r.URL.RawQuery))
			io.WriteString(w, "holds "+r.URL.RawQuery)
		case "/slow":
			w.Header().Set("Content-Disposition", "attachment; filename=slow.bin")
			w.Header().Set("Content-Length", "100000000")
			io.WriteString(w, strings.Repeat("x", 1<<20))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<!doctype html><title>page</title>")
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

// client is a client of the browser.
type client struct {
	t    *testing.T
	conn *websocket.Conn
	last int
}

func connect(t *testing.T, url string) *client {
	t.Helper()
	conn, err := websocket.Dial(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(websocket.Normal, "") })
	return &client{t: t, conn: conn}
}

// call has the browser execute a command, and returns its result.
func (c *client) call(session, method string, params any) json.RawMessage {
	c.t.Helper()
	c.last++
	message, err := json.Marshal(map[string]any{"id": c.last, "method": method, "params": params})
	if err == nil && session != "" {
		message = jsonrpc.Set(message, "sessionId", json.RawMessage(fmt.Sprintf("%q", session)))
	}
	if err == nil {
		err = c.conn.Write(message)
	}
	for err == nil {
		var m *websocket.Message
		if m, err = c.conn.Next(); err != nil {
			break
		}
		var b []byte
		if b, err = m.Bytes(); err != nil || string(jsonrpc.Get(b, "id")) != fmt.Sprint(c.last) {
			continue
		}
		if e := jsonrpc.Get(b, "error"); e != nil {
			c.t.Fatalf("%s: %s", method, e)
		}
		return jsonrpc.Get(b, "result")
	}
	c.t.Fatalf("%s: %v", method, err)
	return nil
}

// download has a new page of a context download an address.
func (c *client) download(context, site, path string) {
	c.t.Helper()
	params := map[string]any{"url": site}
	if context != "" {
		params["browserContextId"] = context
	}
	target := jsonrpc.GetString(c.call("", "Target.createTarget", params), "targetId")
	page := jsonrpc.GetString(c.call("", "Target.attachToTarget",
		map[string]any{"targetId": target, "flatten": true}), "sessionId")
	c.call(page, "Page.enable", nil)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		got := c.call(page, "Runtime.evaluate", map[string]any{"expression": "document.title"})
		if jsonrpc.GetString(got, "result", "value") == "page" {
			break
		}
		if time.Now().After(end) {
			c.t.Fatalf("the page does not load: %s", got)
		}
	}
	c.call(page, "Runtime.evaluate", map[string]any{
		"expression": "a = document.createElement('a'); a.href = '" + site + path + "'; a.click()"})
}

// owner owns the browser.
type owner struct {
	t  *testing.T
	mu sync.Mutex
	*downloads.Files
	told []string
}

func newOwner(t *testing.T, incoming string, limit int64) *owner {
	t.Helper()
	o := &owner{t: t}
	var err error
	o.Files, err = downloads.New(downloads.Options{Dir: filepath.Join(t.TempDir(), "lease"), Incoming: incoming,
		Limit: limit, Tell: func(event string, f downloads.File) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.told = append(o.told, strings.TrimSpace(event+" "+f.Name+" "+f.Why))
		}})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// await waits until the last event is this one.
func (o *owner) await(want string) {
	o.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		o.mu.Lock()
		told := strings.Join(o.told, "; ")
		o.mu.Unlock()
		if strings.HasSuffix(told, want) {
			return
		}
		if time.Now().After(end) {
			o.t.Fatalf("the events are %q, want %q", told, want)
		}
	}
}

func holds(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); string(b) != want {
		t.Errorf("%s holds %q: %v; want %q", path, b, err, want)
	}
}

// Downloads are the owner's of their moment, wherever clients want them.
func TestWatcher(t *testing.T) {
	t.Parallel()
	url, chrome := chrometest.Start(t)
	at, incoming, theirs := site(t), filepath.Join(t.TempDir(), "incoming"), t.TempDir()
	first := newOwner(t, incoming, 0)
	var mu sync.Mutex
	current := first.Files
	own := func(files *downloads.Files) {
		mu.Lock()
		defer mu.Unlock()
		current = files
	}
	w, err := Open(t.Context(), Options{URL: url, Dir: incoming, Log: slog.New(slog.DiscardHandler),
		Owner: func() (*downloads.Files, bool) {
			mu.Lock()
			defer mu.Unlock()
			return current, false
		}})
	if err == nil {
		err = w.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)

	c := connect(t, url)
	c.download("", at, "/file?../a.txt")
	first.await("downloaded _a.txt")
	holds(t, first.Dir()+"/_a.txt", "holds ../a.txt")

	c.call("", "Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": theirs})
	c.download("", at, "/file?b.txt")
	first.await("downloaded b.txt")
	holds(t, theirs+"/b.txt", "holds b.txt")
	holds(t, first.Dir()+"/b.txt", "holds b.txt")

	made := jsonrpc.GetString(c.call("", "Target.createBrowserContext", nil), "browserContextId")
	c.call("", "Browser.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": theirs,
		"browserContextId": made})
	c.download(made, at, "/file?c.txt")
	first.await("downloaded c.txt")
	holds(t, first.Dir()+"/c.txt", "holds c.txt")

	c.conn.Close(websocket.Normal, "")
	w.Reset()
	c = connect(t, url)
	made = jsonrpc.GetString(c.call("", "Target.createBrowserContext", nil), "browserContextId")
	c.download("", at, "/file?d.txt") // had the browser put it elsewhere, it would be there as well
	first.await("downloaded d.txt")
	if left, _ := os.ReadDir(incoming); len(left) > 0 {
		t.Errorf("left: %v", left)
	}

	c.download("", at, "/slow")
	first.await("download_started slow.bin")
	second := newOwner(t, incoming, 4<<20)
	own(second.Files)
	w.Release(first.Files, false)
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	first.await("download_failed slow.bin canceled")

	for _, context := range []string{"", made} {
		params := map[string]any{"behavior": "allowAndName", "downloadPath": theirs}
		if context != "" {
			params["browserContextId"] = context
		}
		c.call("", "Browser.setDownloadBehavior", params)
		c.download(context, at, "/slow")
		second.await("download_failed slow.bin limit")
	}
	own(nil)
	c.download("", at, "/slow") // nobody's: it is canceled
	c.download("", at, "/file?e.txt")

	third := newOwner(t, incoming, 0)
	own(third.Files)
	c.download("", at, "/slow")
	third.await("download_started slow.bin")
	chrome.Kill()
	third.await("download_failed slow.bin interrupted")
	<-w.done
	if w.Err() == nil {
		t.Error("the watcher does not know that its browser has ended")
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if left, _ := os.ReadDir(first.Incoming()); len(left) == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("left: %v", left)
		}
	}
}
