//go:build linux

package main_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
)

// apps are the capabilities of a host that shows MCP Apps.
const apps = `"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}`

// A host with MCP Apps has browser_view, the app and the tool that is the app's alone; others have none of them, and
// one of the stateless protocol is what each of its requests says.
func TestViewApp(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	p := w.Proxy("share", "--browser", "chrome-headless-shell")
	session := p.URL + "/session/shop"
	with, without, modern := host(w, `{`+apps+`}`, "--cdp", session), host(w, `{}`, "--cdp", session),
		w.StartMCP(nil, "--cdp", session)
	meta := func(can string) string {
		return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{` + can + `}}`
	}
	const page = "text/html;profile=mcp-app"
	for _, c := range []struct {
		kind string
		m    *cmdtest.MCP
		meta string
		has  bool
	}{{"with", with, "", true}, {"without", without, "", false}, {"modern, with", modern, meta(apps), true},
		{"modern, without", modern, meta(""), false}, {"another type", modern,
			meta(strings.Replace(apps, "mcp-app", "other", 1)), false}} {
		t.Run(c.kind, func(t *testing.T) {
			more := ""
			if c.meta != "" {
				more = "," + c.meta
			}
			list := c.m.Call("tools/list", `{`+c.meta+`}`)
			for tool := range jsonrpc.Elements(jsonrpc.Get(list.Result, "tools")) {
				ui := jsonrpc.Get(tool, "_meta", "ui")
				switch name := jsonrpc.GetString(tool, "name"); {
				case name == "browser_view" && string(ui) != `{"resourceUri":"ui://bmcp/view"}`,
					name == "browser_view_frame" &&
						string(jsonrpc.Get(ui, "visibility")) != `["app"]`,
					!strings.HasPrefix(name, "browser_view") && ui != nil:
					t.Errorf("%s", tool)
				}
			}
			if got := strings.Count(list.Line, `"name":"browser_view`); got != map[bool]int{true: 2}[c.has] {
				t.Errorf("%d tools", got)
			}
			all := c.m.Call("resources/list", `{`+c.meta+`}`)
			read := c.m.Call("resources/read", `{"uri":"ui://bmcp/view"`+more+`}`)
			if strings.Contains(all.Line, "ui://bmcp/view") != c.has || (read.Error == nil) != c.has {
				t.Errorf("%s\n%.300s", all.Line, read.Line)
			}
			call := c.m.Call("tools/call", `{"name":"browser_view_frame","arguments":{}`+more+`}`)
			if !c.has {
				if call.Error == nil {
					t.Error(call.Line)
				}
				return
			}
			for one := range jsonrpc.Elements(jsonrpc.Get(read.Result, "contents")) {
				text := jsonrpc.GetString(one, "text")
				if jsonrpc.GetString(one, "mimeType") != page || len(text) == 0 || len(text) > 20_000 ||
					regexp.MustCompile(`https?://|src="|href=|@import|url\(`).MatchString(text) {
					t.Errorf("%.300s", one)
				}
			}
			c.m.Call("tools/call", `{"name":"browser_navigate","arguments":{"url":"data:text/html,<h1>Shop"}`+more+`}`)
			if got := c.m.Call("tools/call", `{"name":"browser_view","arguments":{}`+more+`}`).MustSucceed(t); !strings.
				Contains(got.Text(), "sees this browser") {
				t.Error(got)
			}
			var took []time.Duration
			for range 9 {
				began := time.Now()
				call = c.m.Call("tools/call", `{"name":"browser_view_frame","arguments":{}`+more+`}`)
				took = append(took, time.Since(began))
				if got := call.MustSucceed(t); len(got.Content) != 1 || len(got.Content[0].Data) < 1000 {
					t.Fatalf("%.500s", call.Line)
				}
			}
			slices.Sort(took)
			t.Logf("a picture of %d bytes takes %v, %v at most", len(call.Line), took[4], took[8])
			call = c.m.Call("tools/call", `{"name":"browser_view_frame","arguments":{"open":true}`+more+`}`)
			got := call.MustSucceed(t)
			if at, _ := got.Struct["address"].(string); !regexp.MustCompile(`^http://127\.0\.0\.1:\d+/#/shop$`).
				MatchString(at) || got.Struct["command"] != "bproxy view --control shop" {
				t.Error(got.Struct)
			}
		})
	}
}
