//go:build linux

package main_test

import (
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// groupSite serves pages for the tools that are not listed by default, on 127.0.0.1, and
// as another site on localhost.
func groupSite(t *testing.T) (site, other string) {
	t.Helper()
	s := cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/user":
			io.WriteString(w, r.Header.Get("X-Asked")+" "+r.Header.Get("X-Own"))
		case "/points":
			io.WriteString(w, `<!doctype html><body style="margin:0"><script>
				const told = []
				for (const e of ['mousedown', 'mouseup', 'click', 'dblclick', 'wheel'])
					addEventListener(e, (x) => told.push([e, x.clientX, x.clientY, x.button, x.deltaY ?? 0].join()))
				</script>`)
		case "/form":
			io.WriteString(w, `<!doctype html><h1>Order</h1><input aria-label="Full name" value="Ann"><label><input
				type=checkbox checked>Terms</label><ul id=list><li>one<li>two</ul><p hidden>unseen</p>
				<iframe title=Inner srcdoc="<button>It's here</button>"></iframe>`)
		default:
			io.WriteString(w, "<!doctype html><title>Site</title>")
		}
	})
	return s, strings.Replace(s, "127.0.0.1", "localhost", 1)
}

// The groups of tools that @playwright/mcp has by --caps.
func TestBuiltinGroups(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site, other := groupSite(t)
	m := w.Builtin("--tools", "all")
	run := func(name string, do func(a agent)) { t.Run(name, func(t *testing.T) { do(agent{t, m}) }) }
	run("cookies", func(a agent) {
		a.open(site + "/")
		a.wants(false, "No cookies found", "browser_cookie_list", `{}`)
		a.wants(false, "Set the cookie sid of 127.0.0.1", "browser_cookie_set",
			`{"name":"sid","value":"1","httpOnly":true,"sameSite":"Strict","expires":4000000000}`)
		a.wants(false, "", "browser_cookie_set", `{"name":"who","value":"ann","domain":"example.org","path":"/in"}`)
		a.wants(false, "who=ann (domain: example.org, path: /in)", "browser_cookie_list", `{"domain":"Example.org"}`)
		if x := a.call("browser_cookie_list", `{"path":"/in"}`); strings.Contains(x.Text(), "sid") {
			a.t.Errorf("of another path: %s", x.Text())
		}
		a.wants(false, "httpOnly: true, secure: false, sameSite: Strict, expires: 20", "browser_cookie_get",
			`{"name":"sid"}`)
		a.wants(false, "Removed 1 cookie", "browser_cookie_delete", `{"name":"sid"}`)
		a.wants(false, "Cookie 'sid' not found", "browser_cookie_get", `{"name":"sid"}`)
		a.wants(false, "", "browser_cookie_clear", `{}`)
		a.wants(false, "No cookies found", "browser_cookie_list", `{}`)
		a.open("about:blank")
		a.wants(true, "domain is missing", "browser_cookie_set", `{"name":"a","value":"b"}`)
	})
	run("storage of a page", func(a agent) {
		a.open(site + "/")
		for _, kind := range []string{"localStorage", "sessionStorage"} {
			tool := "browser_" + strings.ToLower(kind)
			a.wants(false, "No "+kind+" items found", tool+"_list", `{}`)
			a.wants(false, "", tool+"_set", `{"key":"b","value":"ü"}`)
			a.wants(false, "", tool+"_set", `{"key":"a","value":"1"}`)
			a.wants(false, "### Result\n```\na=1\nb=ü\n```", tool+"_list", `{}`)
			a.wants(false, "### Result\n```\nb=ü\n```", tool+"_get", `{"key":"b"}`)
			a.wants(false, "", tool+"_delete", `{"key":"b"}`)
			a.wants(false, kind+" key 'b' not found", tool+"_get", `{"key":"b"}`)
			a.wants(false, "", tool+"_clear", `{}`)
			a.wants(false, "No "+kind+" items found", tool+"_list", `{}`)
		}
		a.open("about:blank")
		a.wants(true, "the page has no localStorage", "browser_localstorage_list", `{}`)
	})
	run("storage state", func(a agent) {
		for _, at := range []string{site, other} {
			a.open(at + "/")
			a.wants(false, "", "browser_localstorage_set", `{"key":"at","value":%q}`, at)
		}
		a.wants(false, "", "browser_cookie_set", `{"name":"sid","value":"1"}`)
		a.wants(false, "1 cookie, storage of 2 origins", "browser_storage_state", `{"filename":"state.json"}`)
		if st, err := os.Stat(w.Dir + "/files/state.json"); err != nil || st.Mode().Perm() != 0o600 {
			a.t.Errorf("the file is %v, %v", st, err)
		}
		a.wants(false, "", "browser_cookie_clear", `{}`)
		a.wants(false, "", "browser_localstorage_set", `{"key":"at","value":"other"}`)
		a.wants(false, "", "browser_localstorage_set", `{"key":"new","value":"other"}`)
		a.wants(false, "Storage state restored from state.json", "browser_set_storage_state",
			`{"filename":"state.json"}`)
		a.wants(false, "sid=1", "browser_cookie_list", `{}`)
		x := a.wants(false, "### Result\n```\nat="+other, "browser_localstorage_list", `{}`)
		if strings.Contains(x.Text(), "new") {
			a.t.Errorf("what was there before stays: %s", x.Text())
		}
		a.open(site + "/")
		a.wants(false, "at="+site, "browser_localstorage_list", `{}`)
		a.wants(false, "0: (current) [Site]", "browser_tabs", `{}`)
		a.wants(true, "may not be used", "browser_set_storage_state", `{"filename":"/etc/passwd"}`)
	})
	run("routes", func(a agent) {
		a.open(site + "/")
		fetched := func(want string, at string) {
			a.t.Helper()
			a.wants(false, want, "browser_evaluate", `{"function":"fetch('%s/api/user', `+
				`{ headers: { 'X-Own': 'own' } }).then((r) => r.text().then((t) => r.status + ' ' + t))"}`, at)
		}
		a.wants(false, "No active routes", "browser_route_list", `{}`)
		a.wants(false, "Route added for pattern: **/api/*", "browser_route",
			`{"pattern":"**/api/*","status":201,"body":"{\"name\":\"ann\"}","contentType":"application/json"}`)
		fetched(`201 {\"name\":\"ann\"}`, site)
		fetched(`201 {\"name\":\"ann\"}`, other) // of another origin
		a.wants(false, "1. **/api/* (status=201, body={", "browser_route_list", `{}`)
		a.wants(false, "", "browser_route",
			`{"pattern":"**/{api,app}/user","headers":["X-Asked: by ann"],"removeHeaders":"x-own, other"}`)
		fetched(`200 by ann "`, site)
		a.wants(false, "", "browser_tabs", `{"action":"new","url":%q}`, site+"/")
		fetched(`200 by ann "`, site)
		a.wants(false, "", "browser_tabs", `{"action":"close"}`)
		a.wants(false, "Removed 1 route(s) for", "browser_unroute", `{"pattern":"**/{api,app}/user"}`)
		fetched(`201 {`, site)
		a.wants(false, "Removed all 1 route(s)", "browser_unroute", `{}`)
		a.wants(false, "No active routes", "browser_route_list", `{}`)
		fetched(`200  own"`, site)
		a.wants(true, `Invalid header "nothing"`, "browser_route", `{"pattern":"*","headers":["nothing"]}`)
		a.wants(false, "Network is now offline", "browser_network_state_set", `{"state":"offline"}`)
		a.wants(true, "INTERNET_DISCONNECTED", "browser_navigate", `{"url":"%s/x"}`, site)
		a.wants(false, "Network is now online", "browser_network_state_set", `{"state":"online"}`)
		a.open(site + "/")
		a.wants(true, "a session_id has another session", "browser_emulate", `{"permissions":["midi"]}`)
		a.wants(false, `All pages emulate {"device":"Pixel 7","timezone":"Asia/Tokyo"}`,
			"browser_emulate", `{"device":"Pixel 7","timezone":"Asia/Tokyo"}`)
		const seen = `{"function":"() => [screen.width, new Date(0).getHours()].join(' ')"}`
		a.wants(false, `"412 9"`, "browser_evaluate", seen)
		a.wants(false, "", "browser_tabs", `{"action":"new","url":%q}`, site+"/")
		a.wants(false, `"412 9"`, "browser_evaluate", seen)
		a.wants(true, "near are iPhone 13", "browser_emulate", `{"device":"iPhone 12"}`)
		a.wants(false, "All pages emulate {}", "browser_emulate", `{"reset":true}`)
		a.wants(false, " 0\"", "browser_evaluate", seen)
		a.wants(false, "", "browser_tabs", `{"action":"close"}`)
	})
	run("the mouse by points", func(a agent) {
		a.open(site + "/points")
		told := func(want string) {
			a.t.Helper()
			a.wants(false, `"`+want+`"`, "browser_evaluate", `{"function":"() => told.splice(0).join(' ')"}`)
		}
		a.wants(false, "Clicked at 30, 40", "browser_mouse_click_xy", `{"x":30,"y":40,"button":"middle"}`)
		told("mousedown,30,40,1,0 mouseup,30,40,1,0")
		a.wants(false, "", "browser_mouse_click_xy", `{"x":3,"y":4,"clickCount":2,"delay":1}`)
		told("mousedown,3,4,0,0 mouseup,3,4,0,0 click,3,4,0,0 mousedown,3,4,0,0 mouseup,3,4,0,0 click,3,4,0,0 " +
			"dblclick,3,4,0,0")
		a.wants(false, "", "browser_mouse_move_xy", `{"x":50,"y":60}`)
		a.wants(false, "", "browser_mouse_down", `{}`)
		a.wants(false, "", "browser_mouse_move_xy", `{"x":70,"y":80}`)
		a.wants(false, "", "browser_mouse_up", `{}`)
		told("mousedown,50,60,0,0 mouseup,70,80,0,0 click,70,80,0,0")
		a.wants(false, "", "browser_mouse_drag_xy", `{"startX":1,"startY":2,"endX":5,"endY":6}`)
		told("mousedown,1,2,0,0 mouseup,5,6,0,0 click,5,6,0,0")
		a.wants(false, "", "browser_mouse_wheel", `{"deltaY":120}`)
		cmdtest.Until(a.t, "the wheel has turned", func() bool {
			x := a.call("browser_evaluate", `{"function":"told.join(' ')"}`)
			return strings.Contains(x.Text(), "wheel,5,6,0,120")
		})
	})
	run("what tests verify", func(a agent) {
		a.open(site + "/form")
		for args, wrong := range map[string]string{
			`element_visible {"role":"heading","accessibleName":"Order"}`:                     "",
			`element_visible {"role":"button","accessibleName":"It's here"}`:                  "",
			`element_visible {"role":"button","accessibleName":"Order"}`:                      `"Order" not found`,
			`element_visible {"role":"button","accessibleName":"it's H"}`:                     "",
			`text_visible {"text":"two"}`:                                                     "",
			`text_visible {"text":"unseen"}`:                                                  "Text not found",
			`list_visible {"element":"a list","target":"#list","items":["one","two"]}`:        "",
			`list_visible {"element":"a list","target":"#list","items":["one","three"]}`:      `Item "three" not found`,
			`value {"type":"textbox","element":"x","target":"role=textbox","value":"Ann"}`:    "",
			`value {"type":"textbox","element":"x","target":"role=textbox","value":"Bob"}`:    `but got "Ann"`,
			`value {"type":"checkbox","element":"x","target":"role=checkbox","value":"true"}`: "",
		} {
			tool, args, _ := strings.Cut(args, " ")
			want := wrong
			if wrong == "" {
				want = "Done"
			}
			a.wants(wrong != "", want, "browser_verify_"+tool, "%s", args)
		}
		a.wants(false, `getByRole('textbox', { name: 'Full name' })`, "browser_generate_locator",
			`{"target":"role=textbox"}`)
		a.wants(false, `locator('body > iframe').contentFrame().getByRole('button', { name: "It's here" })`,
			"browser_generate_locator", `{"target":"role=button"}`)
		for _, target := range []string{`getByRole('button', { name: 'it\\'s' })`, `role=button[name=\"HERE\"i]`,
			`role=button[name=\"It\\'s here\"]`, `role=button[name=It's]`, `getByRole('button', { name: /S her./i })`,
			`getByRole('button', { name: \"It's here\", exact: true })`} {
			a.wants(false, "It's here", "browser_hover", `{"target":"%s"}`, target)
		}
	})
	run("what is not listed is called all the same", func(a agent) {
		few := w.StartMCP(nil, "--tools", "core,vision", "--mcp", "builtin")
		few.Initialize("{}")
		if all := few.Tools(); !slices.Contains(all, "browser_mouse_down") || slices.Contains(all, "browser_route") {
			a.t.Errorf("there are %v", all)
		}
		for call, want := range map[[2]string]string{
			{"browser_route_list", `{}`}: "", {"browser_route", `{"pattern":1.5,"x":2}`}: `no argument \"x\"`,
			{"browser_session_stats", `{}`}:                                           "sessions",
			{"browser_execute_bulk", `{"commands":[{"tool":"browser_cookie_list"}]}`}: `"success":true`,
			{"browser_route_lists", `{}`}:                                             "Unknown tool"} {
			if r := few.Tool(call[0], call[1]); !strings.Contains(r.Line, want) || want == "" && r.Tool(a.t).IsError {
				a.t.Errorf("%s, which is not listed: %s", call[0], r.Line)
			}
		}
		few.End()
	})
}
