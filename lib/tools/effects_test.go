package tools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// The answer to an action shows what it causes a little later without a request; what
// comes later still begins the next answer.
func TestEffects(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><title>Effects</title><p id=said>nothing yet</p>
			<button onclick="setTimeout(() => { said.textContent = 'by a timer' }, 100)">timer</button>
			<button onclick="setTimeout(() => { location.hash = 'there' }, 100)">hash</button>
			<button onclick="history.pushState(0, '', '/next');
				setTimeout(() => { said.textContent = 'the next' }, 120)">route</button>
			<button onclick="setTimeout(() => { alert('so it is') }, 100)">alert</button>
			<button onclick="setTimeout(() => { location = '/other' }, 100)">leave</button>
			<button onclick="let n = 0; const t = setInterval(() => {
				said.textContent = 'step ' + ++n; n > 3 && clearInterval(t) }, 90)">steps</button>
			<button onclick="setTimeout(() => { location.hash = 'late' }, 3000)">late</button>
			<input onkeydown="setTimeout(() => { said.textContent = 'by a key' }, 100)">
			<select onchange="setTimeout(() => { said.textContent = 'by a choice' }, 100)"><option>a<option>b</select>`)
	}))
	defer site.Close()
	endpoint, _ := chrometest.StartShell(t)
	h := serve(t, endpoint, 0)
	for _, c := range []struct{ tool, args, want string }{
		{"browser_click", `{"target":"text=timer"}`, "by a timer"},
		{"browser_click", `{"target":"text=hash"}`, "/first#there"},
		{"browser_click", `{"target":"text=route"}`, "the next"},
		{"browser_click", `{"target":"text=steps"}`, "step 4"},
		{"browser_click", `{"target":"text=leave"}`, "/other\n"},
		{"browser_press_key", `{"key":"a"}`, "by a key"},
		{"browser_type", `{"target":"input","text":"a","slowly":true}`, "by a key"},
		{"browser_select_option", `{"target":"select","values":["b"]}`, "by a choice"},
		{"browser_click", `{"target":"text=alert"}`, "so it is"},
	} {
		if c.tool != "browser_navigate" {
			h.wants(false, "nothing yet", "browser_navigate", `{"url":`+quoted(site.URL+"/first")+`}`)
		}
		if c.tool == "browser_press_key" {
			h.wants(false, "", "browser_click", `{"target":"input"}`)
		}
		h.wants(false, c.want, c.tool, c.args)
	}
	h.wants(false, "", "browser_handle_dialog", `{"accept":true}`)
	h.wants(true, "browser_evaluate runs it", "browser_navigate", `{"url":"javascript:alert(1)"}`)

	h.wants(false, "", "browser_navigate", `{"url":`+quoted(site.URL+"/first")+`}`)
	if s := h.wants(false, "", "browser_click", `{"target":"text=late"}`); strings.Contains(s, "#late") {
		t.Fatalf("the answer waited for what is late: %s", s)
	}
	s := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(s, "#late"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("what came later is not told: %s", s)
		}
		s, _, _ = h.call("browser_console_messages", "{}")
	}
	if !strings.HasPrefix(s, "### Since the last call\n- The page went to ") {
		t.Errorf("what came later is not told so: %s", s)
	}
	if s := h.wants(false, "2", "browser_evaluate", `{"function":"() => 1 + 1"}`); strings.Contains(s, "Since") {
		t.Errorf("it is told again: %s", s)
	}
	// A page is what it is at the script's end, which the question for that does not await.
	for _, c := range [][2]string{
		{"() => { document.title = 'at once' }", "- Page Title: at once"},
		{"async () => { await new Promise((done) => setTimeout(done, 100)); document.title = 'later' }",
			"- Page Title: later"},
		{"document.title = 'as statements'; history.pushState(0, '', '/moved')",
			"- Page URL: " + site.URL + "/moved\n- Page Title: as statements"},
	} {
		h.wants(false, c[1], "browser_evaluate", `{"function":`+quoted(c[0])+`}`)
	}
	useForms(t, h)
	t.Run("strays", func(t *testing.T) { checkStrays(h.as(t), nil) })
}
