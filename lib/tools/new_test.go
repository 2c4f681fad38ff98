package tools

import (
	"bytes"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// scrollPage has a page and a part of it that scroll, and sends requests for a while.
const scrollPage = `<!doctype html><title>Scrolls</title><body style="height:4000px;margin:0">
	<div id=box style="position:absolute;top:2000px;height:100px;width:100px;overflow:auto"><p id=in
	style="margin-top:900px">Inner</p></div><p id=end style="position:absolute;top:3900px">End</p><script>
	onpopstate = onhashchange = () => document.title = location.hash
	setTimeout(() => { history.pushState(null, '', '/late/there'); window.ready = { now: true } }, 300)</script>`

// usePages are what tools of a browser do with pages: history, scrolling, waiting and labels of tabs.
func usePages(h *host, site string) {
	wants := func(want, tool, args string) string {
		h.t.Helper()
		return h.wants(want[0] == '!', want[1:], tool, args)
	}
	open := func(path string) { h.wants(false, site+path, "browser_navigate", `{"url":`+quoted(site+path)+`}`) }
	open("/one")
	wants("!there is no page after this one", "browser_navigate_forward", `{}`)
	open("/two")
	wants("=Page URL: "+site+"/one", "browser_navigate_back", `{}`)
	wants("=Page URL: "+site+"/two", "browser_navigate_forward", `{}`)
	wants("=", "browser_evaluate", `{"function":"window.kept = 1"}`)
	wants("=Page URL: "+site+"/two", "browser_reload", `{}`)
	wants("=undefined", "browser_evaluate", `{"function":"window.kept"}`)

	open("/scrolls")
	wants("=The address is "+site+"/late/there", "browser_wait_for",
		`{"url":"**/late/*","function":"() => window.ready.now"}`)
	wants("=- Scrolled the page by 250 pixels, to 250 of ", "browser_scroll", `{"direction":"down","pixels":250}`)
	wants("=Nothing has scrolled: the page has no more than is seen", "browser_scroll", `{"direction":"right"}`)
	wants("=, to 0 of ", "browser_scroll", `{"direction":"top"}`)
	wants("=Nothing has scrolled: the page is at 0 of", "browser_scroll", `{"direction":"up"}`)
	wants(`=Scrolled <div#box> "Inner" by `, "browser_scroll", `{"target":"#in","direction":"bottom"}`)
	wants("=Scrolled to ", "browser_scroll", `{"target":"#end"}`)
	wants("=true", "browser_evaluate", `{"function":"scrollY > 2000"}`)
	wants("!direction is missing", "browser_scroll", `{}`)
	wants("=The page has come to load", "browser_wait_for", `{"load":"load"}`)

	wants(`=(current) [](about:blank) label "mail"`, "browser_tabs", `{"action":"new","label":"mail"}`)
	wants(`=label "shop"`, "browser_tabs", `{"action":"select","index":0,"label":"shop"}`)
	wants(`=(current) [](about:blank) label "mail"`, "browser_tabs", `{"action":"select","label":"mail"}`)
	wants("=", "browser_tabs", `{"action":"close","label":"mail"}`)
	wants(`!no tab is called "mail", or it was closed`, "browser_tabs", `{"action":"select","label":"mail"}`)
}

// A new tab gets the label itself, whichever index is given, and a list gives none.
func TestLabelledTab(t *testing.T) {
	t.Parallel()
	zero := 0.0
	for _, c := range []struct {
		a     tabsArguments
		index int
		gives bool
	}{
		{tabsArguments{Action: "new", Label: "x", Index: &zero}, -1, true},
		{tabsArguments{Action: "list", Label: "x"}, -1, false},
		{tabsArguments{Action: "select", Label: "x", Index: &zero}, 0, true},
		{tabsArguments{Action: "select", Index: &zero}, 0, false},
	} {
		if index, gives, err := c.a.index(nil); err != nil || index != c.index || gives != c.gives {
			t.Errorf("%+v: %d, %v, %v", c.a, index, gives, err)
		}
	}
}

func newSite(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/scrolls" {
			fmt.Fprint(w, scrollPage)
			return
		}
		fmt.Fprintf(w, "<!doctype html><title>%s</title><h1>A page</h1>", r.URL.Path)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

func TestPagesAndTabs(t *testing.T) {
	t.Parallel()
	endpoint, _ := chrometest.StartShell(t)
	h := serve(t, endpoint, 200*time.Millisecond)
	site := newSite(t)
	usePages(h, site)
	h.wants(true, "which does not match **/never", "browser_wait_for", `{"url":"**/never"}`)
	h.wants(true, "ReferenceError", "browser_wait_for", `{"function":"() => nothing.at.all"}`)
	h.wants(false, "The page has come to idle", "browser_wait_for", `{"load":"idle"}`)
}

// A picture shows the refs of the elements in it, those of frames at their place, too.
func TestPictures(t *testing.T) {
	t.Parallel()
	endpoint, _ := chrometest.StartShell(t)
	h := serve(t, endpoint, time.Second)
	h.wants(false, "", "browser_navigate", `{"url":`+quoted(`data:text/html,<body style="margin:0;background:white">`+
		`<button style="position:absolute;left:100px;top:100px;width:80px;height:40px">Go</button>`+
		`<iframe style="position:absolute;left:300px;top:100px;border:0" srcdoc="<button style='position:absolute;`+
		`left:50px;top:50px;width:90px;height:40px'>In</button>"></iframe><p style="position:absolute;top:3000px">`+
		`<a href=x>Below</a>`)+`}`)
	picture := func(args string) image.Image {
		t.Helper()
		text := h.wants(false, "saved as ", "browser_take_screenshot", `{"filename":"a.png"`+args+`}`)
		_, path, _ := strings.Cut(text, "saved as ")
		path, _, _ = strings.Cut(path, "\n")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	isInk := func(in image.Image, x, y int) bool {
		r, g, b, _ := in.At(x, y).RGBA()
		return r>>8 == 200 && g == 0 && b>>8 == 80
	}
	plain, marked := picture(""), picture(`,"annotate":true`)
	for _, at := range []image.Point{{179, 120}, {140, 139}, {439, 170}, {400, 189}} {
		if isInk(plain, at.X, at.Y) || !isInk(marked, at.X, at.Y) {
			t.Errorf("no box is at %v", at)
		}
	}
	white := 0
	for x := range 18 {
		for y := range 14 {
			if r, g, b, _ := marked.At(100+x, 86+y).RGBA(); r&g&b == 0xffff {
				white++
			}
		}
	}
	if white < 60 || white > 150 {
		t.Errorf("the ref has %d white pixels", white)
	}
	text := h.wants(false, `- button "Go" [ref=`, "browser_take_screenshot", `{"annotate":true}`)
	if !strings.Contains(text, `- button "In" [ref=f1e`) || strings.Contains(text, "Below") ||
		strings.Contains(text, "[box=") {
		t.Errorf("the elements are %s", text)
	}
	h.wants(false, `- link "Below" [ref=`, "browser_take_screenshot", `{"annotate":true,"fullPage":true,"type":"jpeg"}`)
	h.wants(true, "annotate draws in", "browser_take_screenshot", `{"annotate":true,"type":"webp"}`)

	const same = "The screenshot of viewport has not changed: "
	lacks := func(args string) {
		t.Helper()
		text := h.wants(false, "Screenshot of viewport", "browser_take_screenshot", args)
		if strings.Contains(text, same) {
			t.Errorf("%s: %s", args, text)
		}
	}
	h.wants(true, "", "browser_take_screenshot", `{"ifChanged":true,"filename":"/nowhere/x.png"}`)
	lacks(`{"ifChanged":true}`)
	h.wants(false, same+"0 %", "browser_take_screenshot", `{"ifChanged":true}`)
	h.wants(false, "", "browser_evaluate", `{"function":"document.querySelector('button').textContent = 'Gone'"}`)
	h.wants(false, same, "browser_take_screenshot", `{"ifChanged":true,"threshold":0.1}`)
	lacks(`{"ifChanged":true}`)
	h.wants(false, same, "browser_take_screenshot", `{"ifChanged":true}`)
}

// With snapshot files a result has the link that clients of @playwright/mcp read, and only a snapshot that was asked
// for stands in it.
func TestSnapshotFiles(t *testing.T) {
	t.Parallel()
	endpoint, _ := chrometest.StartShell(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := newAgent(t, Options{Endpoint: endpoint, Dir: dir, SnapshotFiles: true})
	link := regexp.MustCompile(`### Snapshot\n- \[Snapshot\]\((\.playwright-mcp/page-\S+\.yml)\)$`)
	for _, c := range [][3]string{
		{"browser_navigate", `{"url":"data:text/html,<button onclick=textContent='Gone'>Go</button>"}`,
			`button "Go" [ref=e`},
		{"browser_click", `{"target":"text=Go"}`, `button "Gone" [active] [ref=e`},
	} {
		text := h.does(t, c[0], c[1], "!```")
		m := link.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("there is no link in %s", text)
		}
		if data, err := os.ReadFile(filepath.Join(dir, m[1])); err != nil || !strings.Contains(string(data), c[2]) {
			t.Errorf("the file has %q: %v", data, err)
		}
	}
	h.does(t, "browser_snapshot", "{}", "```yaml\n- button \"Gone\"")
}

// An action says what was seen to come of it, also that nothing was.
func TestSeenEffects(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/fails":
			w.WriteHeader(http.StatusConflict)
		case "/":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, `<!doctype html><title>Seen</title>
				<button onclick="fetch('/saves', { method: 'POST' })">Save</button>
				<button onclick="fetch('/fails')">Fail</button><button>Nothing</button><canvas id=c></canvas>
				<canvas id=d onclick="getContext('2d').fillRect(0, 0, 9, 9)"></canvas>
				<label><input type=checkbox> Check</label> <input aria-label=Name> <div id=host></div>
				<button onclick="this.outerHTML = '<button>Made anew</button>'">Renders</button>
				<button onclick="this.remove()">Leaves</button><a href=#part>Part</a>
				<iframe src="http://%s/frame"></iframe><script>host.attachShadow({ mode: 'open' }).innerHTML =
				'<button onclick="this.ariaPressed = true" aria-pressed=false>Within</button>'</script>`,
				strings.Replace(r.Host, "127.0.0.1", "localhost", 1))
			for i := range 20 {
				fmt.Fprintf(w, "<p>Row %d", i)
			}
		case "/frame":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<button onclick="this.textContent = 'Was clicked'">In the frame</button>`)
		}
	}))
	t.Cleanup(s.Close)
	endpoint, _ := chrometest.StartShell(t)
	h := serve(t, endpoint, 0)
	whole := h.wants(false, "In the frame", "browser_navigate", `{"url":`+quoted(s.URL)+`}`)
	ref := func(name string) string {
		m := regexp.MustCompile(name + `".*\[ref=(\w+)\]`).FindStringSubmatch(whole)
		if m == nil {
			t.Fatalf("%s is not in %s", name, whole)
		}
		return m[1]
	}
	const onlyFocus = `. In the snapshot only the focus has changed.`
	for _, c := range [][3]string{
		{"browser_click", "Save", `"Save"` + onlyFocus + " It has sent POST " + s.URL + "/saves (200).\n"},
		{"browser_click", "Fail", onlyFocus + " It has sent GET " + s.URL + "/fails (409).\n"},
		{"browser_click", "Nothing", `Clicked button "Nothing"` + onlyFocus + "\n"},
		{"browser_click", "Check", `Clicked checkbox "Check", now [checked]` + "\n"},
		{"browser_click", "Check", `Clicked checkbox "Check", now without [checked]` + "\n"},
		{"browser_type", "Name", `Typed into textbox "Name", now: some text` + "\n"},
		{"browser_click", "Within", `Clicked button "Within", now [pressed]` + "\n"},
		{"browser_click", "In the frame", `button "Was clicked" [active] [ref=f1e`},
		{"browser_click", "Renders", `button "Made anew" [ref=`},
		{"browser_click", "Leaves", `# gone: button "Leaves" [ref=`},
		{"browser_click", "Part", "### Page\n- Page URL: " + s.URL + "/#part\n"},
	} {
		args := `{"target":"` + ref(c[1]) + `"`
		if c[0] == "browser_type" {
			args += `,"text":"some text"`
		}
		if text := h.wants(false, c[2], c[0], args+"}"); strings.Contains(text, "Row 7") {
			t.Errorf("%s repeats the page: %s", c[1], text)
		}
	}
	h.wants(false, "Set checkbox \"Check\" to true, now [checked]\n- Typed into textbox \"Name\", now: other\n",
		"browser_fill_form", fmt.Sprintf(`{"fields":[{"target":%q,"name":"Check","type":"checkbox","value":"true"},`+
			`{"target":%q,"name":"Name","type":"textbox","value":"other"}]}`, ref("Check"), ref("Name")))
	h.wants(false, "Clicked <canvas#d>, whose picture has changed. "+unchanged, "browser_click", `{"target":"#d"}`)
	h.wants(false, "Clicked <canvas#c>. "+unchanged, "browser_click", `{"target":"#c"}`)
	h.wants(false, unchanged, "browser_snapshot", `{"since":"last"}`)
	h.wants(false, "", "browser_evaluate", `{"function":"document.querySelector('p').textContent = 'Other'"}`)
	if text := h.wants(false, "- paragraph: Other", "browser_snapshot", `{"since":"last"}`); len(text) > 100 {
		t.Errorf("since the last one %s", text)
	}
	h.wants(true, "since is for the whole page", "browser_snapshot", `{"since":"last","interactive":true}`)
}
