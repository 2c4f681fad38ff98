//go:build linux

package cmd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A web page of an allowed origin is a host like any other: its browser lets
// it ask, and read what it needs. One of another origin is none.
func TestMCPFromAWebPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	os.WriteFile(w.dir+"/token", []byte("sesame-open-the-door\n"), 0o600)
	said := make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/said", func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		said <- string(b)
	})
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, `<script type="module">
			const ask = async (body, more) => {
				const a = await fetch(%q, {method: body ? 'POST' : 'DELETE', body,
					headers: {'Content-Type': 'application/json',
					Accept: 'application/json, text/event-stream', Authorization: 'Bearer sesame-open-the-door',
						...more}})
				return [a.status, a.headers.get('Mcp-Session-Id'), await a.text()]
			}
			let said
			try {
				const [, session] = await ask(%q, {})
				const more = {'Mcp-Session-Id': session, 'MCP-Protocol-Version': '2025-11-25'}
				const [, , list] = await ask('{"jsonrpc":"2.0","id":1,"method":"tools/list"}', more)
				const [status] = await ask(undefined, more)
				said = list + status
			} catch (e) { said = String(e) }
			await fetch('/said', {method: 'POST', body: said})
		</script>`, r.URL.Query().Get("at"), greeting("2025-11-25"))
	})
	page := func() *httptest.Server {
		s := httptest.NewServer(mux)
		t.Cleanup(s.Close)
		return s
	}
	allowed, other := page(), page()
	for _, token := range []string{"", w.dir + "/token"} {
		args := []string{"--no-child", "--allow-origin", allowed.URL}
		if token != "" {
			args = append(args, "--token-file", token)
		}
		url, stop := w.serveMCP(nil, args...)
		for site, want := range map[string]string{allowed.URL: `"coordinator_status"`,
			other.URL: "TypeError: Failed to fetch"} {
			b := w.cmd("blaunch", "--wait", "--no-input", "--browser", "chromium", "--url", site+"/?at="+url)
			if err := b.Start(); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-said:
				if !strings.Contains(got, want) || strings.HasPrefix(want, `"`) && !strings.HasSuffix(got, "204") {
					t.Errorf("%s: %s", site, got)
				}
			case <-time.After(patience):
				t.Errorf("%s says nothing", site)
			}
			b.Process.Signal(syscall.SIGTERM)
			b.Wait()
		}
		stop()
	}
	w.clean()
}

// Who asks without the token is told what is missing.
func TestMCPToken(t *testing.T) {
	w := newWorld(t)
	os.WriteFile(w.dir+"/token", []byte("sesame-open-the-door\n"), 0o600)
	url, stop := w.serveMCP(nil, "--no-child", "--token-file", w.dir+"/token")
	if code, h, b := post(t, url, nil, greeting("2025-11-25")); code != 401 || h.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("%d %v %s", code, h, b)
	}
	stop()
	w.clean()
}

// What was asked is answered to the last byte, to who reads slowly too. An
// answer that nobody reads is a failure.
func TestFlush(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const size = 24 << 20
	big := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"big","arguments":{"n":%d}}}`,
		size)
	slowly := func(r io.Reader) (all []byte) { // for longer than nobody may read
		part := make([]byte, 64<<10)
		for {
			n, err := io.ReadFull(r, part)
			all = append(all, part[:n]...)
			if err != nil {
				return all
			}
			time.Sleep(15 * time.Millisecond) // a slow reader is what is tested
		}
	}
	start := func(errs io.Writer) (*exec.Cmd, io.WriteCloser, io.Reader) {
		c := w.cmd("bmcp", "--mcp", "a="+fake())
		c.Stderr = errs
		c.Env = slices.Concat(w.env, []string{"XDG_CACHE_HOME=" + w.dir + "/cache", "BTOOLS_BROWSER=" + bin +
			"/fakebrowser"})
		in, _ := c.StdinPipe()
		out, _ := c.StdoutPipe()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		io.WriteString(in, greeting("2025-11-25")+"\n"+big+"\n")
		return c, in, out
	}
	c, in, out := start(nil)
	in.Close()
	b := slowly(out)
	if err := c.Wait(); err != nil || len(b) < size || b[len(b)-1] != '\n' {
		t.Errorf("%v, %d bytes", err, len(b))
	}
	for line := range strings.Lines(string(b)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%.100s", line)
		}
	}

	var errs syncBuffer
	c, in, out = start(&errs)
	lines := bufio.NewReader(out)
	lines.ReadString('\n')
	lines.ReadString(':') // the answer has begun, and nobody reads on
	in.Close()
	if ps, err := c.Process.Wait(); err != nil || ps.ExitCode() != 1 {
		t.Errorf("%v, %v", err, ps)
	}
	c.Wait()
	if !strings.Contains(errs.String(), "cannot write the last messages to the host: it is not read") {
		t.Errorf(`got %s, want "cannot write the last messages to the host: it is not read"`, errs.String())
	}

	// By HTTP, when all ends.
	url, stop := w.serveMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "kid="+fake())
	_, h, _ := post(t, url, nil, greeting("2025-11-25"))
	r, _ := http.NewRequest("POST", url, strings.NewReader(big))
	r.Header.Set("Mcp-Session-Id", h.Get("Mcp-Session-Id"))
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1<<20)
	io.ReadFull(a.Body, first)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	if n := len(slowly(a.Body)); n < size-len(first) {
		t.Errorf("%d bytes", n)
	}
	<-stopped
	w.clean()
}

// A host that has gone, or that ended its messages and can't answer, is not
// waited for.
func TestMCPHostThatHasEnded(t *testing.T) {
	w := newWorld(t)
	ends := func(m *mcp) {
		t.Helper()
		began := time.Now()
		m.wait()
		if took := time.Since(began); took > 25*time.Second { // it would wait 30 s for the host
			t.Errorf("the end takes %v", took)
		}
		w.clean()
	}
	// It is killed in mid-call: both its pipes are closed.
	c := w.cmd("bmcp", "--mcp", "a="+fake())
	c.Env = slices.Concat(w.env, []string{"XDG_CACHE_HOME=" + w.dir + "/cache", "BTOOLS_BROWSER=" + bin +
		"/fakebrowser"})
	in, _ := c.StdinPipe()
	out, _ := c.StdoutPipe()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	io.WriteString(in, greeting("2025-11-25")+"\n"+
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":60000}}}`+"\n")
	bufio.NewReader(out).ReadString('\n')
	in.Close()
	out.Close()
	ends(&mcp{t: t, w: w, cmd: c})

	// It has a question open, and is asked another one later.
	m := w.mcp(nil, "--mcp", "kid="+fake())
	id := m.startTool("ask", `{"method":"elicitation/create","params":{"message":"name?"}}`)
	if r := m.next(); r.Method != "elicitation/create" {
		t.Errorf(`got %v, want the method "elicitation/create"`, r.line)
	}
	m.in.Close()
	if r := m.answer(id); !strings.Contains(r.line, "can't answer") {
		t.Errorf("%s\nlacks %q", r.line, "can't answer")
	}
	ends(m)
}

// What the headers of a call say is what is called, however its body is read.
func TestMCPHeadersAreOfTheCall(t *testing.T) {
	w := newWorld(t)
	url, stop := w.serveMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "kid="+fake())
	for names, want := range map[string]int{
		`"name":"echo"`: 200, `"name":"env"`: 400, `"name":"env","Name":"echo"`: 400, `"Name":"echo","name":"env"`: 400,
		`"name":"echo","Name":"env"`: 400, `"Name":"echo"`: 400, `"name":"env","name":"echo"`: 200,
		`"n\u0061me":"echo"`: 200,
	} {
		code, _, b := post(t, url,
			map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo"},
			fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%s,"arguments":{},"_meta":%s}}`, names,
				stateless))
		if code != want {
			t.Errorf("%s: %d %s", names, code, b)
		}
	}
	stop()
	w.clean()
}

// Hosts of 2025-03-26 may send several messages as one array.
func TestMCPBatches(t *testing.T) {
	w := newWorld(t)
	m := w.startMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "kid="+fake())
	const pings = `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`
	refused := func() {
		t.Helper()
		m.send(pings)
		if r := m.next(); r.Error == nil || r.Error.Code != -32600 || !strings.Contains(r.line, "2025-03-26") {
			t.Errorf(`got %v, want the error -32600, "2025-03-26"`, r.line)
		}
	}
	refused()
	m.send(greeting("2025-03-26"))
	if r := m.next(); !strings.Contains(r.line, `"protocolVersion":"2025-03-26"`) {
		t.Errorf("%s\nlacks %q", r.line, `"protocolVersion":"2025-03-26"`)
	}
	array := func(batch string) (all []rpc) {
		t.Helper()
		m.send(batch)
		line := <-m.lines
		if err := json.Unmarshal([]byte(line), &all); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		return all
	}
	const call = `{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":{"ms":100}}}`
	batch := `[{"jsonrpc":"2.0","method":"notifications/initialized"},` + fmt.Sprintf(call, "a", "sleep") + `,` +
		fmt.Sprintf(call, "b", "echo") + `,{"id":"c","nothing":1},7,` + greeting("2025-03-26") + `]`
	found := map[string]bool{} // whether it is an error
	for _, r := range array(batch) {
		found[string(r.ID)] = r.Error != nil
	}
	if want := map[string]bool{`"a"`: false, `"b"`: false, `"c"`: true, `null`: true,
		`0`: true}; fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", found, want)
	}
	// What is not for an answer has none; one of two with one ID is refused.
	m.send(`[{"jsonrpc":"2.0","method":"notifications/nonesuch"}]`)
	if all := array(`[` + fmt.Sprintf(call, "a", "sleep") + `,` + fmt.Sprintf(call, "a", "sleep") +
		`]`); len(all) != 2 ||
		(all[0].Error == nil) == (all[1].Error == nil) {
		t.Errorf("%v", all)
	}
	m.send(`[]`)
	if r := m.next(); r.Error == nil || r.Error.Code != -32600 {
		t.Errorf("got %v, want the error -32600", r.line)
	}
	m.end()
	m = w.startMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--no-child")
	m.greet("{}")
	refused()
	m.end()

	url, stop := w.serveMCP([]string{"BTOOLS_BROWSER=" + bin + "/fakebrowser"}, "--mcp", "kid="+fake())
	if code, _, b := post(t, url, nil, pings); code != 400 {
		t.Errorf("%d %s", code, b)
	}
	_, h, _ := post(t, url, nil, greeting("2025-03-26"))
	session := map[string]string{"Mcp-Session-Id": h.Get("Mcp-Session-Id")}
	code, _, b := post(t, url, session,
		`[`+fmt.Sprintf(call, "a", "sleep")+`,`+fmt.Sprintf(call, "b", "echo")+
			`,{"jsonrpc":"2.0","method":"notifications/initialized"}]`)
	if code != 200 || strings.Count(b, `"result"`) != 2 || strings.Index(b, `"id":"a"`) < strings.Index(b, `"id":"b"`) {
		t.Errorf("%d %s", code, b)
	}
	if code, _, b := post(t, url, session, `[{"jsonrpc":"2.0","method":"notifications/initialized"}]`); code != 202 ||
		b != "" {
		t.Errorf("%d %s", code, b)
	}
	for _, bad := range []string{`[7]`, `[]`, `[` + fmt.Sprintf(call, "a", "sleep") + `,` +
		fmt.Sprintf(call, "a", "sleep") + `]`} {
		if code, _, b := post(t, url, session, bad); code != 400 {
			t.Errorf("%s: %d %s", bad, code, b)
		}
	}
	stop()
	w.clean()
}
