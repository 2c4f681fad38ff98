package launch

import (
	"io"
	"log/slog"
	"strings"
	"testing"
)

func read(text string) *browserLog {
	l := newBrowserLog(slog.New(slog.NewTextHandler(io.Discard, nil)))
	l.read(strings.NewReader(text), chromeReady)
	return l
}

func TestBrowserLog(t *testing.T) {
	l := read("a\r\n\nDevTools listening on ws://127.0.0.1:1/x y\nDevTools listening on ws://later\nlast")
	if got := <-l.announced; got != "ws://127.0.0.1:1/x" {
		t.Errorf("announced %q", got)
	}
	if got := strings.Join(l.last(9), "|"); got != "a|last" {
		t.Errorf("last %q", got)
	}
	l = read("[1129/220925.344763:INFO:CONSOLE:7] \"one\nsecret\n\", source: http://a/ (7)\n#0 0x55\n" +
		"[7:7:1129/220925.344763:INFO:CONSOLE(8)] \"two\", source:  (8)\n[1129/220925.3:ERROR:dir/a.cc:405] three\n")
	if got := strings.Join(l.last(9), "|"); got != "#0 0x55|[1129/220925.3:ERROR:dir/a.cc:405] three" {
		t.Errorf("of what pages print is kept %q", got)
	}
	select {
	case <-read("Cannot start http server for devtools.\nCannot start http server for devtools.\n").noServer:
	default:
		t.Error("not told that there is no server")
	}
}

// Whatever a browser prints, no more than a bounded tail is kept.
func FuzzBrowserLog(f *testing.F) {
	f.Add("DevTools listening on ws://127.0.0.1:1/devtools/browser/x\n")
	f.Add("DevTools listening on ws:// \nDevTools listening on \n\r\n")
	f.Add(strings.Repeat("line\n", 20000) + strings.Repeat("x", 3*maxLine))
	f.Fuzz(func(t *testing.T, text string) {
		l := read(text)
		if n := len(l.tail.String()); n > 2*maxTail {
			t.Errorf("kept %d bytes", n)
		}
		select {
		case url := <-l.announced:
			if !strings.HasPrefix(url, "ws://") || !strings.Contains(text, url) {
				t.Errorf("announced %q", url)
			}
		default:
		}
	})
}
