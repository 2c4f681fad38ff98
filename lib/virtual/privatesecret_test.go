package virtual

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
)

// tellsAll is a page that tells what is typed in all ways that a page has, and wipes it when it is asked to.
const tellsAll = `<!doctype html><title>Log in</title><input id=user><input id=pass type=password><p id=echo></p>
<iframe name=frame srcdoc="<p>frame</p>"></iframe><script>
let open = 0; // requests
const tell = async (v) => {
	console.log("typed", v, {v}); console.error(new Error(v)); document.title = v; echo.textContent = v;
	document.body.setAttribute("data-v", v); history.replaceState({}, "", "/page/" + v + "#" + v);
	localStorage.v = v; sessionStorage.v = v; document.cookie = "v=" + v; window.name = v;
	document.querySelector("iframe").name = v; frames[0].document.body.textContent = v;
	self.toAgent && toAgent(v); performance.mark(v);
	new BroadcastChannel("b").postMessage(v); setTimeout(() => { throw new Error(v) }, 0);
	fetch("/post/" + v + "?" + v, {method: "POST", body: v, headers: {"X-V": v}})
		.catch(() => {}).finally(() => { open-- });
	open++;
	const f = document.createElement("iframe"); f.src = "/frame/" + v; f.name = v; document.body.append(f);
	f.onload = () => f.remove();
	new Worker(URL.createObjectURL(new Blob(["console.log('" + v + "'); postMessage(1)"])), {name: v}).onmessage =
		(event) => event.target.terminate();
	const s = document.createElement("style"); s.textContent = "/* " + v + " */"; document.head.append(s); s.remove();
};
let last = "";
for (const e of [user, pass]) e.oninput = () => { last = e.value; if (last.length % 16 == 0) tell(last) };
const wipe = () => {
	localStorage.clear(); sessionStorage.clear(); document.cookie = "v=; max-age=0"; window.name = "";
	document.title = "Log in"; echo.textContent = user.value = pass.value = ""; document.body.removeAttribute("data-v");
	document.querySelector("iframe").name = ""; frames[0].document.body.textContent = "";
	history.replaceState({}, "", "/"); performance.clearMarks();
};
</script>`

// overheard collects all that a client or a person gets.
type overheard struct {
	mu  sync.Mutex
	all [][]byte
}

// overhear reads a peer's messages from now on.
func overhear(p *peer) *overheard {
	h := &overheard{}
	go func() {
		for {
			m, err := p.conn.Next()
			if err != nil {
				return
			}
			b, err := m.Bytes()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.all = append(h.all, bytes.Clone(b))
			h.mu.Unlock()
		}
	}()
	return h
}

// count returns how many messages have a text.
func (h *overheard) count(text string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.all {
		if bytes.Contains(m, []byte(text)) {
			n++
		}
	}
	return n
}

// after returns how many messages have a text after the first one with another.
func (h *overheard) after(mark, text string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	begun := false
	for _, m := range h.all {
		begun = begun || bytes.Contains(m, []byte(mark))
		if begun && bytes.Contains(m, []byte(text)) {
			n++
		}
	}
	return n
}

// leak returns a message with eight bytes of a secret, as they are or in base64; "": none has.
func (h *overheard) leak(secret string) string {
	var parts []string
	for i := range len(secret) - 7 {
		parts = append(parts, secret[i:i+8])
		if i+12 <= len(secret) {
			parts = append(parts, base64.StdEncoding.EncodeToString([]byte(secret[i:i+12])))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range h.all {
		for _, part := range parts {
			if i := bytes.Index(m, []byte(part)); i >= 0 {
				return string(m[:min(len(m), 300)]) + " … " + string(m[max(0, i-100):min(len(m), i+100)])
			}
		}
	}
	return ""
}

// reads are commands that would tell what is typed.
var reads = map[string]any{
	"Runtime.evaluate": map[string]any{
		"expression": "document.documentElement.outerHTML + user.value + pass.value"},
	"DOM.getDocument":                 map[string]any{"depth": -1, "pierce": true},
	"DOM.performSearch":               map[string]any{"query": "*"},
	"DOMSnapshot.captureSnapshot":     map[string]any{"computedStyles": []string{}},
	"Accessibility.getFullAXTree":     nil,
	"Page.getNavigationHistory":       nil,
	"Page.getResourceTree":            nil,
	"Page.getFrameTree":               nil,
	"Page.captureSnapshot":            nil,
	"Page.captureScreenshot":          map[string]any{"format": "jpeg", "quality": 1},
	"Network.getCookies":              nil,
	"Storage.getCookies":              nil,
	"Target.getTargets":               nil,
	"Page.getLayoutMetrics":           nil,
	"Debugger.enable":                 nil,
	"Runtime.globalLexicalScopeNames": nil,
	"Performance.getMetrics":          nil,
	"Browser.getVersion":              nil,
}

// enables are the domains whose events tell of pages.
var enables = strings.Fields(`Page Runtime Network Log Console DOM CSS DOMStorage Accessibility Debugger Performance
	Audits Animation LayerTree Overlay Inspector ServiceWorker Database IndexedDB WebAudio Media`)

// Nothing of a secret that is typed in private reaches a client or another person, whatever they ask for.
func TestPrivateSecret(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path != "/" {
			fmt.Fprint(w, r.URL) // echoes
			return
		}
		fmt.Fprint(w, tellsAll)
	}))
	t.Cleanup(site.Close)
	runs := 2
	if long {
		runs = 100
	}
	for name, open := range map[string]func(*testing.T) *Browser{
		"chromium": sharedChrome,
		"chrome-headless-shell": func(t *testing.T) *Browser {
			return lastingShell.open(t, func(t testing.TB) (in, out *os.File, p *os.Process) {
				return chrometest.StartShellOnPipe(t)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			for range runs {
				typeSecret(t, b, site.URL)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// typeSecret has a person type a secret in private, and looks for it in what all others got.
func typeSecret(t *testing.T, b *Browser, site string) {
	s := newSession(t, b, Options{})
	setup := connect(t, s, "")
	page := setup.pages()[0]
	at := setup.attach(page)
	setup.must(at, "Page.navigate", map[string]any{"url": site + "/"})
	setup.awaitTrue(at, `document.readyState === "complete" && typeof wipe === "function"`)
	var all []*overheard
	var agents []*peer
	var sessions []string
	for n := range 2 {
		a := connect(t, s, "")
		a.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
		at := a.attach(page)
		for _, domain := range enables {
			a.call(at, domain+".enable", nil)
		}
		a.call(at, "Page.setLifecycleEventsEnabled", map[string]any{"enabled": true})
		a.call(at, "Runtime.addBinding", map[string]any{"name": "toAgent"})
		a.call(at, "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": n == 0,
			"flatten": true})
		a.call(at, "DOM.getDocument", map[string]any{"depth": -1})
		if n == 1 {
			a.call(at, "Fetch.enable", map[string]any{"patterns": []map[string]any{{"urlPattern": "*"},
				{"urlPattern": "*", "requestStage": "Response"}}})
			a.call("", "Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true,
				"flatten": true})
		}
		a.begin(at, "Page.startScreencast", map[string]any{"format": "jpeg"})
		for _, name := range []string{"finish", "later"} {
			a.begin(at, "Runtime.evaluate", map[string]any{"awaitPromise": true, "returnByValue": true,
				"expression": fmt.Sprintf("new Promise((done) => { (window.%s ??= []).push(done) })", name)})
		}
		agents, sessions, all = append(agents, a), append(sessions, at), append(all, overhear(a))
	}
	other := person(t, s, "ben")
	other.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	seen := other.attach(page)
	other.must(seen, "Page.enable", nil)
	other.begin(seen, "Page.startScreencast", map[string]any{"format": "jpeg"})
	all = append(all, overhear(other))

	anna := person(t, s, "anna")
	mine := anna.attach(page)
	setup.awaitTrue(at, `window.finish?.length === 2 && window.later?.length === 2`)
	anna.takePrivate("anna-anna-anna-anna")
	over := make(chan struct{})
	var polling sync.WaitGroup
	poll := func(send func(id int, session, method string, params any)) {
		id := 1_000_000
		for method, params := range reads {
			id++
			send(id, "", method, params)
		}
	}
	for i, a := range append(agents, other) {
		session := append(sessions, seen)[i]
		polling.Go(func() {
			for round := 0; ; round++ {
				poll(func(id int, _, method string, params any) {
					raw, _ := json.Marshal(map[string]any{"id": id + round*100, "method": method, "params": params,
						"sessionId": session})
					a.conn.Write(raw)
				})
				select {
				case <-over:
					return
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	secret := rand.Text() + rand.Text()[:6]
	for _, field := range []string{"user", "pass"} {
		anna.must(mine, "Runtime.evaluate", map[string]any{"expression": field + ".focus()"})
		anna.must(mine, "Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "text": secret[:1]})
		anna.must(mine, "Input.dispatchKeyEvent", map[string]any{"type": "keyUp"})
		anna.must(mine, "Input.insertText", map[string]any{"text": secret[1:16]})
		anna.must(mine, "Input.insertText", map[string]any{"text": secret[16:]})
	}
	got := anna.must(mine, "Runtime.evaluate", map[string]any{"returnByValue": true,
		"expression": `for (const done of finish) done(last); for (const done of later) setTimeout(done, 200, last);
			user.value + pass.value + document.cookie`})
	if value := jsonrpc.GetString(got, "result", "value"); value != secret+secret+"v="+secret {
		t.Errorf("typed is %q", value)
	}
	for _, info := range s.Targets() {
		if strings.Contains(string(info), secret) {
			t.Errorf("the list of targets has %s", info)
		}
	}
	for i, h := range all {
		mark := `"Btools.private"`
		if i == 2 { // a person
			mark = `"Btools.control","params":{"by":"anna"`
		}
		until(t, "others are told", func() bool { return h.count(mark) > 0 })
		if n := h.after(mark, "screencastFrame"); n > 0 {
			t.Errorf("%d has got %d frames", i, n)
		}
	}
	anna.must(mine, "Runtime.evaluate", map[string]any{"expression": "wipe()"})
	anna.awaitTrue(mine, `open === 0 && document.querySelectorAll("iframe").length === 1`)
	until(t, "the page is as before", func() bool {
		return !strings.Contains(string(anna.must("", "Target.getTargets", nil)), `"worker"`) &&
			!strings.Contains(fmt.Sprintf("%s", s.Targets()), `"worker"`)
	})
	close(over)
	polling.Wait()
	anna.must("", "Btools.give", nil)
	for i, a := range agents {
		for n, domain := range []string{"Runtime", "Log", "Console", "Audits"} { // tell again what has been kept
			for m, step := range []string{".disable", ".enable"} {
				a.conn.Write(fmt.Appendf(nil, `{"id":%d,"method":%q,"sessionId":%q}`, 9_000_000+n*2+m, domain+step,
					sessions[i]))
			}
		}
		poll(func(id int, _, method string, params any) {
			raw, _ := json.Marshal(map[string]any{"id": id + 8_000_000, "method": method, "params": params,
				"sessionId": sessions[i]})
			a.conn.Write(raw)
		})
	}
	time.AfterFunc(300*time.Millisecond, func() {
		for i, a := range agents {
			a.conn.Write(fmt.Appendf(nil, `{"id":9999999,"method":"Runtime.evaluate","params":{"expression":`+
				`"'it is over'"},"sessionId":%q}`, sessions[i]))
		}
	})
	for _, h := range all[:2] {
		until(t, "the client goes on", func() bool { return h.count("it is over") > 0 })
	}
	for i, h := range all {
		if leak := h.leak(secret); leak != "" {
			t.Errorf("%d has got %s", i, leak)
		}
		if marks := h.count(`"Btools.private"`); i < 2 && marks != 1 {
			t.Errorf("%d has got %d marks", i, marks)
		}
		if h.count("the answer is withheld") < 2 && i < 2 {
			t.Errorf("%d has not been told that its scripts' answers are withheld", i)
		}
	}
}
