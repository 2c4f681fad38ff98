//go:build linux

package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/jsonrpc"
)

// choiceSite serves a page with an element in each row of 40 pixels. Its title is how
// often the mouse was moved, and how often it was pressed or a key was.
func choiceSite(t *testing.T) string {
	t.Helper()
	return cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if site, ok := strings.CutPrefix(r.URL.Path, "/frame-of-"); ok {
			fmt.Fprintf(w, `<!doctype html><body style="margin:0"><button id=buy style="height:30px">Other</button>
				<button style="height:30px">Of %s</button>`, site)
			return
		}
		other := strings.Replace("http://"+r.Host, "127.0.0.1", "localhost", 1)
		fmt.Fprintf(w, `<!doctype html><title>x</title><style>
			body > * { position: fixed; left: 0; height: 30px; width: 300px; padding: 0; border: 0; margin: 0 }</style>
			<button id=buy style="top:0">Buy <b>now</b></button>
			<button data-testid="say &quot;hi&quot;" style="top:40px"></button>
			<a href=/away style="top:80px">Away</a>
			<ul style="top:120px"><li>one</li><li>two</li></ul>
			<my-box style="top:160px"></my-box>
			<iframe style="top:200px" src=/frame-of-this-site></iframe>
			<iframe style="top:240px" src=%s/frame-of-another-site></iframe>
			<button style="top:280px" id=r12345>Twice</button><button style="top:320px">Twice</button>
			<my-safe style="top:360px">shut</my-safe>
			<script>
				document.querySelector('my-safe').attachShadow({ mode: 'closed' }).innerHTML = '<b><slot></slot></b>'
				document.querySelector('my-box').attachShadow({ mode: 'open' }).innerHTML = '<i>left</i><i>right</i>'
				let moved = 0, pressed = 0
				const show = () => { document.title = moved + '/' + pressed }
				for (const type of ['pointermove', 'mousemove', 'mouseover']) {
					addEventListener(type, () => { moved++; show() }, true)
				}
				for (const type of ['pointerdown', 'mousedown', 'click', 'keydown']) {
					addEventListener(type, () => { pressed++; show() }, true)
				}
				show()
			</script>`, other)
	})
}

// person is another client of a session, which has a mouse and a keyboard.
type person struct{ *cmdtest.Wire }

// newPerson connects to the first page of a session.
func newPerson(t *testing.T, session string) person {
	t.Helper()
	ws := strings.Replace(session, "http", "ws", 1)
	got := cmdtest.AskOnce(t, ws+"/devtools/browser/x", "Target.getTargets", "{}")
	for info := range jsonrpc.Elements(jsonrpc.Get(cmdtest.ResultOf(t, got), "targetInfos")) {
		if jsonrpc.GetString(info, "type") == "page" {
			p := person{cmdtest.Dial(t, ws+"/devtools/page/"+jsonrpc.GetString(info, "targetId"))}
			p.title() // who was answered is there for the tool, too
			return p
		}
	}
	t.Fatalf("there is no page: %s", got)
	return person{}
}

func (p person) mouse(kind string, x, y int) {
	p.T.Helper()
	p.Ask("Input.dispatchMouseEvent", fmt.Sprintf(
		`{"type":%q,"x":%d,"y":%d,"button":%q,"clickCount":1}`, kind, x, y,
		map[bool]string{true: "none", false: "left"}[kind == "mouseMoved"]))
}

func (p person) title() string {
	p.T.Helper()
	return jsonrpc.GetString(cmdtest.ResultOf(p.T, p.Ask("Runtime.evaluate", `{"awaitPromise":true,"expression":`+
		`"new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(document.title))))"}`)),
		"result", "value")
}

// awaitsChoice waits until a page takes no notice of the mouse any more.
func (p person) awaitsChoice() {
	p.T.Helper()
	x := 300
	cmdtest.Until(p.T, "a choice is awaited", func() bool {
		before := p.title()
		x++
		p.mouse("mouseMoved", x, 450)
		return p.title() == before
	})
}

// seesMouse waits until a page takes notice of the mouse.
func (p person) seesMouse() {
	p.T.Helper()
	x := 300
	cmdtest.Until(p.T, "the page has the mouse", func() bool {
		before := p.title()
		x++
		p.mouse("mouseMoved", x, 450)
		return p.title() != before
	})
}

func TestMCPSelectElement(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := choiceSite(t)
	m := w.Builtin("--headless")
	const tool = "browser_select_element"
	m.MustTool("browser_navigate", `{"url":%q}`, site)
	m.MustFail("bmcp --no-headless shows one", tool, `{}`)
	at := w.Run("bproxy", "list", "-f", "proxy.http_url,proxy.owner")
	at.Exits(t, 0, "")
	url, owner, _ := strings.Cut(strings.TrimSpace(at.Out), "\t")
	if want := fmt.Sprintf("bmcp %d", m.Cmd.Process.Pid); owner != want {
		t.Errorf("the proxy belongs to %q, want %q", owner, want)
	}
	p := newPerson(t, url)

	for _, c := range []struct {
		x, y           int
		selector, text string
	}{
		{20, 15, "#buy", "Buy now"},
		{20, 55, `[data-testid="say \"hi\""]`, ""},
		{20, 95, `role=link[name="Away"]`, "Away"},
		{40, 145, "body > ul > li:nth-child(2)", "two"},
		{40, 165, "body > my-box >> i:nth-child(2)", "right"},
		{20, 215, `role=button[name="Other"]`, "Other"},
		{90, 215, `role=button[name="Of this-site"]`, "Of this-site"},
		{20, 255, "", "Other"}, // by a ref
		{90, 255, `role=button[name="Of another-site"]`, "Of another-site"},
		{20, 295, "#r12345", "Twice"},
		{20, 335, "body > button:nth-child(9)", "Twice"},
		{10, 370, "body > my-safe", "shut"},
	} {
		t.Run(fmt.Sprintf("%d,%d", c.x, c.y), func(t *testing.T) {
			id := m.StartTool(tool, `{"timeout":60000}`)
			p.awaitsChoice()
			p.mouse("mouseMoved", c.x, c.y)
			p.mouse("mousePressed", c.x, c.y)
			p.mouse("mouseReleased", c.x, c.y)
			r := m.Answer(id).Tool(t)
			if got := p.title(); !strings.HasSuffix(got, "/0") {
				t.Errorf("the page got %s events", got)
			}
			selector, _ := r.Struct["selector"].(string)
			if selector != c.selector && c.selector != "" || r.Struct["text"] != c.text {
				t.Errorf("%s", r.Text())
			}
			box, _ := r.Struct["box"].(map[string]any)
			if !covers(box["x"], box["width"], c.x) || !covers(box["y"], box["height"], c.y) {
				t.Errorf("the box is %v", box)
			}
			got := m.MustTool("browser_evaluate", `{"target":%q,"function":"(el) => el.innerText"}`, selector)
			if want := fmt.Sprintf("### Result\n%q", c.text); !strings.HasPrefix(got.Text(), want) {
				t.Errorf("%s is\n%s, want %s", selector, got.Text(), want)
			}
		})
	}
	t.Run("escape", func(t *testing.T) {
		id := m.StartTool(tool, `{"timeout":60000}`)
		p.awaitsChoice()
		p.Ask("Input.dispatchKeyEvent",
			`{"type":"rawKeyDown","key":"Escape","code":"Escape","windowsVirtualKeyCode":27}`)
		m.Answer(id).MustFail(t, "cancelled the choice with Escape")
		p.seesMouse()
	})
	t.Run("timeout", func(t *testing.T) {
		m.MustFail("nobody has chosen an element within 100ms", tool, `{"timeout":100}`)
		p.seesMouse()
	})
	t.Run("cancelled", func(t *testing.T) {
		id := m.StartTool(tool, `{"timeout":60000}`)
		p.awaitsChoice()
		m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
		m.MustTool("browser_evaluate", `{"function":"() => 1"}`) // it is its turn
		p.seesMouse()
	})
	t.Run("next page", func(t *testing.T) {
		id := m.StartTool(tool, `{"timeout":60000}`)
		p.awaitsChoice()
		p.Ask("Page.navigate", fmt.Sprintf(`{"url":%q}`, strings.Replace(site, "127.0.0.1", "localhost", 1)+"/2"))
		cmdtest.Until(t, "the page has loaded", func() bool { return strings.Contains(p.title(), "/") })
		p.awaitsChoice()
		p.mouse("mouseMoved", 20, 15)
		p.mouse("mousePressed", 20, 15)
		if r := m.Answer(id).Tool(t); r.Struct["selector"] != "#buy" {
			t.Errorf("%s", r.Text())
		}
	})
	m.End()
	w.Clean()
}

func covers(from, size any, at int) bool {
	a, _ := from.(float64)
	n, _ := size.(float64)
	return a <= float64(at) && float64(at) <= a+n
}
