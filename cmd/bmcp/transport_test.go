//go:build linux

package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// A web page of an allowed origin is a host like any other: its browser lets
// it ask, and read what it needs. One of another origin is none.
func TestMCPFromAWebPage(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	os.WriteFile(w.Dir+"/token", []byte("sesame-open-the-door\n"), 0o600)
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
		</script>`, r.URL.Query().Get("at"), cmdtest.FirstRequest("2025-11-25"))
	})
	allowed, other := cmdtest.Serve(t, mux.ServeHTTP), cmdtest.Serve(t, mux.ServeHTTP)
	chromium := cmdtest.Parse(t, w.Run("blaunch", "--browser", "chromium"))
	for _, token := range []string{"", w.Dir + "/token"} {
		args := []string{"--no-child", "--allow-origin", allowed}
		if token != "" {
			args = append(args, "--token-file", token)
		}
		url, stop := w.ServeMCP(nil, args...)
		for site, want := range map[string]string{allowed: `"coordinator_status"`,
			other: "TypeError: Failed to fetch"} {
			cmdtest.Get(t, "PUT", chromium.Instance.HTTPURL+"/json/new?"+site+"/?at="+url)
			select {
			case got := <-said:
				if !strings.Contains(got, want) || strings.HasPrefix(want, `"`) && !strings.HasSuffix(got, "204") {
					t.Errorf("%s: %s", site, got)
				}
			case <-time.After(cmdtest.Patience):
				t.Errorf("%s says nothing", site)
			}
		}
		stop()
	}
	w.Run("blaunch", "stop", "--all").Exits(t, 0, "")
	w.Clean()
}

// Who asks without the token is told what is missing.
func TestMCPToken(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	os.WriteFile(w.Dir+"/token", []byte("sesame-open-the-door\n"), 0o600)
	url, stop := w.ServeMCP(nil, "--no-child", "--token-file", w.Dir+"/token")
	if code, h, b := cmdtest.Post(t, url, nil, cmdtest.FirstRequest("2025-11-25")); code != 401 ||
		h.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("%d %v %s", code, h, b)
	}
	stop()
	url, stop = w.ServeMCP(nil, "--no-child")
	if code, b := cmdtest.Get(t, "GET", strings.TrimSuffix(url, "/mcp")+"/health"); code != 200 ||
		!strings.Contains(b, `"status":"ok"`) {
		t.Errorf("its health: %d %s", code, b)
	}
	stop()
	w.Clean()
}

// What was asked is answered to the last byte, to who reads slowly too. An
// answer that nobody reads is a failure.
func TestFlush(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const size = 8 << 20
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
			time.Sleep(45 * time.Millisecond) // a slow reader is what is tested
		}
	}
	start := func(errs io.Writer) (*exec.Cmd, io.WriteCloser, io.Reader) {
		c := w.Cmd("bmcp", "--mcp", "a="+cmdtest.FakeChild())
		c.Stderr = errs
		c.Env = slices.Concat(w.Env, []string{"XDG_CACHE_HOME=" + w.Dir + "/cache", "BTOOLS_BROWSER=" + cmdtest.Bin +
			"/fakebrowser"})
		in, _ := c.StdinPipe()
		out := cmdtest.StartRead(t, c)
		io.WriteString(in, cmdtest.FirstRequest("2025-11-25")+"\n"+big+"\n")
		return c, in, out
	}
	var both sync.WaitGroup
	slow, in, out := start(nil)
	in.Close()
	both.Go(func() {
		b := slowly(out)
		if err := slow.Wait(); err != nil || len(b) < size || b[len(b)-1] != '\n' {
			t.Errorf("%v, %d bytes", err, len(b))
		}
		for line := range strings.Lines(string(b)) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%.100s", line)
			}
		}
	})

	var errs cmdtest.SyncBuffer
	c, in, unread := start(&errs)
	lines := bufio.NewReader(unread)
	lines.ReadString('\n')
	lines.ReadString(':') // the answer has begun, and nobody reads on
	in.Close()
	both.Go(func() {
		if ps, err := c.Process.Wait(); err != nil || ps.ExitCode() != 1 {
			t.Errorf("%v, %v", err, ps)
		}
		c.Wait()
		if !strings.Contains(errs.String(), "cannot write the last messages to the host: it is not read") {
			t.Errorf(`got %s, want "cannot write the last messages to the host: it is not read"`, errs.String())
		}
	})

	// By HTTP, when all ends.
	url, stop := w.ServeMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--mcp",
		"kid="+cmdtest.FakeChild())
	_, h, _ := cmdtest.Post(t, url, nil, cmdtest.FirstRequest("2025-11-25"))
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
	both.Wait()
	w.Clean()
}

// A host that has gone, or that ended its messages and can't answer, is not
// waited for.
func TestMCPHostThatHasEnded(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	ends := func(m *cmdtest.MCP) {
		t.Helper()
		began := time.Now()
		m.Wait()
		if took := time.Since(began); took > 25*time.Second { // it would wait 30 s for the host
			t.Errorf("the end takes %v", took)
		}
		w.Clean()
	}
	// It is killed in mid-call: both its pipes are closed.
	c := w.Cmd("bmcp", "--mcp", "a="+cmdtest.FakeChild())
	c.Env = slices.Concat(w.Env, []string{"XDG_CACHE_HOME=" + w.Dir + "/cache", "BTOOLS_BROWSER=" + cmdtest.Bin +
		"/fakebrowser"})
	in, _ := c.StdinPipe()
	out := cmdtest.StartRead(t, c)
	io.WriteString(in, cmdtest.FirstRequest("2025-11-25")+"\n"+
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":60000}}}`+"\n")
	bufio.NewReader(out).ReadString('\n')
	in.Close()
	out.Close()
	ends(&cmdtest.MCP{T: t, W: w, Cmd: c})

	// It has a question open, and is asked another one later.
	m := w.MCP(nil, "--mcp", "kid="+cmdtest.FakeChild())
	id := m.StartTool("ask", `{"method":"elicitation/create","params":{"message":"name?"}}`)
	if r := m.Next(); r.Method != "elicitation/create" {
		t.Errorf(`got %v, want the method "elicitation/create"`, r.Line)
	}
	m.In.Close()
	if r := m.Answer(id); !strings.Contains(r.Line, "can't answer") {
		t.Errorf("%s\nlacks %q", r.Line, "can't answer")
	}
	ends(m)
}

// Hosts of 2025-03-26 may send several messages as one array.
func TestMCPBatches(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.StartMCP([]string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}, "--mcp", "kid="+cmdtest.FakeChild())
	m.Send(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`)
	if r := m.Next(); r.Error == nil || r.Error.Code != -32600 || !strings.Contains(r.Line, "2025-03-26") {
		t.Errorf(`got %v, want the error -32600, "2025-03-26"`, r.Line)
	}
	m.Send(cmdtest.FirstRequest("2025-03-26"))
	if r := m.Next(); !strings.Contains(r.Line, `"protocolVersion":"2025-03-26"`) {
		t.Errorf("%s\nlacks %q", r.Line, `"protocolVersion":"2025-03-26"`)
	}
	const call = `{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":{"ms":100}}}`
	m.Send(`[{"jsonrpc":"2.0","method":"notifications/initialized"},` + fmt.Sprintf(call, "a", "sleep") + `,` +
		fmt.Sprintf(call, "b", "echo") + `,{"id":"c","nothing":1},7,` + cmdtest.FirstRequest("2025-03-26") + `]`)
	var all []cmdtest.RPC
	if line := <-m.Lines; json.Unmarshal([]byte(line), &all) != nil {
		t.Fatalf("no array: %s", line)
	}
	found := map[string]bool{} // whether it is an error
	for _, r := range all {
		found[string(r.ID)] = r.Error != nil
	}
	if want := map[string]bool{`"a"`: false, `"b"`: false, `"c"`: true, `null`: true,
		`0`: true}; fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", found, want)
	}
	m.End()
	w.Clean()
}
