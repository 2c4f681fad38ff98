package cast_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/jpeg"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/cast"
	"btools/lib/cdp"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
	"btools/lib/wait"
	"btools/lib/websocket"

	coder "github.com/coder/websocket"
)

// sink tells of its first frame, and of the first that shows a green page.
type sink struct{ first, green chan struct{} }

func (s sink) Write(f cast.Frame) error {
	closeOnce(s.first)
	image, err := jpeg.Decode(bytes.NewReader(f.JPEG))
	if err == nil {
		if r, g, b, _ := image.At(9, 9).RGBA(); g>>8 > 200 && r>>8 < 50 && b>>8 < 50 {
			closeOnce(s.green)
		}
	}
	return err
}

func closeOnce(c chan struct{}) {
	if !wait.Closed(c) {
		close(c)
	}
}

// A recording shows the page as it stays after many quick changes, and does not
// make its dialogs wait.
func TestRecordingEndsWithTheLatest(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(`<body style="margin: 0; background: red"><script>
			let n = 0
			const change = () => {
				document.body.style.background = ++n < 60 ? ["red", "blue"][n % 2] : "rgb(0, 255, 0)"
				if (n < 60) requestAnimationFrame(change); else document.title = "done"
			}
			function begin() { confirm("now?"); change(); return "asked" }</script>`))
	}))
	t.Cleanup(site.Close)
	url, _ := chrometest.StartShell(t)
	browser, _, _ := strings.Cut(strings.TrimPrefix(url, "ws://"), "/")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+browser+"/json/new?"+site.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	b.ReadFrom(resp.Body)
	address := jsonrpc.GetString(b.Bytes(), "webSocketDebuggerUrl")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	to, over := sink{make(chan struct{}), make(chan struct{})}, make(chan error, 1)
	go func() {
		_, err := cast.Record(ctx, address, "", 2, 0, to)
		over <- err
	}()
	await := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case err := <-over:
			t.Fatalf("the recording has ended before %s: %v", what, err)
		case <-ctx.Done():
			t.Fatalf("no %s", what)
		}
	}
	await("a frame", to.first)
	player, err := cdp.Dial(ctx, address, func(cdp.Event) {})
	if err != nil {
		t.Fatal(err)
	}
	defer player.Close()
	page, err := websocket.Dial(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close(websocket.Normal, "")
	context.AfterFunc(ctx, func() { page.Close(websocket.Normal, "") }) // if the dialog waits
	// It is asked again until the page is loaded.
	for answer := ""; answer != "asked"; {
		err := page.Write([]byte(`{"id":1,"method":"Runtime.evaluate","params":{"expression":"begin()"}}`))
		if err != nil {
			t.Fatal(err)
		}
		m, err := page.Next()
		if err != nil {
			t.Fatal(err)
		}
		b, err := m.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		answer = jsonrpc.GetString(b, "result", "result", "value")
	}
	await("the last change", to.green)
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
	// One that is ended before it has begun shows the page all the same.
	film := t.TempDir() + "/film.html"
	file, err := cast.Create(film, 2)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := cast.Record(ctx, address, "", 2, 0, file); n != 1 || err != nil {
		t.Errorf("after its end: %d images, %v", n, err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	whole, err := os.ReadFile(film)
	if err != nil {
		t.Fatal(err)
	}
	// The recording may have been killed in the middle of the next image.
	if err := os.WriteFile(film, append(whole, "<script>frame(500, '/9j/4AA"...), 0o600); err != nil {
		t.Fatal(err)
	}
	color := ""
	for ctx := t.Context(); color != "0,255,0 1 0"; {
		call := func(method string, params any) (result json.RawMessage) {
			t.Helper()
			if err := player.Call(ctx, "", method, params, &result); err != nil {
				t.Fatal(err)
			}
			return result
		}
		if color == "" {
			call("Page.navigate", map[string]any{"url": "file://" + film})
		}
		color = jsonrpc.GetString(call("Runtime.evaluate", map[string]any{"expression": `(() => {
			const image = document.querySelector("img"), canvas = document.createElement("canvas")
			if (!image?.naturalWidth) return "none"
			const context = canvas.getContext("2d")
			context.drawImage(image, 0, 0)
			const near = (n) => n > 200 ? 255 : n < 50 ? 0 : n
			return [...context.getImageData(9, 9, 1, 1).data].slice(0, 3).map(near) + " " + frames.length + " " +
				document.querySelector("input").max
		})()`}), "result", "value")
	}
}

// times are those of the frames that are written.
type times struct{ all []int64 }

func (s *times) Write(f cast.Frame) error {
	s.all = append(s.all, f.Time.UnixMilli())
	return nil
}

// Chrome encodes frames side by side, and sends one after a newer one at times.
func TestRecordingKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const now = 1_790_000_000_000
	chrome := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := coder.Accept(w, r, nil)
		if err != nil {
			return
		}
		for id, sent := 1, []int{100, 500, 400, 600}; id <= 5; id++ {
			_, b, err := conn.Read(r.Context())
			if err != nil || jsonrpc.GetString(b, "method") == "Page.captureScreenshot" {
				break
			}
			fmt.Fprintf(writer{conn}, `{"id":%s,"result":{}}`, jsonrpc.Get(b, "id"))
			if id <= len(sent) {
				fmt.Fprintf(writer{conn}, `{"method":"Page.screencastFrame","params":{"data":"","sessionId":1,
					"metadata":{"timestamp":%f}}}`, float64(now+sent[id-1])/1000)
			}
		}
		conn.Close(coder.StatusNormalClosure, "")
	}))
	t.Cleanup(chrome.Close)
	var to times
	n, err := cast.Record(t.Context(), "ws"+strings.TrimPrefix(chrome.URL, "http"), "", 1000, 0, &to)
	if want := []int64{now + 100, now + 500, now + 600}; n != len(want) || !slices.Equal(to.all, want) {
		t.Errorf("%d frames, of %v, want %v: %v", n, to.all, want, err)
	}
}

// writer writes a message of a WebSocket.
type writer struct{ *coder.Conn }

func (w writer) Write(b []byte) (int, error) {
	return len(b), w.Conn.Write(context.Background(), coder.MessageText, b)
}
