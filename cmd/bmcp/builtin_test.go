//go:build linux

package main_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// buttonSite serves pages with a button that says when it was clicked, and a link to
// the next page.
func buttonSite(t *testing.T) string {
	t.Helper()
	return cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>%[1]s</title><h1>Page %[1]s</h1>
			<button onclick="document.querySelector('output').textContent = 'clicked'">Go</button><output></output>
			<a href="%[1]sx">next</a>`, r.URL.Path)
	})
}

// bmcp and a browser are all that an agent needs: no Node.js, no other program on
// PATH, no list of an earlier run, and no child process.
func TestBuiltinAlone(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := buttonSite(t)
	empty := w.Dir + "/empty"
	os.Mkdir(empty, 0o755)
	c := w.Cmd("bmcp", "--browser-path", "chrome-headless-shell", "--no-vscode", "--image-responses", "omit",
		"--allow-unrestricted-file-access")
	c.Env = append(slices.Clone(w.Env), "PATH="+empty, "XDG_CACHE_HOME="+w.Dir+"/cache")
	m := w.Attach(c)
	m.Initialize("{}")
	m.AwaitTools("browser_navigate", "browser_snapshot", "browser_click", "coordinator_status")
	for _, step := range []struct{ tool, args, want string }{
		{"browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/a"), `- button "Go" [ref=`},
		{"browser_click", `{"target":"text=Go"}`, "status"},
		{"browser_evaluate", `{"function":"() => document.querySelector('output').textContent"}`, `"clicked"`},
		{"browser_click", `{"element":"the link","target":"role=link"}`, "- Page URL: " + site + "/ax"},
		{"browser_navigate_back", `{}`, "- Page Title: /a"},
		// What an agent has not been given counts as changed, though it was searched.
		{"browser_evaluate", `{"function":"() => { document.querySelector('output').textContent = 'unseen' }"}`, ""},
		{"browser_find", `{"text":"Go"}`, `Found 1 match for "Go":`},
		{"browser_hover", `{"target":"h1"}`, "unseen"},
		{"browser_hover", `{"target":"h1"}`, "The snapshot has not changed."},
		{"browser_hover", `{"ref":"h1"}`, "Moved the mouse over"}, // as earlier versions of @playwright/mcp had it
		{"browser_resize", `{"width":"800","height":"600"}`, "800×600"},
		{"browser_evaluate", `{"function":"({ at: new Date(0), is: document.body.getBoundingClientRect() })"}`,
			"\"at\": \"1970-01-01T00:00:00.000Z\",\n  \"is\": {\n    \"x\": 8,"},
		{"browser_evaluate", `{"function":"() => document.querySelector('button')"}`, `"<button>"`},
		{"browser_evaluate", `{"function":"const a = 1; a + 1"}`, "a return gives one"},
		{"browser_wait_for", `{"time":1e-3}`, "Waited for 1ms"},
		{"browser_navigate", `{"url":"file:///etc/hostname"}`, "- Page URL: file:///etc/hostname"},
		{"browser_navigate", `{"url":"about:blank"}`, "The page is empty."},
		{"coordinator_navigate", fmt.Sprintf(`{"url":%q}`, site+"/old"), "- Page URL: " + site + "/old"},
		{"brave_extract", fmt.Sprintf(`{"url":%q}`, site+"/old"), "- URL: " + site + "/old"},
		{"browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/a"), `- button "Go" [ref=`},
		{"browser_evaluate", `{"function":"document.querySelector('output').innerHTML = '<input type=file>'"}`, ""},
		{"browser_click", `{"target":"input"}`, "[File chooser]"},
		{"browser_file_upload", `{"paths":["/etc/hostname"]}`, "Gave the file chooser 1 file"},
		{"browser_evaluate", `{"function":"() => document.querySelector('input').files[0].name"}`, `"hostname"`},
	} {
		if got := m.Tool(step.tool, step.args).Text(t); !strings.Contains(got, step.want) {
			t.Errorf("%s: %s\nwant %s", step.tool, got, step.want)
		}
	}
	for _, bad := range []struct{ tool, args, want string }{
		{"browser_navigate", `{"address":"x"}`, `there is no argument "address"`},
		{"browser_navigate", `{"url":"x","sesion_id":"a"}`, "did you mean session_id?"},
		{"browser_click", `{}`, "the argument target is missing"},
		{"browser_evaluate", `{"function":"() => window"}`, "the result refers to itself"},
		{"browser_wait_for", `{"time":-5}`, "time must be at least 0"},
		{"browser_tabs", `{"action":"select","index":0.5}`, "index must be a whole number"},
		{"browser_navigate", `{"url":"http://"}`, `"http://" is not an address`},
		{"browser_navigate", `{"url":"/next"}`, "on this page, /next is " + site + "/next"},
		{"browser_take_screenshot", `{}`, "images are not sent here"},
		{"browser_click", `{"target":"e9999"}`, "there is no ref e9999: take a new browser_snapshot"},
		{"browser_click", `{"target":"f9e1"}`, "take a new browser_snapshot"},
		{"browser_click", `{"target":"h1, button"}`, "matches 2 elements"},
		{"browser_click", `{"target":"Go","button":"up"}`, "button must be one of left, right, middle"},
		{"browser_resize", `{"width":0,"height":1}`, "width must be at least 1"},
		{"browser_file_upload", `{"paths":["/etc/passwd"]}`, "no file chooser is open"},
		{"browser_handle_dialog", `{"accept":true}`, "no dialog is open"},
	} {
		r := m.Tool(bad.tool, bad.args).Tool(t)
		if !r.IsError || !strings.Contains(r.Text(), bad.want) {
			t.Errorf("%s %s: %s\nwant %s", bad.tool, bad.args, r.Text(), bad.want)
		}
	}
	if r := m.Tool("browser_clik", `{}`); !strings.Contains(r.Line, "did you mean browser_click?") {
		t.Errorf("an unknown tool: %s", r.Line)
	}
	if got := m.Tool("coordinator_list_browsers", "{}").Text(t); !strings.Contains(got, `"type":"chromium"`) ||
		strings.Contains(got, `"type":"firefox"`) { // which this bmcp cannot launch
		t.Errorf("the browsers: %s", got)
	}
	for name, today := range map[string]string{"browser_instance": "bmcp --extension has it",
		"browser_run_code": "browser_evaluate", "browser_clik": "did you mean browser_click?",
		"browser_start_tracing": "bproxy records", "browser_annotate": "browser_select_element"} {
		switch r := m.Tool(name, "{}"); {
		case r.Error == nil:
			t.Errorf("%s is a tool now: take it from this list and from elsewhere in lib/coordinator/oldnames.go", name)
		case !strings.Contains(r.Error.Message, today):
			t.Errorf("%s: %s, want %s", name, r.Line, today)
		}
	}
	m.End()
	w.Clean()
}

// Agents that work side by side each see a browser of their own, until its last tab is
// closed. With the last of them the browser ends, and its profile is free.
func TestBuiltinSessions(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := buttonSite(t)
	args := []string{"--browser", "chrome-headless-shell", "--profile", w.Dir + "/profile", "--tab-limit", "3"}
	m := w.StartMCP(nil, args...)
	m.Initialize("{}")
	for _, who := range []string{"a", "b"} {
		m.Tool("browser_navigate", fmt.Sprintf(`{"url":%q,"session_id":%q}`, site+"/"+who, who)).Text(t)
	}
	for _, who := range []string{"b", "a"} {
		got := m.Tool("browser_snapshot", fmt.Sprintf(`{"session_id":%q}`, who)).Text(t)
		if !strings.Contains(got, "Page /"+who+`"`) {
			t.Errorf("%s sees %s", who, got)
		}
	}
	const set, get = `() => document.cookie = 'is=here; max-age=1000'`, `() => document.cookie`
	for _, who := range []string{"a", "b"} {
		m.MustTool("browser_evaluate", `{"function":%q,"session_id":%q}`, set, who)
	}
	m.MustTool("browser_close", `{"session_id":"a"}`)
	m.MustTool("browser_navigate", `{"url":%q,"session_id":"a"}`, site)
	x := m.MustTool("browser_evaluate", `{"function":%q,"session_id":"a"}`, get)
	if strings.Contains(x.Text(), "here") {
		t.Errorf("the session goes on: %s", x.Text())
	}
	x = m.MustTool("browser_evaluate", `{"function":%q,"session_id":"b"}`, get)
	if !strings.Contains(x.Text(), "here") {
		t.Errorf("another session has ended: %s", x.Text())
	}
	m.MustTool("browser_tabs", `{"action":"close","session_id":"a"}`)
	m.MustTool("browser_close", `{"session_id":"b"}`)
	ends := func() { cmdtest.Until(t, "no browser runs", func() bool { return len(w.State().Instances) == 0 }) }
	ends()
	other := w.StartMCP(nil, args...)
	other.Initialize("{}")
	other.MustTool("browser_navigate", `{"url":%q}`, site)
	other.MustTool("browser_close", `{}`)
	ends()
	const again = "the browser had ended (its last tab was closed) and was launched anew"
	if x := m.MustTool("browser_navigate", `{"url":%q,"session_id":"b"}`, site); !strings.Contains(x.Text(), again) {
		t.Errorf("it is not told that the browser is another one: %s", x.Text())
	}
	other.End()
	// The limit closes the tab that was not used for longest, whatever was listed.
	open := []string{"/a"}
	m.MustTool("browser_navigate", `{"url":%q,"session_id":"c"}`, site+"/a")
	for n := range 6 {
		open = append(open, fmt.Sprint("/", n))
		said := m.MustTool("browser_tabs", `{"action":"new","session_id":"c","url":%q}`, site+open[len(open)-1]).Text()
		closed := open[:max(0, len(open)-3)]
		open = open[max(0, len(open)-3):]
		cmdtest.Until(t, fmt.Sprint("the tabs are ", open), func() bool {
			got := m.MustTool("browser_tabs", `{"session_id":"c"}`).Text()
			said += got
			return strings.Count(got, "](http") == len(open) && !slices.ContainsFunc(open, func(page string) bool {
				return !strings.Contains(got, "["+page+"](")
			})
		})
		for _, page := range closed {
			if n := strings.Count(said, "ab of "+site+page+" was closed"); n != 1 {
				t.Errorf("that the limit has closed %s is told %d times: %s", page, n, said)
			}
		}
	}
	m.End()
	w.Clean()
}
