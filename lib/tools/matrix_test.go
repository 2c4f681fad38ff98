//go:build linux

package tools

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// matrixSite serves pages that do what pages can do to a tool.
func matrixSite(t *testing.T) string {
	t.Helper()
	page := `<!doctype html><title>A page</title><button>Go</button><input><input type=checkbox id=c>
		<select><option>one<option>two</select><a href="/normal">a link</a><p draggable=true>text</p>`
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		switch r.URL.Path {
		case "/never":
			<-r.Context().Done()
			return
		case "/alert":
			fmt.Fprint(w, page, `<script>setTimeout(() => { alert('stop') }, 50)</script>`)
			return
		case "/unsaved":
			fmt.Fprint(w, page, `<script>onbeforeunload = (e) => { e.preventDefault() }</script>`)
			return
		case "/closes":
			fmt.Fprint(w, page, `<script>setTimeout(close, 300)</script>`)
			return
		case "/frame":
			fmt.Fprintf(w, `%s<iframe src="http://%s/hangs"></iframe>`, page,
				strings.Replace(r.Host, "127.0.0.1", "localhost", 1))
			return
		case "/hangs":
			fmt.Fprint(w, `<p>advertisement<script>setTimeout(() => { for (;;); }, 100)</script>`)
			return
		case "/missing":
			w.WriteHeader(http.StatusNotFound)
		case "/nothing":
			w.WriteHeader(http.StatusNoContent)
			return
		case "/file":
			w.Header().Set("Content-Disposition", "attachment; filename=file.bin")
		case "/modal":
			fmt.Fprint(w, page, `<dialog id=d>News<button>Close</button></dialog><script>d.showModal()</script>`)
			return
		case "/inert":
			fmt.Fprint(w, `<main inert>`, page, `</main><dialog open>News<button>Close</button></dialog>`)
			return
		case "/stream":
			fmt.Fprint(w, page)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		case "/pdf":
			w.Header().Set("Content-Type", "application/pdf")
			io.WriteString(w, "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj "+
				"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "+
				"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF")
			return
		case "/many":
			fmt.Fprint(w, page)
			for i := range rows() {
				fmt.Fprintf(w, "<div><p>Row %d</p><button>Buy</button></div>", i)
			}
			return
		}
		fmt.Fprint(w, page)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

// matrixTools are calls of all tools.
func matrixTools(site string) [][2]string {
	url := `{"url":` + quoted(site+"/normal") + `}`
	return [][2]string{
		{"browser_snapshot", `{}`},
		{"browser_click", `{"target":"button >> nth=0"}`},
		{"browser_evaluate", `{"function":"() => 1 + 1"}`},
		{"browser_navigate", url},
		{"browser_tabs", `{"action":"list"}`},
		{"browser_take_screenshot", `{}`},
		{"browser_wait_for", `{"text":"a link"}`},
		{"browser_page_tools", `{}`},
		{"browser_page_tool", `{"name":"x"}`},
		{"browser_close", `{}`},
		{"browser_find", `{"text":"a link"}`},
		{"browser_hover", `{"target":"text=a link"}`},
		{"browser_type", `{"target":"input >> nth=0","text":"x","submit":true}`},
		{"browser_fill_form", `{"fields":[{"name":"c","type":"checkbox","target":"#c","value":"true"}]}`},
		{"browser_select_option", `{"target":"select","values":["two"]}`},
		{"browser_press_key", `{"key":"a"}`},
		{"browser_drag", `{"startTarget":"p >> nth=0","endTarget":"select"}`},
		{"browser_drop", `{"target":"select","data":{"text/plain":"x"}}`},
		{"browser_file_upload", `{}`},
		{"browser_handle_dialog", `{"accept":false}`},
		{"browser_navigate_back", `{}`},
		{"browser_navigate_forward", `{}`},
		{"browser_reload", `{}`},
		{"browser_scroll", `{"direction":"down"}`},
		{"browser_tabs", `{"action":"select","index":1}`},
		{"browser_tabs", `{"action":"close","index":1}`},
		{"browser_tabs", `{"action":"new","url":` + quoted(site+"/normal") + `}`},
		{"browser_pdf_save", `{}`},
		{"browser_console_messages", `{}`},
		{"browser_network_requests", `{}`},
		{"browser_network_request", `{"index":1,"part":"response-body"}`},
		{"browser_emulate_media", `{"colorScheme":"dark"}`},
		{"browser_resize", `{"width":900,"height":700}`},
		{"browser_downloads", `{"action":"list"}`},
		{"browser_state", `{"action":"list"}`},
		{"browser_select_element", `{}`},
		{"browser_ask_human", `{"instructions":"x"}`},
		{"browser_view", `{}`},
		{"browser_view_frame", `{}`},
		{"browser_get_markdown", `{}`},
		{"browser_get_dom", `{}`},
		{"browser_fetch", url},
		{"browser_extract", url},
		{"browser_scrape", url},
		{"browser_search", `{"query":"x"}`},
		{"browser_cookie_list", `{}`},
		{"browser_cookie_get", `{"name":"x"}`},
		{"browser_cookie_set", `{"name":"x","value":"y"}`},
		{"browser_cookie_delete", `{"name":"x"}`},
		{"browser_cookie_clear", `{}`},
		{"browser_localstorage_list", `{}`},
		{"browser_localstorage_get", `{"key":"x"}`},
		{"browser_localstorage_set", `{"key":"x","value":"y"}`},
		{"browser_localstorage_delete", `{"key":"x"}`},
		{"browser_localstorage_clear", `{}`},
		{"browser_sessionstorage_list", `{}`},
		{"browser_sessionstorage_get", `{"key":"x"}`},
		{"browser_sessionstorage_set", `{"key":"x","value":"y"}`},
		{"browser_sessionstorage_delete", `{"key":"x"}`},
		{"browser_sessionstorage_clear", `{}`},
		{"browser_storage_state", `{"filename":"state.json"}`},
		{"browser_set_storage_state", `{"filename":"state.json"}`},
		{"browser_route", `{"pattern":"**/routed","body":"x"}`},
		{"browser_route_list", `{}`},
		{"browser_unroute", `{}`},
		{"browser_network_state_set", `{"state":"online"}`},
		{"browser_emulate", `{"locale":"de-DE"}`},
		{"browser_mouse_move_xy", `{"x":10,"y":10}`},
		{"browser_mouse_click_xy", `{"x":10,"y":10}`},
		{"browser_mouse_drag_xy", `{"startX":10,"startY":10,"endX":20,"endY":20}`},
		{"browser_mouse_down", `{}`},
		{"browser_mouse_up", `{}`},
		{"browser_mouse_wheel", `{"deltaY":10}`},
		{"browser_verify_element_visible", `{"role":"button","accessibleName":"Go"}`},
		{"browser_verify_text_visible", `{"text":"a link"}`},
		{"browser_verify_list_visible", `{"target":"p >> nth=0","items":["text"]}`},
		{"browser_verify_value", `{"type":"textbox","target":"input >> nth=0","value":""}`},
		{"browser_generate_locator", `{"target":"button >> nth=0"}`},
	}
}

// matrix is calls of tools on the pages of a site, in each state of a page.
type matrix struct {
	site     string
	calls    [][2]string
	second   time.Duration  // that the bounds of tools are counted in
	expected *regexp.Regexp // what an error may say in each state
}

// matrixState is a state of a page.
type matrixState struct {
	name  string
	begin func(h *host)
	says  string   // what an error may say in this state, as a regular expression
	few   []string // the tools that are called unless the tests are long
}

// open opens a tab. On a busy machine a blank one may take longer than its bound, and
// there is none of the page then.
func (m matrix) open(h *host, path string) {
	h.t.Helper()
	url := quoted(m.site + path)
	text, _, _ := h.call("browser_tabs", `{"action":"new","url":`+url+`}`)
	for end := time.Now().Add(time.Minute); strings.Contains(text, "the browser does not answer") &&
		time.Now().Before(end); {
		h.t.Logf("a tab was not opened: %s", text)
		text, _, _ = h.call("browser_navigate", `{"url":`+url+`}`)
	}
}

// inertSays is what an error may say of a page that bars a person from all but a dialog.
const inertSays = `is inert: the dialog "News`

// onElements are the tools that act on an element.
var onElements = []string{"browser_click", "browser_drag", "browser_drop", "browser_fill_form", "browser_hover",
	"browser_select_option", "browser_type"}

// check calls a tool, which must not last longer than its bound, nor fail for a reason
// that nobody expects.
func (m matrix) check(t *testing.T, h *host, c [2]string, says string) (isError bool) {
	t.Helper()
	text, isError, took := h.call(c[0], c[1])
	if took > 30*m.second+2*time.Second {
		t.Errorf("%s %s took %v: %.300s", c[0], c[1], took, text)
	}
	if isError && !m.expected.MatchString(text) && (says == "" || !regexp.MustCompile(says).MatchString(text)) {
		t.Errorf("%s %s after %v: %.300s", c[0], c[1], took, text)
	}
	if testing.Verbose() {
		first, _, _ := strings.Cut(text, "\n### Open")
		t.Logf("%6d ms %s %s: %.300q", took.Milliseconds(), c[0], c[1], first)
	}
	return isError
}

// run calls the tools in each state. Another tab, whose page is at /healthy, is as it was.
func (m matrix) run(t *testing.T, h *host, states []matrixState) {
	soon := 20 * time.Second // a busy machine
	if isLong {
		soon = 4 * time.Second
	}
	for _, s := range states {
		if !isLong && s.few == nil {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			h := h.as(t)
			for _, c := range m.calls {
				if !isLong && !slices.Contains(s.few, c[0]) {
					continue
				}
				s.begin(h)
				if !m.check(t, h, c, s.says) && s.says == inertSays && slices.Contains(onElements, c[0]) {
					t.Errorf("%s %s is not refused", c[0], c[1])
				}
				began := time.Now()
				h.wants(false, "]("+m.site+"/healthy)", "browser_tabs", `{"action":"select","index":0}`)
				h.wants(false, "/healthy", "browser_evaluate", `{"function":"() => location.href"}`)
				if took := time.Since(began); took > soon {
					t.Errorf("after %s %s another tab takes %v", c[0], c[1], took)
				}
				for range 3 {
					h.call("browser_tabs", `{"action":"close","index":1}`)
				}
				h.wants(false, "", "browser_evaluate", `{"function":"() => 1"}`)
			}
		})
	}
}

// stop calls the tools on a browser that has got a signal.
func (m matrix) stop(t *testing.T, h *host, p *os.Process, by syscall.Signal, says string, few ...string) {
	t.Run(by.String(), func(t *testing.T) {
		h := h.as(t)
		if err := p.Signal(by); err != nil {
			t.Fatal(err)
		}
		defer p.Signal(syscall.SIGCONT)
		for _, c := range m.calls {
			if !isLong && !slices.Contains(few, c[0]) {
				continue
			}
			if !m.check(t, h, c, says) && c[0] == "browser_snapshot" {
				t.Errorf("%s does not fail", c[0])
			}
		}
	})
}

// No tool lasts longer than its bound, whatever the page does: it says what is wrong,
// and another tab is as it was.
func TestMatrix(t *testing.T) {
	m := matrix{site: matrixSite(t), second: 600 * time.Millisecond,
		expected: regexp.MustCompile(`nothing matches|did not appear|no host|there is no button|no dialog is open|` +
			`no file chooser|no page before|no request|` +
			`headless|cannot read the downloads|no tab|is not in the page|` +
			`no results|the page has no tool|does not have the response|is not visible|` +
			`not a select|no cookie|not visible|belongs to no site|no such file|not found|but got|is not there|` +
			`no value|nobody can be asked`)}
	start := chrometest.StartShell
	if isLong {
		t.Setenv("SEARCH_URL", m.site+"/normal?q={query}")
		start = func(t testing.TB) (string, *os.Process) { return chrometest.Start(t) }
	} else {
		t.Parallel()
	}
	m.calls = matrixTools(m.site)
	for _, tool := range table() {
		if !slices.ContainsFunc(m.calls, func(c [2]string) bool { return c[0] == tool.Name }) {
			t.Errorf("%s is not in the matrix: add a call to matrixTools", tool.Name)
		}
	}
	// on calls the tools on a browser of its own. Most of the time of three of these is waiting: they go side by side.
	var all sync.WaitGroup
	on := func(name string, call func(t *testing.T, h *host, p *os.Process)) {
		one := func() {
			t.Run(name, func(t *testing.T) {
				endpoint, p := start(t)
				h := serve(t, endpoint, m.second)
				h.wants(false, "/healthy", "browser_navigate", `{"url":`+quoted(m.site+"/healthy")+`}`)
				call(t, h, p)
			})
		}
		if isLong {
			one()
		} else {
			all.Go(one)
		}
	}
	on("leaving", func(t *testing.T, h *host, _ *os.Process) {
		m.run(t, h, []matrixState{{"leaving", func(h *host) {
			m.open(h, "/normal")
			h.call("browser_evaluate", `{"function":"() => { location = '/never' }"}`)
		}, "is leaving for|has not answered",
			[]string{"browser_snapshot", "browser_click", "browser_take_screenshot", "browser_tabs"}}})
	})
	on("slow", func(t *testing.T, h *host, _ *os.Process) {
		m.run(t, h, []matrixState{
			{"never", func(h *host) {
				m.open(h, "/normal")
				h.call("browser_evaluate", `{"function":"() => { open('/never') }"}`)
				h.call("browser_tabs", `{"action":"select","index":2}`)
			}, "is leaving for|has not answered", []string{"browser_snapshot", "browser_tabs"}},
			{"stream", func(h *host) { m.open(h, "/stream") }, "", []string{"browser_snapshot"}},
		})
	})
	on("stopped", func(t *testing.T, h *host, p *os.Process) {
		m.stop(t, h, p, syscall.SIGSTOP, "the browser (does|did) not answer", "browser_snapshot", "browser_tabs")
	})
	on("ready", func(t *testing.T, h *host, p *os.Process) {
		m.run(t, h, []matrixState{
			{"normal", func(h *host) { m.open(h, "/normal") }, "", []string{"browser_click"}},
			{"hung", func(h *host) {
				m.open(h, "/normal")
				h.call("browser_evaluate", `{"function":"() => { setTimeout(() => { for (;;); }) }"}`)
			}, "a script of it runs without end",
				[]string{"browser_snapshot", "browser_close", "browser_navigate"}},
			{"stuck", func(h *host) { // nothing stops a script that waits for requests
				m.open(h, "/normal")
				h.call("browser_evaluate", `{"function":"() => { setTimeout(() => { for (;;) { `+
					`const x = new XMLHttpRequest(); x.open('GET', '/normal', false); x.send() } }) }"}`)
			}, "a script of it runs without end", nil},
			{"frame", func(h *host) {
				m.open(h, "/frame")
				until(h, "- iframe [ref=", "browser_snapshot", `{}`)
				until(h, "# does not answer", "browser_snapshot", `{}`)
			}, "a frame of another site does not answer", nil},
			{"crashed", func(h *host) {
				m.open(h, "/normal")
				h.call("browser_navigate", `{"url":"chrome://crash"}`)
				until(h, "has crashed", "browser_evaluate", `{"function":"() => 1"}`)
			}, "has crashed|there are 0", []string{"browser_snapshot", "browser_navigate"}},
			{"closed", func(h *host) {
				m.open(h, "/normal")
				h.call("browser_evaluate", `{"function":"() => { open('/closes') }"}`)
				h.call("browser_tabs", `{"action":"select","index":2}`)
			}, "was closed", nil},
			{"dialog", func(h *host) {
				m.open(h, "/alert")
				until(h, "can be handled by", "browser_tabs", `{"action":"select","index":1}`)
			}, "a dialog is open", []string{"browser_snapshot", "browser_close"}},
			{"beforeunload", func(h *host) {
				m.open(h, "/unsaved")
				h.call("browser_type", `{"target":"input >> nth=0","text":"x","slowly":true}`)
				h.call("browser_click", `{"target":"text=a link"}`)
			}, "a dialog is open", []string{"browser_close"}},
			{"modal", func(h *host) { m.open(h, "/modal") }, inertSays, []string{"browser_click"}},
			{"inert", func(h *host) { m.open(h, "/inert") }, inertSays, nil},
			{"download", func(h *host) { m.open(h, "/file") }, "", nil},
			{"blank", func(h *host) { m.open(h, "") }, "", nil},
			{"pdf", func(h *host) { m.open(h, "/pdf") }, "a frame of another site does not answer", nil},
			{"many", func(h *host) { m.open(h, "/many") }, "or it is too large", nil},
		})
		m.stop(t, h, p, syscall.SIGKILL, "connect|has ended", "browser_snapshot", "browser_tabs")
	})
	all.Wait()
}
