package browse

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"btools/lib/cdp"
)

func TestNormalize(t *testing.T) {
	for address, want := range map[string]string{
		"https://example.org/a b": "https://example.org/a b",
		"example.org":             "https://example.org",
		"localhost:8080/x":        "http://localhost:8080/x",
		"127.0.0.1:80":            "http://127.0.0.1:80",
		"[::1]:80":                "http://[::1]:80",
		"example.org:8443":        "https://example.org:8443",
		"about:blank":             "about:blank",
		"data:text/html,x":        "data:text/html,x",
		" file:///tmp ":           "file:///tmp",
	} {
		if got, err := Address(address); got != want {
			t.Errorf("%q is %q (%v), want %q", address, got, err, want)
		}
	}
	for _, address := range []string{"", "  ", "http://%zz", "http://", "https:", "/next", "123", "1.5"} {
		if got, err := Address(address); err == nil {
			t.Errorf("%q is %q", address, got)
		}
	}
}

// A combination presses its modifiers first, and types nothing with Control.
func TestPress(t *testing.T) {
	for combination, want := range map[string]string{
		"a":         "keyDown a a, keyUp a",
		"A":         "keyDown A A, keyUp A",
		"Enter":     "keyDown Enter \r, keyUp Enter",
		"Control+a": "rawKeyDown Control, rawKeyDown a, keyUp a, keyUp Control",
		"Shift+a":   "rawKeyDown Shift, keyDown A A, keyUp A, keyUp Shift",
		"+":         "keyDown + +, keyUp +",
		"Control++": "rawKeyDown Control, rawKeyDown +, keyUp +, keyUp Control",
		"F5":        "rawKeyDown F5, keyUp F5",
		"Esc":       "rawKeyDown Escape, keyUp Escape",
		"é":         "keyDown é é, keyUp é",
		"Shift+é":   "rawKeyDown Shift, keyDown É É, keyUp É, keyUp Shift",
		"Control+é": "rawKeyDown Control, rawKeyDown é, keyUp é, keyUp Control",
		"Alt+ж":     "rawKeyDown Alt, rawKeyDown ж, keyUp ж, keyUp Alt",
		"\x02":      "insertText \x02",
	} {
		events, err := press(combination)
		if err != nil {
			t.Errorf("%s: %v", combination, err)
			continue
		}
		var got []string
		for _, e := range events {
			if p, ok := e.params.(map[string]string); ok {
				got = append(got, "insertText "+p["text"])
				continue
			}
			p := e.params.(map[string]any)
			word := p["type"].(string) + " " + p["key"].(string)
			if text, ok := p["text"].(string); ok {
				word += " " + text
			}
			got = append(got, word)
		}
		if s := strings.Join(got, ", "); s != want {
			t.Errorf("%s: %q, want %q", combination, s, want)
		}
	}
	// Pages see the number of a modifier, and of a letter, whatever side or case it is.
	for name, want := range map[string]int64{"Shift": 16, "Ctrl": 17, "Option": 18, "Meta": 91, "a": 65, "A": 65,
		"Digit1": 49, "!": 49, "Space": 32, "F24": 135, "Delete": 46, "MediaPlayPause": 179} {
		if k, ok := keyOf(name); !ok || k.Windows != want {
			t.Errorf("%s is %+v, want %d", name, k, want)
		}
	}
	for _, bad := range []string{"", "Nonsense", "a+b", "Hyper+a"} {
		if _, err := press(bad); err == nil {
			t.Errorf("%q is a key", bad)
		}
	}
}

// Letters are shown as such, and what cannot be seen by its escape.
func TestReadable(t *testing.T) {
	for value, want := range map[string]string{
		`"gr\u00fcn \u65e5\u672c \ud83d\ude00"`: `"grün 日本 😀"`,
		`{"a\u00e9":[1,"\\u00fc \n\u000a\u0022\u007f\u00a0\u200b\u2028"]}`: `{"aé":[1,` +
			`"\\u00fc \n\u000a\u0022\u007f\u00a0\u200b\u2028"]}`,
		`"\ud83d \ude00\ud83d\u00fc\ufffd"`: `"\ud83d \ude00\ud83dü\ufffd"`,
		`"ü"`:                               `"ü"`, `12`: `12`, `"\u00f`: `"\u00f`, `\`: `\`, ``: ``,
	} {
		if got := string(readable([]byte(value))); got != want {
			t.Errorf("%s is shown as %s, want %s", value, got, want)
		}
	}
}

// A target that has answered as its caller gave up is not taken for one that does not.
func TestPatienceOfAnAnswer(t *testing.T) {
	frame := &target{}
	tab := &link{b: &Browser{targets: map[string]*target{"frame": frame}}}
	got := make(chan answer, 1)
	tab.loseUnless(got, "frame")
	if frame.patience != slow {
		t.Error("one that has not answered is as it was")
	}
	frame.patience = answering
	got <- answer{}
	if tab.loseUnless(got, "frame"); frame.patience != answering {
		t.Error("one that has answered is taken for slow")
	}
}

// A mouse with several buttons pressed says the same of each move.
func TestHeldButtons(t *testing.T) {
	for buttons, want := range map[int]string{0: "none", 1: "left", 2: "right", 4: "middle", 3: "left", 6: "right"} {
		for range 20 {
			if got := heldIn(buttons); got != want {
				t.Fatalf("%d: %s, want %s", buttons, got, want)
			}
		}
	}
}

// What Chrome calls a page that has no title is not told as one, a title that ends its
// address is.
func TestTitleOf(t *testing.T) {
	for _, c := range []struct{ called, address, want string }{
		{"/a", "http://127.0.0.1:80/a", "/a"},
		{"a", "http://127.0.0.1:80/a", "a"},
		{"127.0.0.1:80/a", "http://127.0.0.1:80/a", ""},
		{"127.0.0.1", "https://127.0.0.1/", ""},
		{"about:blank", "about:blank", ""},
		{"b.html", "file:///a/b.html", ""},
		{"A page", "file:///a/b.html", "A page"},
	} {
		if got := titleOf(c.called, c.address); got != c.want {
			t.Errorf("the title of %s that is called %q: %q, want %q", c.address, c.called, got, c.want)
		}
	}
}

// What Chrome itself asks a site for is not among the requests of the page.
func TestOwnRequests(t *testing.T) {
	tab := &records{link: &link{main: &target{}}, traffic: traffic{byID: map[string]*Request{}}}
	for _, params := range []string{
		`{"requestId":"1","type":"Document","request":{"url":"http://a/favicon.ico"}}`, // where the agent goes
		`{"requestId":"2","type":"Other","request":{"url":"http://a/favicon.ico?v=2"}}`,
		`{"requestId":"2","type":"Other","request":{"url":"http://a/b.ico"},"redirectResponse":{"status":302}}`,
		`{"requestId":"3","type":"Image","request":{"url":"http://a/favicon.ico"}}`, // the page's own
	} {
		tab.addTraffic(tab.main, cdp.Event{Method: "Network.requestWillBeSent", Params: json.RawMessage(params)})
	}
	var got []string
	for _, r := range tab.traffic.all {
		got = append(got, r.Type+" "+r.URL)
	}
	if s := fmt.Sprint(got); s != "[document http://a/favicon.ico image http://a/favicon.ico]" {
		t.Errorf("the requests are %s", s)
	}
	for _, id := range []string{"2", "3"} {
		tab.addMessage(cdp.Event{Method: "Log.entryAdded", Params: json.RawMessage(
			`{"entry":{"level":"error","text":"404 of ` + id + `","networkRequestId":"` + id + `"}}`)})
	}
	if len(tab.console) != 1 || tab.console[0].Text != "404 of 3" {
		t.Errorf("the console has %+v", tab.console)
	}
}
