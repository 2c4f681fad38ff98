//go:build linux

package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/virtual/chrometest"
)

// asking is bproxy ask, which runs.
type asking struct {
	t     *testing.T
	out   cmdtest.SyncBuffer
	errs  cmdtest.SyncBuffer
	ended chan int // gets the exit code
}

// ask starts bproxy ask.
func ask(w *cmdtest.World, args ...string) *asking {
	w.T.Helper()
	a := &asking{t: w.T, ended: make(chan int, 1)}
	cmd := w.Cmd("bproxy", append([]string{"ask", "--no-open"}, args...)...)
	cmd.Stdout, cmd.Stderr = &a.out, &a.errs
	if err := cmd.Start(); err != nil {
		w.T.Fatal(err)
	}
	go func() {
		cmd.Wait()
		a.ended <- cmd.ProcessState.ExitCode()
	}()
	w.T.Cleanup(func() { cmd.Process.Kill() })
	return a
}

// exits waits until it has ended.
func (a *asking) exits(code int, out string) {
	a.t.Helper()
	var got int
	select {
	case got = <-a.ended:
	case <-time.After(cmdtest.Patience):
		a.t.Fatalf("it does not exit, and says %s%s", a.out.String(), a.errs.String())
	}
	if got != code || !strings.Contains(a.out.String()+a.errs.String(), out) {
		a.t.Errorf("it exits with %d and says %s%s, not %d and %s", got, a.out.String(), a.errs.String(), code, out)
	}
}

// A person is asked from a shell, answers on the page, and gives back by themselves or on a condition.
func TestAsk(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(`<title>Shop</title><button id="in" onclick="document.body.append('Welcome')">Log in</button>`))
	}))
	t.Cleanup(site.Close)
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	p := w.Proxy("share", "--browser", "chromium")
	agent := openSession(t, p, "shop", site.URL)
	agent.until("the page is there", `document.querySelector("#in")`)
	grid := openTab(t, viewer, strings.TrimSpace(w.Run("bproxy", "view", "--no-open").Out), 360)
	told := filepath.Join(w.Dir, "told")
	a := ask(w, "shop", "Log in to <b>shop</b>", "--until", "text=Welcome", "--notify",
		`printf '%s %s' "$BTOOLS_ASK" "$BTOOLS_ASK_URL" >`+told)
	grid.until("the grid says so", `document.title.startsWith("(1) needs you") &&
		document.querySelector(".tile .state").textContent === "needs you"`)
	x := openPerson(t, w, viewer, "shop", agent)
	x.until("the page says what is asked, below where it is", `document.querySelector(".ask .words")?.textContent ===
		"bproxy ask says: Log in to <b>shop</b>" && document.querySelector(".ask .origin").textContent ===
			"`+site.URL+`" && document.title.startsWith("(1) needs you")`)
	checkAccessible(t, x.tab)
	x.take()
	x.clickOn("#in", "left", 1)
	x.until("it looks done", `document.querySelector(".ask").textContent.includes("It looks done")`)
	x.press("Not yet")
	x.until("the person goes on", `!document.querySelector(".ask").textContent.includes("It looks done")`)
	x.eval(`document.querySelector(".ask input").value = "as Anna"`)
	x.press("Done, give back")
	a.exits(0, `"ask":{"outcome":"done","note":"as Anna","url":"`+site.URL+`/"}`)
	x.until("nothing is asked any more", `!document.querySelector(".ask") && !document.title.includes("needs you")`)
	if got, _ := os.ReadFile(told); !strings.HasPrefix(string(got), "Log in to <b>shop</b> http://127.0.0.1:") ||
		!strings.HasSuffix(string(got), "/#/shop") {
		t.Errorf("--notify got %q", got)
	}
	a = ask(w, "shop", "again", "--until", "selector=#in")
	x.take()
	a.exits(0, `"outcome":"done"`) // by itself
	a = ask(w, "shop", "once more")
	x.until("it is asked", `document.querySelector(".ask .words")?.textContent.endsWith("once more")`)
	x.press("Decline")
	a.exits(1, "the person declined")
	if got := x.eval("JSON.stringify(violations)"); got != "[]" {
		t.Errorf("the page breaks its own policy: %v", got)
	}
}

// Bad input, and the end of what is asked in.
func TestAskRefuses(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("bproxy", "ask", "shop").Exits(t, 64, "name the session and what to do")
	w.Run("bproxy", "ask", "shop", "").Exits(t, 64, "what to do is a text")
	w.Run("bproxy", "ask", "shop", "log in", "--until", "login").Exits(t, 64, "url=GLOB")
	w.Run("bproxy", "ask", "shop", "log in").Exits(t, 69, `no program has a session "shop"`)
	p := w.Proxy("share")
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	w.Run("bproxy", "session", "new", "shop").Exits(t, 0, "")
	w.Run("bproxy", "ask", "shop", "log in", "--no-open", "--timeout", "10ms").Exits(t, 75,
		"nobody has answered within 10ms")
	a := ask(w, "shop", "log in")
	cmdtest.Until(t, "it is asked", func() bool {
		return strings.Contains(w.Run("bproxy", "session", "list").Out, `"ask":`)
	})
	r := w.Run("bproxy", "ask", "shop", "and this", "--no-open", "--notify", "echo notified >&2")
	r.Exits(t, 1, "one ask at a time")
	if strings.Contains(r.Err, "notified") || strings.Contains(r.Err, "is asked at") {
		t.Errorf("a person is told of what is refused: %s", r.Err)
	}
	p.Stop()
	a.exits(1, "has ended")
}

// A person answers an ask in private: neither the agent's trace nor another view has a byte of it, and the password is
// cleared when they give back.
func TestAskInPrivate(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/frame" {
			w.Write([]byte(`<input type="password" autofocus style="position: fixed; inset: 0" oninput="top.postMessage(
				value, '*')">`))
			return
		}
		_, port, _ := strings.Cut(r.Host, ":")
		w.Write([]byte(`<!doctype html><title>Shop</title><style>
			input, iframe { position: fixed; width: 50%; height: 50%; top: 0; border: 0 } iframe { top: 50% }</style>
			<input id="pass" type="password" style="left: 0"><input id="user" style="left: 50%">
			<iframe src="/frame" style="left: 0"></iframe>
			<iframe src="http://localhost:` + port + `/frame" style="left: 50%"></iframe><script>
			let most = 0, framed = [];
			onmessage = ({source, data}) => { framed[source === frames[0] ? 0 : 1] = data };
			user.ondblclick = () => alert("wait");
			pass.oninput = () => {
				most = Math.max(most, pass.value.length);
				console.log(pass.value);
				fetch("/log-in", {method: "POST", body: pass.value});
			}</script>`))
	}))
	t.Cleanup(site.Close)
	w := cmdtest.New(t)
	t.Cleanup(func() { w.Run("bproxy", "view", "--stop").Exits(t, 0, "") })
	viewer, _ := chrometest.StartShellOnPort(t)
	trace := w.Dir + "/trace"
	p := w.Proxy("share", "--browser", "chromium", "--trace", trace)
	agent := openSession(t, p, "shop", site.URL)
	agent.call("Network.enable", nil, nil)
	agent.call("Runtime.enable", nil, nil)
	agent.until("the page is there", `document.readyState === "complete" && window.pass`)
	a := ask(w, "shop", "Log in")
	x := openPerson(t, w, viewer, "shop", agent)
	x.until("private is proposed", `document.querySelector(".ask") &&
		document.querySelector("button.main").textContent === "Take over in private"`)
	other := openPerson(t, w, viewer, "shop", agent)
	x.press("Take over in private")
	const isPrivate = `document.querySelector(".state").textContent.includes("in private")`
	x.until("the person is private", hasControl+"&&"+isPrivate)
	other.until("others are told", `document.querySelector(".why")?.textContent.includes("has control in private")`)
	if err := agent.try("Page.getLayoutMetrics", nil, nil); err == nil || !strings.Contains(err.Error(), "in private") {
		t.Errorf("the agent reads: %v", err)
	}
	box := func(part float64) float64 {
		return x.eval(fmt.Sprintf(`(() => { const b = document.querySelector(".surface canvas").getBoundingClientRect();
			return b.x + b.width * %f })()`, part)).(float64)
	}
	y := x.eval(`(() => { const b = document.querySelector(".surface canvas").getBoundingClientRect();
		return Math.max(b.y, 0) + 50 })()`).(float64)
	const secret = "correcthorsebatterystaple"
	for _, part := range []float64{0.25, 0.75} {
		x.click(box(part), y, "left", 1)
		for _, c := range secret {
			x.key(string(c), "Key"+strings.ToUpper(string(c)), int(c-'a'+'A'), 0)
		}
	}
	lower := x.eval(`(() => { const b = document.querySelector(".surface canvas").getBoundingClientRect();
		return b.y + b.height * .75 })()`).(float64)
	for _, part := range []float64{0.25, 0.75} { // frames, one of another site
		x.click(box(part), lower, "left", 1)
		for range 5 { // until the frame has the focus
			x.key("a", "KeyA", 'A', 0)
			time.Sleep(50 * time.Millisecond)
		}
	}
	x.until("passwords are cleared", `[...document.querySelectorAll(".box")].find((b) => b.textContent.includes(
		"clear typed passwords")).querySelector("input").checked`)
	x.click(box(0.75), y, "left", 2)
	x.until("the page has a dialog", `document.querySelector(".dialog")`)
	x.press("Done, give back")
	x.until("nothing is given back with the password", `document.querySelector(".error")?.textContent.includes(
		"passwords are not cleared") && `+isPrivate)
	x.press("OK")
	x.press("Done, give back")
	began := time.Now()
	a.exits(0, `"outcome":"done"`)
	t.Logf("the command exits after %v", time.Since(began))
	agent.until("passwords are cleared in frames, too", `framed.length === 2 && framed.join() === ","`)
	const lengths = "[most, pass.value.length, user.value.length, document.activeElement === document.body]"
	if has := fmt.Sprint(agent.eval(lengths)); has != fmt.Sprint([]any{len(secret), 0, len(secret), true}) {
		t.Errorf("the page has %v", has)
	}
	x.until("it is given back", `!document.querySelector(".ask") && !`+isPrivate)
	p.Stop()
	var got []byte
	files, _ := filepath.Glob(trace + "/*")
	for _, file := range files {
		b, _ := os.ReadFile(file)
		got = append(got, b...)
	}
	if strings.Contains(string(got), secret[:8]) || strings.Count(string(got), "Btools.private") != 1 {
		t.Errorf("the trace has the secret, or no mark")
	}
	if har := w.Run("bproxy", "har", trace).Out; strings.Contains(har, "log-in") || !strings.Contains(har,
		"a person was private since 2") {
		t.Errorf("the archive is %s", har)
	}
}
