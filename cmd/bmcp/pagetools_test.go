//go:build linux

package main_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// toolSite serves pages that declare tools: one of the page's name, one whose name hosts don't take, one of bmcp's own.
func toolSite(t *testing.T) string {
	t.Helper()
	return cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!doctype html><title>Page</title>")
		if name := strings.TrimPrefix(r.URL.Path, "/tools/"); name != r.URL.Path {
			fmt.Fprintf(w, `<script>
				for (const name of [%q, 'a.b', 'a-b', 'a_b', 'a/b'])
					try {
						document.modelContext.registerTool({ name, description: 'Says ' + name,
							inputSchema: { type: 'object', properties: { n: { type: 'integer' }, 'a b': {} } },
							execute: ({ n }) => name + ' says ' + n + '!'.repeat(n > 5 ? 5e6 : 0) })
					} catch {} // names that Chromium does not take
			</script>`, name)
		}
		if r.URL.Path == "/framed" {
			io.WriteString(w, `<script>
				const tool = (name) => document.modelContext.registerTool({ name, description: 'It', inputSchema:
					{ type: 'object' }, execute: () => 'still here' })
				tool('outer')
			</script><iframe srcdoc="<script>document.modelContext.registerTool({ name: 'inner',
				description: 'It', inputSchema: { type: 'object' }, execute: () => 'in it' })</script>"></iframe>`)
		}
		if r.URL.Path == "/restless" {
			io.WriteString(w, `<script>
				const tool = (name, o) => document.modelContext.registerTool({ name, description: 'It', inputSchema:
					{ type: 'object' }, execute: () => 'still here' }, o)
				tool('stays')
				let n = 0
				const change = () => { const c = new AbortController(); tool('at_' + n++, { signal: c.signal })
					setTimeout(() => { c.abort(); change() }, 10) }
				change()
			</script>`)
		}
	})
}

// Whether agents are told of a page's tools, and browsers have them, is one flag.
func TestPageTools(t *testing.T) {
	t.Parallel()
	site := toolSite(t)
	const has = `{"function":"() => typeof document.modelContext"}`
	t.Run("tools", func(t *testing.T) {
		t.Parallel()
		m := cmdtest.New(t).Builtin("--arg=--enable-features=Translate")
		m.AwaitTools("browser_page_tools", "browser_page_tool")
		names := m.Tools()
		got := m.MustTool("browser_navigate", `{"url":%q}`, site+"/tools/buy").Text()
		if !strings.Contains(got, "\n- Page tools: buy(n?)") {
			t.Errorf("the result does not name them: %s", got)
		}
		if got := m.MustTool("browser_page_tool", `{"name":"buy","arguments":{"n":3}}`).Text(); !strings.Contains(got,
			"```\nbuy says 3\n```") {
			t.Errorf("the answer is %s", got)
		}
		if got := m.MustTool("browser_page_tool", `{"name":"buy","arguments":{"n":6}}`).Text(); len(got) > 100<<10 ||
			!strings.Contains(got, "browser_result") {
			t.Errorf("of an answer of 5 MB there are %d bytes: %.300s", len(got), got)
		}
		if now := m.Tools(); !slices.Equal(names, now) {
			t.Errorf("the list of tools has become %q", now)
		}
	})
	t.Run("off", func(t *testing.T) {
		t.Parallel()
		m := cmdtest.New(t).Builtin("--page-tools", "off")
		m.AwaitTools("browser_navigate")
		if names := m.Tools(); slices.Contains(names, "browser_page_tool") {
			t.Errorf("the tools are %q", names)
		}
		m.MustTool("browser_navigate", `{"url":%q}`, site+"/tools/buy")
		if got := m.MustTool("browser_evaluate", has).Text(); !strings.Contains(got, `"undefined"`) {
			t.Errorf("a page finds %s", got)
		}
	})
	t.Run("list", func(t *testing.T) {
		t.Parallel()
		m := cmdtest.New(t).Builtin("--page-tools", "list")
		m.AwaitTools("browser_page_tool")
		id := m.StartTool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/tools/buy"))
		for told, answered := false, false; !told || !answered; { // in either order
			r := m.Next()
			told = told || r.Method == "notifications/tools/list_changed"
			answered = answered || string(r.ID) == id
		}
		m.AwaitTools("page__buy", "page__a-b", "page__a_b", "page__a_b_2")
		m.AwaitTools("coordinator_status")
		for name, want := range map[string]string{"page__buy": "buy", "page__a_b": "a.b", "page__a_b_2": "a_b"} {
			if got := m.MustTool(name, `{"n":1}`).Text(); !strings.Contains(got, want+" says 1") {
				t.Errorf("%s: %s", name, got)
			}
		}
		m.MustFail("n must be a whole number", "page__buy", `{"n":"x"}`)
		// Another session has another page; the list is that of the session used last.
		m.MustTool("browser_navigate", `{"url":%q,"session_id":"other"}`, site+"/tools/sell")
		m.AwaitTools("page__sell")
		if names := m.Tools(); slices.Contains(names, "page__buy") {
			t.Errorf("the tools are %q", names)
		}
		got := m.MustTool("page__sell", `{"n":2,"session_id":"other"}`).Text()
		if !strings.Contains(got, "sell says 2") {
			t.Errorf("in the other session: %s", got)
		}
		m.MustTool("browser_snapshot", `{}`)
		m.AwaitTools("page__buy")
		// A name is one of the tool of one document: what the host was given is not used on the next page, whether
		// it goes there by itself or not.
		m.MustFail("no page that this session has shown has a tool page__sell", "page__sell", `{"n":2}`)
		m.MustTool("browser_navigate", `{"url":%q}`, strings.Replace(site, "127.0.0.1", "localhost", 1)+"/tools/buy")
		m.MustFail("it was one of "+site+"/tools/buy, and nothing was called", "page__buy", `{"n":3}`)
		m.AwaitTools("page__buy_2")
		if got := m.MustTool("page__buy_2", `{"n":3}`).Text(); !strings.Contains(got, "buy says 3") {
			t.Errorf("the next page's: %s", got)
		}
		m.MustTool("browser_navigate", `{"url":%q}`, site+"/restless")
		m.AwaitTools("page__stays")
		for range 5 {
			if got := m.MustTool("page__stays", `{}`).Text(); !strings.Contains(got, "still here") {
				t.Errorf("on a page that changes its tools for ever: %s", got)
			}
		}
		m.MustTool("browser_navigate", `{"url":%q}`, site+"/none")
		cmdtest.Until(t, "no tool of a page is listed", func() bool { return !hasPageTools(m.Tools()) })
		// A page with a dialog cannot be asked: its tools stay, and the new one comes when it can.
		m.MustTool("browser_navigate", `{"url":%q}`, site+"/framed")
		m.AwaitTools("page__outer", "page__inner")
		m.MustTool("browser_evaluate", `{"function":"() => { setTimeout(() => { tool('late'); alert('well') }, 0) }"}`)
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if names := m.Tools(); !slices.Contains(names, "page__outer") {
				t.Fatalf("while the page has a dialog, the tools are %q", names)
			}
		}
		m.MustTool("browser_handle_dialog", `{"accept":true}`)
		m.AwaitTools("page__late", "page__outer")
	})
	t.Run("hosts", func(t *testing.T) {
		t.Parallel()
		w := cmdtest.New(t)
		url, stop := w.ServeMCP([]string{"BTOOLS_BROWSER=chrome-headless-shell"}, "--page-tools", "list")
		a, b := cmdtest.NewWebHost(t, url), cmdtest.NewWebHost(t, url)
		for host, name := range map[*cmdtest.WebHost]string{a: "mine", b: "yours"} {
			if x := host.Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/tools/"+name)); x.IsError {
				t.Fatal(x.Text())
			}
		}
		a.AwaitTools("page__mine")
		b.AwaitTools("page__yours")
		if x := a.Tool("page__yours", `{"n":1}`); !x.IsError {
			t.Errorf("a host calls the tool of another one's page: %s", x.Text())
		}
		if x := a.Tool("page__mine", `{"n":1}`); !strings.Contains(x.Text(), "mine says 1") {
			t.Errorf("the host's own tool: %s", x.Text())
		}
		a.EndSession()
		b.EndSession()
		stop()
	})
}

func hasPageTools(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "page__") })
}
