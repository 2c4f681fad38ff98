//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/mcp/child"
)

// formSite serves pages with a form and a frame.
func formSite(t *testing.T) string {
	t.Helper()
	return cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/frame" {
			fmt.Fprint(w, `<button onclick="this.textContent = 'trusted: ' + event.isTrusted">Inner</button>`)
			return
		}
		fmt.Fprintf(w, `<!doctype html><title>Page %s</title><label>Name <input id=name></label>
			<script>const greet = () => { said.textContent = 'Hello ' + document.querySelector('#name').value }</script>
			<button onclick="greet()">Greet</button><output id=said></output>
			<select aria-label=Size><option>small<option>large</select>
			<label><input type=checkbox>Agree</label><button onclick="alert('so')">Ask</button>
			<a href=/next>Next</a><iframe src=/frame></iframe>`, r.URL.Path)
	})
}

// drives asks for snapshots until an agent's Firefox is driven, as it may take longer to
// start on a busy machine than a call waits, and returns all that was answered.
func drives(m *cmdtest.MCP, args string) (answers string) {
	m.T.Helper()
	cmdtest.Until(m.T, "Firefox is driven", func() bool {
		r := m.Tool("browser_snapshot", args).Tool(m.T)
		answers += r.Text() + "\n"
		return !r.IsError
	})
	return answers
}

// The mixed pool of seed 001: an agent drives its Firefox with the tools of bmcp as it
// drives Chromium.
func TestMCPMixedPool(t *testing.T) {
	// Not beside other browsers: Chrome has itself a higher priority than Firefox has.
	w := cmdtest.New(t)
	site := formSite(t)
	c := w.Cmd("bmcp")
	c.Env = append(slices.Clone(w.Env), "XDG_CACHE_HOME="+w.Dir+"/cache", "PW_MCP_PROXY_HEADLESS=true",
		"PW_MCP_PROXY_BROWSER=chrome-headless-shell", "PW_MCP_PROXY__BROWSERS_INSTANCES=2",
		"PW_MCP_PROXY__BROWSERS_IS_DEFAULT=true", "PW_MCP_PROXY__BROWSERS__1_BROWSER=firefox",
		"PW_MCP_PROXY__BROWSERS__1_ALIAS=firefox_debug", "PW_MCP_PROXY__SAFARI_INSTANCES=1",
		"PW_MCP_PROXY__SAFARI_BROWSER=webkit", "BROWSER_TIMEOUT_MINUTES=1")
	m := w.Attach(c)
	m.Initialize(`{}`)
	// That no child can drive a pool is known before one has tried.
	if got := m.Tool("browser_pool_status", `{"pool_name":"SAFARI"}`).Text(t); !strings.Contains(got,
		`"status":"failed"`) || !strings.Contains(got, `"healthy_instances":0,"failed_instances":1`) ||
		!strings.Contains(got, "not webkit: --mcp "+child.Playwright) {
		t.Errorf("a pool that no child can drive: %s", got)
	}
	did := func(want, tool, args string, a ...any) string {
		t.Helper()
		r := m.MustTool(tool, `{"browser_instance":"firefox_debug"`+args+`}`, a...).Text()
		if !strings.Contains(r, want) {
			t.Errorf("%s%s: %s, want %s", tool, args, r, want)
		}
		return r
	}
	drives(m, `{"browser_instance":"firefox_debug"}`)
	shot := did(`- textbox "Name"`, "browser_navigate", `,"url":%q`, site+"/a")
	did("Firefox/", "browser_evaluate", `,"function":"() => navigator.userAgent"`)
	if r := m.MustTool("browser_navigate", `{"url":%q,"browser_instance":"0"}`, site+"/b"); !strings.Contains(r.Text(),
		"Page /b") {
		t.Errorf("in Chromium: %s", r.Text())
	}
	ref := regexp.MustCompile(`button "Inner" \[ref=(f\d+e\d+)\]`).FindStringSubmatch(shot)
	if ref == nil {
		t.Fatalf("the frame is not in the snapshot: %s", shot)
	}
	did("trusted: true", "browser_click", `,"target":%q`, ref[1])
	did("", "browser_type", `,"target":"#name","text":"Jörg \"J\" Ü"`)
	did(`Hello Jörg "J" Ü`, "browser_click", `,"target":"text=Greet"`)
	did("large", "browser_select_option", `,"target":"select","values":["large"]`)
	did("[checked]", "browser_fill_form",
		`,"fields":[{"name":"Agree","target":"input[type=checkbox]","type":"checkbox","value":"true"}]`)
	did(`"so" can be handled`, "browser_click", `,"target":"text=Ask"`)
	did("Page /a", "browser_handle_dialog", `,"accept":true`)
	did("- Page URL: "+site+"/next", "browser_click", `,"target":"text=Next"`)
	did("Page /a", "browser_navigate_back", ``)
	did("- 1: (current) [Page /c]", "browser_tabs", `,"action":"new","url":%q`, site+"/c")
	did("", "browser_take_screenshot", ``)
	m.MustFail("there is no ref e999", "browser_click", `{"browser_instance":"firefox_debug","target":"e999"}`)
	m.MustFail("needs a browser based on Chromium", "browser_pdf_save", `{"browser_instance":"firefox_debug"}`)
	m.MustFail("not opened in Firefox", "browser_navigate",
		`{"browser_instance":"firefox_debug","url":"file:///etc/passwd"}`)
	m.MustFail("did you mean browser_pool?", "browser_snapshot", `{"browser_poool":"SAFARI"}`)
	const install = "which npx " + child.Playwright + " install-browser webkit installs"
	m.MustFail(install, "browser_snapshot", `{"browser_pool":"SAFARI"}`)
	m.End()
	if !strings.Contains(m.Errs.String(), "IDLE stops their browsers") {
		t.Errorf("it says %s", m.Errs.String())
	}
	w.Clean()
}

// A Firefox that no pool has is launched and driven by bmcp alone, without Node.js.
func TestMCPFirefox(t *testing.T) {
	// Not beside other browsers: Chrome has itself a higher priority than Firefox has.
	w := cmdtest.New(t)
	site := formSite(t)
	m := w.Builtin("--browser", "firefox")
	drives(m, "{}")
	m.MustTool("browser_navigate", `{"url":%q}`, site+"/a")
	if r := m.MustTool("browser_click", `{"target":"text=Next"}`).Text(); !strings.Contains(r, "Page /next") {
		t.Errorf("after a click: %s", r)
	}
	if r := m.MustTool("browser_evaluate", `{"function":"() => navigator.userAgent"}`).Text(); !strings.Contains(r,
		"Firefox/") {
		t.Errorf("it is %s", r)
	}
	if s := statsOf(t, m.MustTool("browser_session_stats", "{}")); len(s.Sessions) != 1 || s.Sessions[0].Tabs != nil {
		t.Errorf("it does not tell its tabs, but there is %+v", s)
	}
	m.MustTool("browser_evaluate", `{"function":"() => { document.body.style.height = '4000px' }"}`)
	for args, kind := range map[string]string{`{"fullPage":true}`: "png", `{"fullPage":true,"type":"jpeg"}`: "jpeg"} {
		r := m.MustTool("browser_take_screenshot", "%s", args)
		if !strings.Contains(r.Text(), "Screenshot of full page (it is scaled down from ") {
			t.Errorf("%s: %s", args, r.Text())
		}
		width, height := pixels(t, r.Content[1].Data)
		if is := http.DetectContentType(r.Content[1].Data); is != "image/"+kind || height < 1500 || height > 1568 ||
			width*height > 1_150_000 {
			t.Errorf("%s: %s of %d × %d pixels", args, is, width, height)
		}
	}
	m.End()
	w.Clean()
}

// Firefox has one session at a time: the next host has one, whatever the last one did.
func TestMCPFirefoxOfHosts(t *testing.T) {
	// Not beside other browsers: Chrome has itself a higher priority than Firefox has.
	w := cmdtest.New(t)
	site := formSite(t)
	p := w.Pool("_A_INSTANCES=1", "_A_BROWSER=firefox")
	for _, end := range []string{"in order", "by a signal", ""} {
		m := w.Builtin("--pool")
		drives(m, "{}")
		if r := m.MustTool("browser_navigate", `{"url":%q}`, site+"/a"); !strings.Contains(r.Text(), "Page /a") {
			t.Errorf("the host before which one ended %s: %s", end, r.Text())
		}
		var st cmdtest.PoolStatus
		if text := m.Tool("browser_pool_status", "{}").Text(t); json.Unmarshal([]byte(text), &st) != nil ||
			st.Pools[0].Instances[0].PID != p.PID(0) {
			t.Errorf("the process of the browser is %d, want %d: %s", st.Pools[0].Instances[0].PID, p.PID(0), text)
		}
		if end == "in order" { // a call right after the browser's death waits for the next one
			pid := p.PID(0)
			syscall.Kill(pid, syscall.SIGKILL)
			// A call that comes before bpool has noticed is one during which the browser ends.
			cmdtest.Until(t, "the browser is gone", func() bool { return p.PID(0) != pid })
			if r := drives(m, "{}"); !strings.Contains(r, "The page is empty.") ||
				!strings.Contains(r, "was killed by signal 9") {
				t.Errorf("in the next browser: %s", r)
			}
		}
		if end == "by a signal" {
			m.Cmd.Process.Kill()
			m.Wait()
		} else {
			m.End()
		}
		cmdtest.Until(t, "the instance is free", func() bool { return p.Status().Summary.Leased == 0 })
	}
}
