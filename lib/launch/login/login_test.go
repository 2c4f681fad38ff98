package login

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/jsonrpc"
)

// fake is a browser at the other end of the pipe, with one cookie and one origin
// with storage.
type fake struct {
	out io.Writer

	mu     sync.Mutex
	cookie string
	broken bool // its storage cannot be read
}

// open starts a fake browser and watches it. quit ends the browser.
func open(t *testing.T) (w *Watcher, f *fake, quit func()) {
	t.Helper()
	fromBrowser, toUs := io.Pipe()
	fromUs, toBrowser := io.Pipe()
	f = &fake{out: toUs, cookie: "first"}
	go func() {
		for r := bufio.NewReader(fromUs); ; {
			c, err := r.ReadString(0)
			if err != nil {
				return
			}
			f.answer(json.RawMessage(strings.TrimSuffix(c, "\x00")))
		}
	}()
	quit = func() {
		toUs.Close()
		toBrowser.Close()
	}
	w, err := Open(t.Context(), fromBrowser, toBrowser, "https://a.test/login")
	if err != nil {
		t.Fatal(err)
	}
	return w, f, quit
}

func (f *fake) say(format string, args ...any) {
	fmt.Fprintf(f.out, format+"\x00", args...)
}

// target tells of a page of the default context.
func (f *fake) target(event, id, url string) {
	f.say(`{"method":"Target.%s","params":{"targetId":%q,"targetInfo":`+
		`{"targetId":%q,"type":"page","url":%q,"browserContextId":"C"}}}`, event, id, id, url)
}

func (f *fake) answer(c json.RawMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	result := "{}"
	switch method := jsonrpc.GetString(c, "method"); method {
	case "Target.getBrowserContexts":
		result = `{"browserContextIds":[],"defaultBrowserContextId":"C"}`
	case "Target.createTarget":
		result = `{"targetId":"hidden"}`
		if jsonrpc.Get(c, "params", "hidden") == nil {
			f.target("targetCreated", "page", jsonrpc.GetString(c, "params", "url"))
			result = `{"targetId":"page"}`
		}
	case "Target.attachToTarget":
		result = `{"sessionId":"S"}`
	case "Page.getFrameTree":
		result = `{"frameTree":{"frame":{"url":"https://a.test/login"},` +
			`"childFrames":[{"frame":{"url":"https://frame.test/"}}]}}`
	case "Storage.getCookies":
		result = fmt.Sprintf(`{"cookies":[{"name":"sid","value":%q,"domain":"a.test","path":"/","expires":-1}]}`,
			f.cookie)
	case "Runtime.evaluate":
		value := map[string]any{"lost": []string{}}
		if strings.Contains(jsonrpc.GetString(c, "params", "expression"), "https://a.test") {
			value["text"] = `{"origin":"https://a.test","localStorage":[{"name":"n","value":"` + f.cookie + `"}]}`
		}
		if f.broken {
			value = map[string]any{"error": "it is broken"}
		}
		b, _ := json.Marshal(value)
		part, _ := json.Marshal(string(b))
		result = fmt.Sprintf(`{"result":{"value":{"part":%s,"more":false}}}`, part)
	}
	f.say(`{"id":%s,"result":%s}`, jsonrpc.Get(c, "id"), result)
}

// set changes the cookie and the storage.
func (f *fake) set(value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cookie = value
}

// saved returns the cookie and the storage of a state, and what it lacks.
func saved(t *testing.T, w *Watcher) string {
	t.Helper()
	s, lost, err := w.State(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	text := s.Cookies[0].Value
	for _, o := range s.Origins {
		text += " " + string(o.LocalStorage)
	}
	return fmt.Sprint(text, " ", lost)
}

const storageOf = `[{"name":"n","value":%q}]`

// After the last page was closed the state has what changed until then.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f, quit := open(t)
		f.target("targetCreated", "popup", "https://a.test/popup")
		f.set("second")
		f.target("targetDestroyed", "page", "")
		synctest.Wait()
		select {
		case <-w.Closed():
			t.Error("it is closed while there is a page")
		default:
		}
		f.set("third")
		f.target("targetDestroyed", "popup", "")
		<-w.Closed()
		f.set("late")
		if got, want := saved(t, w), "third "+fmt.Sprintf(storageOf, "third")+" []"; got != want {
			t.Errorf("the state is %s, want %s", got, want)
		}
		quit()
		w.Wait()
	})
}

// The state of a browser that ends without notice is the one that was read last.
func TestQuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f, quit := open(t)
		afterReading()
		f.set("lost")
		quit()
		w.Wait()
		got := saved(t, w)
		want := "first " + fmt.Sprintf(storageOf, "first") + " [what changed in the last"
		if !strings.HasPrefix(got, want) {
			t.Errorf("the state is %s, want %s", got, want)
		}
	})
}

// Storage that cannot be read any more is as it was, and the rest is new.
func TestUnreadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f, quit := open(t)
		afterReading()
		f.mu.Lock()
		f.cookie, f.broken = "new", true
		f.mu.Unlock()
		got := saved(t, w)
		if want := "new " + fmt.Sprintf(storageOf, "first"); !strings.HasPrefix(got, want) ||
			!strings.Contains(got, "the storage of https://a.test: it is broken") {
			t.Errorf("the state is %s, want %s", got, want)
		}
		quit()
		w.Wait()
	})
}

func TestNeverRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, quit := open(t)
		quit()
		w.Wait()
		if s, _, err := w.State(context.Background()); err == nil {
			t.Errorf("the state is %+v", s)
		}
	})
}

// afterReading returns when the state has been read once.
func afterReading() {
	time.Sleep(2 * settle)
	synctest.Wait()
}
