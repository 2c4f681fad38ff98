package virtual

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
	"btools/lib/virtual/policy"
	"btools/lib/websocket"
)

// fuzzed is how many commands TestChromeSurvivesAnyCommand sends to each
// browser.
const fuzzed = 5000

// No command of a session ends Chrome or stops another session, of those that the
// protocol's description has, with values from the edges of their types. FUZZ_SEED
// repeats the run that had this seed, FUZZ_COMMANDS is another number of commands,
// and FUZZ_METHOD is a part of the name of each method that is tried.
func TestChromeSurvivesAnyCommand(t *testing.T) {
	if !long {
		t.Skip("make test LONG=1 runs it")
	}
	for _, browser := range []struct {
		name  string
		start func(testing.TB) (string, *os.Process)
	}{
		{"Chromium", func(t testing.TB) (string, *os.Process) { return chrometest.Start(t) }},
		{"chrome-headless-shell", chrometest.StartShell},
	} {
		t.Run(browser.name, func(t *testing.T) { fuzz(t, browser.start) })
	}
}

func fuzz(t *testing.T, start func(testing.TB) (string, *os.Process)) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("FUZZ_SEED"), 10, 64); err == nil {
		seed = s
	}
	count := fuzzed
	if n, err := strconv.Atoi(os.Getenv("FUZZ_COMMANDS")); err == nil {
		count = n
	}
	random := rand.New(rand.NewPCG(seed, 0))
	b, _ := openProcess(t, start)
	f := &fuzzer{t: t, b: b, random: random, site: fuzzSite(t), protocol: readProtocol(t, b), given: map[string]any{}}
	f.types = newSamples(f.protocol, nil).types
	other, otherPage := attached(t, newSession(t, b, Options{}))

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the latest commands were\n%s", f.latest())
		}
	})
	f.open()
	commands := f.commands()
	random.Shuffle(len(commands), func(i, j int) { commands[i], commands[j] = commands[j], commands[i] })
	t.Logf("seed %d: %d of %d commands", seed, count, len(commands))
	commands = commands[:min(count, len(commands))]
	slowest, begun := time.Duration(0), time.Now()
	for i, c := range commands {
		if i%perPage == 0 && i > 0 {
			f.leave()
			f.open()
		}
		f.try(c)
		if i%10 == 9 {
			asked := time.Now()
			other.must(otherPage, "Runtime.evaluate", map[string]any{"expression": "1"})
			took := time.Since(asked)
			if slowest = max(slowest, took); took > 2*time.Second {
				t.Logf("after %d commands another session waits %v; the latest were\n%s", i+1, took, f.latest())
			}
		}
	}
	t.Logf("%d commands in %v, %d without an answer in time; another session waited %v at most", len(commands),
		time.Since(begun).Round(time.Second), f.silent, slowest)
}

// perMethod is how many commands of one method are tried at most.
const perMethod = 100

// perPage is how many commands one page is sent. They change it, until it
// answers nothing any more.
const perPage = 20

// fuzzer sends commands to pages of a session.
type fuzzer struct {
	t        *testing.T
	b        *Browser
	random   *rand.Rand
	protocol protocol
	types    map[string]field
	site     string

	session *Session
	conn    *websocket.Conn
	heard   chan json.RawMessage
	page    string // its CDP session
	given   map[string]any
	last    int
	recent  []string
	silent  int
}

// fuzzCommand is a command on the root or on the page of the moment.
type fuzzCommand struct {
	root   bool
	method string
	params func() map[string]any
}

// fuzzSite serves a page that has something of everything.
func fuzzSite(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".js") {
			w.Header().Set("Content-Type", "text/javascript")
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<title>fuzz</title>
			<style>@keyframes k { to { left: 9px } } p { animation: k 9s; font: 9px a }</style>
			<p id=p>text <a href=/other>link</a></p><input value=v><input type=file><textarea>t</textarea>
			<select><option>o</select><canvas></canvas><video></video><iframe srcdoc="<p>frame"></iframe><form></form>
			<div style="height: 3000px"></div><script>
			localStorage.a = sessionStorage.a = document.cookie = "a=1"; indexedDB.open("a", 1); caches?.open("a")
			new Worker("/w.js"); try { new AudioContext() } catch {}
			p.attachShadow({mode: "open"}); document.querySelector("input").focus()
			</script>`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// open connects a client to a new session, and loads its page.
func (f *fuzzer) open() {
	t := f.t
	f.session = newSession(t, f.b, Options{})
	p, page := attached(t, f.session)
	f.page = page
	p.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	p.must(f.page, "Page.enable", nil)
	p.must(f.page, "Page.navigate", map[string]any{"url": f.site})
	p.event("Page.loadEventFired", "")
	for _, d := range []string{"Runtime", "DOM", "CSS", "Network", "Debugger", "Overlay", "Accessibility", "Animation",
		"DOMStorage", "Emulation", "Log"} {
		p.call(f.page, d+".enable", nil)
	}
	target := p.pages()[0]
	document := p.must(f.page, "DOM.getDocument", map[string]any{"depth": -1})
	node := jsonrpc.Get(p.must(f.page, "DOM.querySelector", map[string]any{
		"nodeId": jsonrpc.Get(document, "root", "nodeId"), "selector": "p"}), "nodeId")
	f.given = map[string]any{
		"Target.TargetID": target, "Target.SessionID": f.page, "Browser.BrowserContextID": f.session.base,
		"Browser.WindowID": jsonrpc.Get(p.call("", "Browser.getWindowForTarget",
			map[string]any{"targetId": target}), "result", "windowId"),
		"Page.FrameId": target, "DOM.NodeId": node, "origin": f.site, "securityOrigin": f.site,
		"DOM.BackendNodeId": jsonrpc.Get(p.must(f.page, "DOM.describeNode", map[string]any{"nodeId": node}), "node",
			"backendNodeId"),
		"Runtime.RemoteObjectId": jsonrpc.GetString(p.must(f.page, "Runtime.evaluate",
			map[string]any{"expression": "document"}), "result", "objectId"),
		"Runtime.ExecutionContextId": 1, "storageKey": f.site + "/", "Storage.SerializedStorageKey": f.site + "/",
		"url": f.site, "expression": "document.title", "functionDeclaration": "function() { return this }",
		"Page.ScriptIdentifier": "1", "selector": "p", "pattern": "*", "urlPattern": "*",
	}
	for _, e := range p.events {
		switch jsonrpc.GetString(e, "method") {
		case "Debugger.scriptParsed":
			f.given["Runtime.ScriptId"] = jsonrpc.GetString(e, "params", "scriptId")
		case "CSS.styleSheetAdded":
			f.given["DOM.StyleSheetId"] = jsonrpc.GetString(e, "params", "header", "styleSheetId")
			f.given["CSS.StyleSheetId"] = f.given["DOM.StyleSheetId"]
		case "Network.requestWillBeSent":
			f.given["Network.RequestId"] = jsonrpc.GetString(e, "params", "requestId")
			f.given["Network.LoaderId"] = jsonrpc.GetString(e, "params", "loaderId")
		case "Runtime.executionContextCreated":
			f.given["Runtime.ExecutionContextId"] = jsonrpc.Get(e, "params", "context", "id")
		}
	}
	f.conn, f.last = p.conn, p.last
	heard, conn := make(chan json.RawMessage, 1000), p.conn
	f.heard = heard
	go func() {
		defer close(heard)
		for {
			m, err := conn.Next()
			if err != nil {
				return
			}
			b, err := m.Bytes()
			if err != nil {
				return
			}
			if jsonrpc.Get(b, "id") != nil {
				heard <- b
			}
		}
	}()
}

// leave ends the session of the page.
func (f *fuzzer) leave() {
	f.conn.Close(websocket.Normal, "")
	for range f.heard {
	}
	f.session.stop(ErrEnded)
	<-f.session.life.finished
}

// answerTime is how long a command is given: pages get out of order, so that
// many are never answered.
const answerTime = 400 * time.Millisecond

// try sends a command and waits for its answer. It fails if the browser is gone.
func (f *fuzzer) try(c fuzzCommand) {
	f.last++
	session := f.page
	if c.root {
		session = ""
	}
	raw, err := json.Marshal(c.params())
	if err != nil {
		f.t.Fatal(err)
	}
	text := c.method + " " + strings.ReplaceAll(string(raw), longText, "LONG")
	if c.root {
		text += " on the root"
	}
	f.recent = append(f.recent, text)
	if f.conn.Write(wire.Command(strconv.Itoa(f.last), session, c.method, json.RawMessage(raw))) != nil {
		f.reopen()
		return
	}
	late := time.NewTimer(answerTime)
	defer late.Stop()
	for {
		select {
		case m, ok := <-f.heard:
			if !ok {
				f.reopen()
				return
			}
			if string(jsonrpc.Get(m, "id")) == strconv.Itoa(f.last) {
				return
			}
		case <-late.C:
			f.silent++
			return
		case <-f.b.Done():
			f.t.Fatalf("the browser has ended")
		}
	}
}

// reopen goes on after the session has ended.
func (f *fuzzer) reopen() {
	select {
	case <-f.b.Done():
		f.t.Fatalf("the browser has ended")
	case <-time.After(100 * time.Millisecond):
	}
	f.leave()
	f.open()
}

// longText is a string of 200 kB.
var longText = strings.Repeat("long", 50_000)

// latest returns the latest commands.
func (f *fuzzer) latest() string {
	var all []string
	for _, text := range f.recent[max(0, len(f.recent)-2*perPage):] {
		if len(text) > 1500 {
			text = text[:1500] + "…"
		}
		all = append(all, text)
	}
	return strings.Join(all, "\n")
}

// commands are all commands of the protocol: each once for each edge of each of
// its parameters and as often with several edges at once, but at most perMethod.
func (f *fuzzer) commands() (all []fuzzCommand) {
	for _, d := range f.protocol.Domains {
		for _, c := range d.Commands {
			method := d.Name + "." + c.Name
			if slices.Contains(ending, method) || !strings.Contains(method, os.Getenv("FUZZ_METHOD")) {
				continue
			}
			base := func() map[string]any {
				o := map[string]any{}
				for _, p := range c.Params {
					if !p.Optional {
						o[p.Name] = f.good(d.Name, p, 0)
					}
				}
				return o
			}
			var ofMethod []fuzzCommand
			add := func(edge func() map[string]any) {
				root := policy.Lookup(method, false).Action != policy.Missing && f.random.IntN(2) == 0
				ofMethod = append(ofMethod, fuzzCommand{root, method, edge})
			}
			add(base)
			for _, p := range c.Params {
				edges := len(f.edges(d.Name, p, 0))
				for i := range edges {
					add(func() map[string]any {
						o := base()
						o[p.Name] = f.edges(d.Name, p, 0)[i]
						return o
					})
					add(func() map[string]any {
						o := base()
						o[p.Name] = f.edges(d.Name, p, 0)[i]
						for _, q := range c.Params {
							if all := f.edges(d.Name, q, 0); q.Name != p.Name && f.random.IntN(2) == 0 {
								o[q.Name] = all[f.random.IntN(len(all))]
							}
						}
						return o
					})
				}
			}
			f.random.Shuffle(len(ofMethod), func(i, j int) { ofMethod[i], ofMethod[j] = ofMethod[j], ofMethod[i] })
			all = append(all, ofMethod[:min(len(ofMethod), perMethod)]...)
		}
	}
	return all
}

// good is a value that a command accepts.
func (f *fuzzer) good(domain string, p field, depth int) any {
	if p.Ref != "" {
		ref := full(domain, p.Ref)
		if v := f.given[ref]; v != nil {
			return v
		}
		if v := f.given[p.Name]; v != nil {
			return v
		}
		if depth > 6 {
			return nil
		}
		d, _, _ := strings.Cut(ref, ".")
		return f.good(d, f.types[ref], depth+1)
	}
	if v := f.given[p.Name]; v != nil && p.Type == "string" {
		return v
	}
	switch {
	case len(p.Enum) > 0:
		return p.Enum[0]
	case p.Type == "array" && p.Items != nil:
		if v := f.good(domain, *p.Items, depth+1); v != nil {
			return []any{v}
		}
		return []any{}
	case p.Type == "object":
		o := map[string]any{}
		for _, q := range p.Fields {
			if !q.Optional {
				o[q.Name] = f.good(domain, q, depth+1)
			}
		}
		return o
	}
	return samples{f.types, nil}.of(domain, p, depth)
}

// edges are values from the edges of a type.
func (f *fuzzer) edges(domain string, p field, depth int) (all []any) {
	if p.Ref != "" {
		ref := full(domain, p.Ref)
		if depth > 3 {
			return []any{nil}
		}
		d, _, _ := strings.Cut(ref, ".")
		q := f.types[ref]
		q.Name = p.Name
		all = f.edges(d, q, depth+1)
		if v := f.given[ref]; v != nil {
			all = append(all, v)
		}
		return all
	}
	switch p.Type {
	case "integer":
		return []any{-1, 0, 1, 2, 100_000, math.MaxInt32, math.MinInt32, math.MaxInt32 + 1}
	case "number":
		return []any{-1, 0, 5e-324, 1e-10, 0.5, 1, 1000, 1e9, 1e18, math.MaxFloat64, -math.MaxFloat64}
	case "boolean":
		return []any{true, false}
	case "string", "binary":
		for _, e := range p.Enum {
			all = append(all, e)
		}
		if v := f.given[p.Name]; v != nil {
			all = append(all, v)
		}
		return append(all, "", "x", "\x00", "-1", "1e999", longText, "*", "é\ufffd", "AAAA",
			"javascript:1", "data:,", "blob:null/1", `{"a":[]}`)
	case "array":
		all = []any{[]any{}}
		if p.Items == nil {
			return all
		}
		for _, e := range f.edges(domain, *p.Items, depth+1) {
			all = append(all, []any{e})
		}
		if v := f.good(domain, *p.Items, depth+1); v != nil {
			all = append(all, slices.Repeat([]any{v}, 2), slices.Repeat([]any{v}, 1000))
		}
		return all
	case "object":
		for _, q := range p.Fields {
			for _, e := range f.edges(domain, q, depth+1) {
				o, ok := f.good(domain, p, depth).(map[string]any)
				if ok {
					o[q.Name] = e
					all = append(all, o)
				}
			}
		}
		return append(all, map[string]any{}, map[string]any{"x": "x"})
	}
	return []any{nil, "x", 1, map[string]any{}}
}
