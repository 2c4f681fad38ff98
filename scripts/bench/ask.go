//go:build linux

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/live/sources"
	"btools/lib/state"
	"btools/lib/websocket"
)

// login is a page with a password.
const login = `<!doctype html><title>Log in</title><body style="background: white"><input id="pass" type="password"
	style="position: fixed; inset: 0; width: 100%; height: 100%" oninput="window.typed = (window.typed ?? 0) +
		(event.isTrusted && value !== '')">`

// moments notes on the page of bproxy view when an ask is shown, and when control is given back.
const moments = `new MutationObserver(() => {
		const words = document.querySelector(".ask .words, .tile .words")?.textContent
		if (words && words !== window.words) window.shown = Date.now()
		window.words = words
	}).observe(document, { childList: true, subtree: true, characterData: true })
	window.press = (label) => {
		const button = [...document.querySelectorAll("button")].find((b) => b.textContent.trim() === label)
		if (!button || button.disabled) return false
		window.given = Date.now()
		button.click()
		return true
	}`

// asking is bproxy ask, which runs.
type asking struct {
	*exec.Cmd
	out   strings.Builder
	began time.Time
}

// ask starts bproxy ask.
func ask(session, words string, args ...string) *asking {
	a := &asking{Cmd: command(bin+"bproxy", append([]string{"ask", session, words, "--no-open", "--output", "json"},
		args...)...), began: time.Now()}
	a.Stdout = &a.out
	check(a.Start())
	return a
}

// done waits for its end, and returns when that was, in ms since 1970.
func (a *asking) done() float64 {
	if err := a.Wait(); err != nil {
		fail("bproxy ask: %w", err)
	}
	return now()
}

// now returns the time in ms since 1970, as pages have it.
func now() float64 { return float64(time.Now().UnixMicro()) / 1000 }

// person connects to a session as its person, as the page does.
func person(key string) *websocket.Conn {
	all := must(sources.All(ctx, state.Open(func(name string) string {
		return map[string]string{"BTOOLS_STATE": dir + "/state/state.json"}[name]
	}), nil))
	conn, _, err := must(sources.Find(all, key)).Attach(ctx, api.AttachRequest{Who: "bench", Wake: true})
	check(err)
	return conn
}

// says has a person send a command to a CDP session, and returns the result.
func says(p *websocket.Conn, session, method string, params any) json.RawMessage {
	message, _ := json.Marshal(map[string]any{"id": 1, "method": method, "params": params, "sessionId": session})
	check(p.Write(message))
	for {
		b := must(must(p.Next()).Bytes())
		switch {
		case jsonrpc.Get(b, "id") == nil:
		case jsonrpc.Get(b, "error") != nil:
			fail("%s: %s", method, b)
		default:
			return slices.Clone(jsonrpc.Get(b, "result"))
		}
	}
}

// asksOnPage measures from an ask to the page, and from the page back to who has asked.
func asksOnPage(b *bench) {
	v := b.viewing()
	v.site = b.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, login)
	})
	const sessions, asks = 5, 4 // six an hour
	var shown, listed, shared, private, typed, called series
	v.open("other", "/")
	grid := v.ours("")
	grid.evaluate(moments)
	since := func(p *page, name string, end float64) float64 {
		var at float64
		p.value(name, &at)
		return end - at
	}
	for n := range sessions {
		name := fmt.Sprint("ask-", n)
		agent := v.open(name, "/")
		ours := v.ours(name)
		ours.evaluate(moments)
		for k := range asks {
			args := map[bool][]string{true: {"--shared"}}[k == 0]
			words := fmt.Sprint("do ", n, k)
			grid.evaluate("window.shown = 0")
			ours.evaluate("window.shown = 0")
			a := ask(name, words, args...)
			began := float64(a.began.UnixMicro()) / 1000
			for p, into := range map[*page]*series{ours: &shown, grid: &listed} {
				p.until(fmt.Sprintf("window.shown && window.words.endsWith(%q)", words))
				into.add(-since(p, "shown", began))
			}
			how := map[bool]string{true: "Take over", false: "Take over in private"}[k == 0]
			ours.until(fmt.Sprintf("press(%q)", how))
			ours.until(`document.querySelector(".hand")`)
			if k > 1 {
				ours.call("Input.dispatchMouseEvent", map[string]any{"type": "mousePressed", "x": 500, "y": 500,
					"button": "left", "clickCount": 1})
				ours.call("Input.dispatchMouseEvent", map[string]any{"type": "mouseReleased", "x": 500, "y": 500,
					"button": "left", "clickCount": 1})
				ours.call("Input.insertText", map[string]any{"text": "secret"})
				time.Sleep(200 * time.Millisecond) // in private nobody else sees when it has come
			}
			ours.until(`press("Done, give back")`)
			end := a.done()
			[]*series{&shared, &private, &typed, &typed}[k].add(since(ours, "given", end))
			ours.until(`!document.querySelector(".ask")`)
			if k > 1 {
				agent.until(fmt.Sprintf(`window.typed === %d && pass.value === ""`, k-1))
			}
		}
		h := b.host([]string{bin + "bmcp", "--cdp", "http://" + v.at + "/session/" + name})
		var id struct {
			Result struct {
				StructuredContent struct {
					AskID string `json:"ask_id"`
				}
			}
		}
		check(json.Unmarshal(h.tool("browser_ask_human", `{"instructions":"from MCP"}`), &id))
		ours.until(`window.words?.endsWith("from MCP")`)
		ours.until(`press("Take over in private")`)
		ours.until(`document.querySelector(".hand")`)
		h.start("tools/call", fmt.Sprintf(`{"name":"browser_ask_human","arguments":{"ask_id":%q}}`,
			id.Result.StructuredContent.AskID))
		ours.until(`press("Done, give back")`)
		if got := h.answer(); !strings.Contains(string(got), `"outcome":"done"`) {
			fail("%s", got)
		}
		called.add(since(ours, "given", now()))
		h.stop()
		ours.close()
	}
	row("ask: until the page of the session shows it, p50, p95", "≤ 1.5 s", "%.2f, %.2f s", shown.at(50)/1000,
		shown.at(95)/1000)
	row("the same: the grid, p50, p95", "≤ 1.5 s", "%.2f, %.2f s", listed.at(50)/1000, listed.at(95)/1000)
	row("give back until bproxy ask exits, p50, at most: --shared", "≤ 50 ms", "%.0f, %.0f ms", shared.at(50),
		shared.at(100))
	row("the same: in private", "≤ 50 ms", "%.0f, %.0f ms", private.at(50), private.at(100))
	row("the same: in private, with a password to clear", "≤ 50 ms", "%.0f, %.0f ms", typed.at(50), typed.at(100))
	row("give back until the MCP call returns, p50, at most", "≤ 100 ms", "%.0f, %.0f ms", called.at(50),
		called.at(100))
	load, _, _ := strings.Cut(string(must(os.ReadFile("/proc/loadavg"))), " ")
	row("load of the machine in the last minute", "", "%s", load)
}

// manyAsks has persons answer 50 asks in 50 sessions at once.
func manyAsks(b *bench) {
	const n = 50
	_, at := b.isolating()
	b.atEnd(func() { try(bin+"bproxy", "view", "--stop") })
	asks := make([]*asking, n)
	var all together
	for i := range asks {
		openPage(sessionURL(at, fmt.Sprint("many-", i))).CloseNow()
	}
	began := now()
	for i := range asks {
		asks[i] = ask(fmt.Sprint("many-", i), fmt.Sprint("do ", i))
	}
	within(time.Minute, func() bool {
		return strings.Count(try(bin+"bproxy", "session", "list", "--port", portOf(at), "--output", "json"),
			`"ask":`) == n
	})
	open, right := now(), 0
	took := make(series, n)
	for i := range asks {
		all.Go(func() {
			p := person(fmt.Sprint("many-", i))
			defer p.Close(websocket.Normal, "")
			says(p, "", "Btools.take", map[string]any{"holder": "a-person-of-bench"})
			given := now()
			says(p, "", "Btools.give", map[string]any{"note": fmt.Sprint("did ", i)})
			took[i] = asks[i].done() - given
		})
	}
	all.Wait()
	end := now()
	for i, a := range asks {
		if strings.Contains(a.out.String(), fmt.Sprintf(`"note":"did %d"`, i)) {
			right++
		}
	}
	row("50 asks at once in 50 sessions: answered, to their callers", "50 of 50", "%d of %d", right, n)
	row("the same: until all are open, from there until all are answered", "", "%.2f, %.2f s", (open-began)/1000,
		(end-open)/1000)
	row("the same: give back until the command exits, p50, at most", "", "%.0f, %.0f ms", took.at(50), took.at(100))
}

// typedSecrets has a person type secrets in private, and looks for them in what the client and the programs have got.
func typedSecrets(b *bench) {
	const n = 20
	site := b.serve(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<input id="pass"><script>pass.oninput = () => {
			const v = pass.value; document.title = v; console.log(v); fetch("/" + v, { method: "POST", body: v })
		}</script>`)
	})
	traces := dir + "/secrets"
	_, at := b.bproxy("--isolate", "--trace", traces)
	var secrets []string
	for i := range n {
		name := fmt.Sprint("secret-", i)
		c := openPage(sessionURL(at, name))
		for _, method := range []string{"Page", "Network", "Runtime", "DOM", "Log"} {
			c.call(method+".enable", nil)
		}
		c.call("Page.navigate", map[string]string{"url": site})
		c.until("window.pass")
		p := person(name)
		says(p, "", "Btools.take", map[string]any{"holder": "a-person-of-bench", "private": true})
		var targets struct {
			TargetInfos []struct{ TargetID, URL string }
		}
		check(json.Unmarshal(says(p, "", "Target.getTargets", nil), &targets))
		var session struct{ SessionID string }
		for _, t := range targets.TargetInfos {
			if strings.HasPrefix(t.URL, site) {
				check(json.Unmarshal(says(p, "", "Target.attachToTarget", map[string]any{"targetId": t.TargetID,
					"flatten": true}), &session))
			}
		}
		secret := (rand.Text() + rand.Text())[:32]
		evaluate := func(expression string) string {
			return string(says(p, session.SessionID, "Runtime.evaluate", map[string]any{"expression": expression}))
		}
		evaluate("pass.focus()")
		says(p, session.SessionID, "Input.insertText", map[string]any{"text": secret})
		if got := evaluate("document.title"); !strings.Contains(got, secret) {
			fail("typed is %s", got)
		}
		evaluate(`document.title = pass.value = ""`)
		says(p, "", "Btools.give", nil)
		p.Close(websocket.Normal, "")
		c.evaluate("'afterwards'")
		c.CloseNow()
		secrets = append(secrets, secret)
	}
	b.end() // the archives are written then
	size, found := 0, 0
	for _, path := range must(filepath.Glob(traces + "/*")) {
		text := must(os.ReadFile(path))
		size += len(text)
		for _, s := range secrets {
			for i := range len(s) - 7 {
				found += 8 * bytes.Count(text, []byte(s[i:i+8]))
			}
		}
	}
	row(fmt.Sprintf("%d secrets typed in private: bytes of them in traces, archives", n), "0", "%d of %d", found, size)
}

// apps are the capabilities of a host that shows MCP Apps.
const apps = `{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`

// viewApp measures the app of browser_view, and its pictures of a page that moves.
func viewApp(b *bench) {
	h := b.hostOf(apps, builtinMCP("--headless"))
	var page struct {
		Result struct{ Contents []struct{ Text string } }
	}
	check(json.Unmarshal(h.call("resources/read", `{"uri":"ui://bmcp/view"}`), &page))
	s := b.serve(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, pressed)
	})
	refresh := func(path string) series {
		h.tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, s+path))
		var took series
		for range 100 {
			took.add(ms(func() {
				if got := h.tool("browser_view_frame", "{}"); !bytes.Contains(got, []byte("image/jpeg")) {
					fail("no picture: %.300s", got)
				}
			}))
		}
		return took
	}
	still, moves := refresh("/"), refresh("/?moves")
	row("MCP App of browser_view", "≤ 20 kB", "%.1f kB", float64(len(page.Result.Contents[0].Text))/1000)
	row("the same: a picture of a still page, p50, p95", "≤ 100 ms", "%.0f, %.0f ms", still.at(50), still.at(95))
	row("the same: of a page of 60 frames a second, p50, p95", "≤ 100 ms", "%.0f, %.0f ms", moves.at(50),
		moves.at(95))
}
