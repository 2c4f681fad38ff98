//go:build linux

package cmd_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A pool that belongs to one bmcp is never used by another one, nor by bpool's
// commands.
func TestMCPPrivatePool(t *testing.T) {
	w := newWorld(t)
	one := w.mcp([]string{"PW_MCP_PROXY_BROWSER=" + bin + "/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=1"}, "--mcp",
		"kid="+fake())
	if r := one.tool("echo", "{}").tool(t); r.IsError || r.Meta["btools/pool"] != "A" {
		t.Fatalf("got %+v, want a result of pool A", r)
	}
	two := w.mcp(nil, "--mcp", "kid="+fake())
	if r := two.tool("echo", "{}").tool(t); r.IsError || r.Meta["btools/pool"] != nil {
		t.Errorf("got %+v, want a result of no pool", r)
	}
	sock := w.state().Pools[0].Control
	none := w.run("bpool", "lease", "--timeout", "0")
	none.wants(t, 69, "no bpool service runs")
	none.wants(t, 69, "belongs to the program that runs it; use --socket "+sock)
	w.run("bmcp", "--pool").wants(t, 69, "no bpool service runs")
	w.run("bpool", "status", "--socket", sock).wants(t, 0, "")
	one.end()
	if r := two.tool("echo", "{}").tool(t); r.IsError {
		t.Errorf("after the other's end: %+v", r)
	}
	two.end()
	w.clean()
}

// A bpool service that runs is used by who asks for it; of several, the one
// that is named.
func TestMCPPoolService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("bmcp", "--pool").wants(t, 69, "no bpool service runs")
	p := w.pool("_A_INSTANCES=1")
	on := func(m *mcp) any {
		t.Helper()
		return m.tool("echo", "{}").tool(t).Meta["btools/pool"]
	}
	own := w.mcp(nil, "--mcp", "kid="+fake())
	if pool := on(own); pool != nil {
		t.Errorf("it is on pool %v without --pool", pool)
	}
	if !strings.Contains(own.errs.String(), "--pool uses the bpool service that runs") {
		t.Errorf("it says %s", own.errs.String())
	}
	own.end()
	m := w.mcp(nil, "--pool", "--mcp", "kid="+fake())
	if pool := on(m); pool != "A" {
		t.Errorf("it is on pool %v", pool)
	}
	// It is gone for a while, and comes back elsewhere.
	p.stop()
	if r := m.tool("echo", "{}").tool(t); !r.IsError ||
		!strings.Contains(r.Content[0].Text, "start one with bpool serve") {
		t.Errorf(`got %+v, want an error with "start one with bpool serve"`, r)
	}
	other := func(name, sock string) *pool {
		c := w.cmd("bpool", "serve", "--socket", sock, "--drain-timeout", "0s")
		c.Env = append(c.Env, "PW_MCP_PROXY_BROWSER="+bin+"/fakebrowser", "PW_MCP_PROXY__"+name+"_INSTANCES=1")
		p := &pool{t: t, w: w, cmd: c}
		p.start()
		return p
	}
	other("B", w.dir+"/b.sock")
	if pool := on(m); pool != "B" {
		t.Errorf("it is on pool %v", pool)
	}
	m.end()
	other("C", w.dir+"/c.sock")
	for _, program := range [][]string{{"bmcp", "--pool"}, {"bpool", "lease"}} {
		w.run(program[0], program[1:]...).wants(t, 64, "several bpool services run, name one by --socket: "+w.dir+"/")
	}
	m = w.mcp(nil, "--socket", w.dir+"/c.sock", "--mcp", "kid="+fake())
	if pool := on(m); pool != "C" {
		t.Errorf("it is on pool %v", pool)
	}
	m.end()
}

// A host keeps the instances that it has used, as long as it uses them; another
// host has another one. Where results come from more than one, they say which.
func TestMCPAffinity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=3", "_A_LEASE_TTL=10s", "_A__0_ALIAS=n0", "_A__1_ALIAS=n1", "_A__2_ALIAS=n2")
	host := func() *mcp { return w.mcp(nil, "--pool", "--mcp", "kid="+fake()) }
	one, two := host(), host()
	at := func(m *mcp, args string) (instance string, told bool) {
		t.Helper()
		r := m.tool("echo", args)
		return fmt.Sprint(r.tool(t).Meta["btools/instance"]),
			strings.Contains(r.text(t), "This result is from instance")
	}
	a, told := at(one, "{}")
	b, _ := at(two, "{}")
	if told {
		t.Error("it says where it stays")
	}
	for range 5 {
		x, told := at(one, "{}")
		if y, _ := at(two, "{}"); x != a || y != b || a == b || told {
			t.Errorf("%s on %s, %s on %s; says so: %v", a, x, b, y, told)
		}
		one.tool("browser_execute_bulk", `{"commands":[{"tool":"echo"}]}`)
	}
	if s := p.status().Summary; s.Leased != 2 {
		t.Errorf("got %+v, want 2 leased", s)
	}
	// It may name the one that it keeps, and another one, which it keeps too.
	if x, told := at(one, `{"browser_instance":"`+a+`"}`); x != a || told {
		t.Errorf("on %s; says so: %v", x, told)
	}
	third := strings.NewReplacer(a, "", b, "").Replace("012")
	c, told := at(one, `{"browser_instance":"n`+third+`"}`)
	if s := p.status().Summary; !told || c != third || s.Leased != 3 {
		t.Errorf("on %s, says so: %v; %+v", c, told, s)
	}
	if x, told := at(one, "{}"); x != a || !told {
		t.Errorf("on %s; says so: %v", x, told)
	}
	// Somebody ends its leases: it takes another one, and says so.
	w.run("bpool", "release", "--all").wants(t, 0, "")
	if r := one.tool("echo", "{}"); !strings.Contains(r.text(t),
		"this session's lease of instance "+a+" of pool A had been ended") || r.tool(t).Meta["btools/replaced"] == nil {
		t.Errorf("got %s, want that the lease had been ended, and btools/replaced", r.line)
	}
	if r := one.tool("echo", "{}"); r.tool(t).Meta["btools/replaced"] != nil {
		t.Error("it says so twice: " + r.line)
	}
	until(t, "idle instances are given back", func() bool { return p.status().Summary.Leased == 0 })
	at(one, "{}")
	one.end()
	until(t, "what a host has kept ends with it", func() bool { return p.status().Summary.Leased == 0 })
}

// All calls of a session that need an instance wait for one lease: they are
// one in the line, and have it, or the error, at once.
func TestOneLeaseForAllWhoWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=1", "_A_LEASE_TIMEOUT=5s", "_A_LEASE_TTL=1h")
	m := w.mcp(nil, "--pool", "--mcp", "kid="+fake())
	waits := func() {
		t.Helper()
		until(t, "one request waits", func() bool { return p.status().Summary.Waiting == 1 })
	}
	other := p.lease().Lease.ID
	var ids []string
	for range 5 {
		ids = append(ids, m.startTool("echo", "{}"))
	}
	waits()
	m.call("ping", "{}") // by now all of them are read
	if n := p.status().Summary.Waiting; n != 1 {
		t.Errorf("%d requests wait", n)
	}
	began := time.Now()
	for range ids {
		if r := m.next().tool(t); !r.IsError || !strings.Contains(r.Content[0].Text, "none came free within 5s") {
			t.Errorf(`got %+v, want an error with "none came free within 5s"`, r)
		}
	}
	if took := time.Since(began); took > 20*time.Second { // which takes 5 times LEASE_TIMEOUT
		t.Errorf("they waited one after the other: %v", took)
	}
	// Whoever goes leaves the others in the line; when all have gone, nobody is.
	one, two := m.startTool("echo", "{}"), m.startTool("echo", "{}")
	waits()
	m.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + one + `}}`)
	m.call("ping", "{}")
	w.run("bpool", "release", other).wants(t, 0, "")
	if r := m.answer(two).tool(t); r.IsError {
		t.Errorf("got %+v, want no error", r)
	}
	// That the host names what it has is no second request.
	for _, args := range []string{`{"browser_instance":"0"}`, "{}"} {
		if r := m.tool("echo", args).tool(t); r.IsError {
			t.Errorf("got %+v, want no error", r)
		}
	}
	w.run("bpool", "release", "--all").wants(t, 0, "")
	other = p.lease().Lease.ID
	one, two = m.startTool("echo", "{}"), m.startTool("echo", `{"browser_instance":"0"}`)
	until(t, "both wait", func() bool { return p.status().Summary.Waiting == 2 })
	w.run("bpool", "release", other).wants(t, 0, "")
	for range 2 { // who waits for any has it too
		if r := m.next().tool(t); r.IsError {
			t.Errorf("got %+v, want no error", r)
		}
	}
	w.run("bpool", "release", "--all").wants(t, 0, "")
	other = p.lease().Lease.ID
	one = m.startTool("echo", "{}")
	waits()
	m.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + one + `}}`)
	until(t, "nobody waits any more", func() bool { return p.status().Summary.Waiting == 0 })
	m.end()
}

// The first result after a browser was replaced says so, and why: to the text's
// reader, and in _meta.
func TestMCPBrowserWasReplaced(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, why string
		pool      []string
	}{
		{"one browser", "the browser had ended (the browser was killed by signal 9 (SIGKILL)) and was launched anew",
			nil},
		{"session", "the browser of A/0 is gone: the browser was killed by signal 9 (SIGKILL)",
			[]string{"_A_INSTANCES=1"}},
		{"lazy", "the browser of A/0 is gone: the browser was killed by signal 9 (SIGKILL)",
			[]string{"_A_INSTANCES=1", "START=lazy"}},
		{"call", "the browser of instance 0 of pool A was replaced", []string{"_A_INSTANCES=1", "AFFINITY=call"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := newWorld(t)
			args := []string{"--mcp", "kid=" + fake()}
			if x.pool != nil {
				w.pool(x.pool...)
				args = append(args, "--pool")
			}
			m := w.mcp(nil, args...)
			where := strings.Fields(m.tool("env", "{}").text(t))[0]
			told := func() bool {
				t.Helper()
				r := m.tool("echo", "{}")
				x := r.tool(t)
				if x.IsError {
					t.Fatalf("got %v, want no error", r.line)
				}
				return x.Meta["btools/replaced"] != nil
			}
			for range 2 {
				if get(t, "GET", where+"/json/version"); told() {
					t.Error("it is told though nothing has happened")
				}
			}
			until(t, "there is a browser", func() bool { return len(w.state().Instances) == 1 })
			pid := w.state().Instances[0].Browser.PID
			syscall.Kill(pid, syscall.SIGKILL)
			until(t, "it is gone", func() bool { return syscall.Kill(pid, 0) != nil })
			until(t, "there is another one", func() bool {
				if x.pool == nil { // a pool does it by itself
					get(t, "GET", where+"/json/version")
				}
				all := w.state().Instances
				return len(all) == 1 && all[0].Browser.PID != pid && all[0].Browser.PID != 0
			})
			r := m.tool("echo", "{}")
			if got := fmt.Sprint(r.tool(t).Meta["btools/replaced"]); !strings.HasPrefix(got, x.why) ||
				!strings.Contains(r.text(t), "Note: "+x.why) || !strings.Contains(r.text(t), "navigate again") {
				t.Errorf("got %s, want btools/replaced and a note: %s", r.line, x.why)
			}
			if told() {
				t.Error("it is told twice")
			}
			m.end()
		})
	}
	// A browser that no call has used is stopped, whether its child is connected or not.
	idle := newWorld(t)
	for _, x := range [][]string{nil, {"--shared"}} {
		m := idle.mcp(nil, append(x, "--idle", "1s", "--mcp", "kid="+fake())...)
		m.tool("echo", "{}")
		until(t, "the browser is stopped", func() bool { return len(idle.state().Instances) == 0 })
		const why = "the browser had ended (it had not been used for 1s) and was launched anew"
		if r := m.tool("echo", "{}"); r.tool(t).Meta["btools/replaced"] != why || !strings.Contains(r.text(t), why) {
			t.Errorf("got %s, want btools/replaced and a note: %s", r.line, why)
		}
		m.end()
	}
	// Who has asked for another browser knows.
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", "kid="+fake())
	m.tool("echo", "{}")
	m.tool("coordinator_restart_browser", "{}")
	if r := m.tool("echo", "{}"); r.tool(t).Meta["btools/replaced"] != nil {
		t.Errorf("got %s, want no btools/replaced: the host has asked for it", r.line)
	}
	m.end()
}

// The death of a browser that was launched only when a call needed it fails
// that call at once, too.
func TestMCPLazyBrowserDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, affinity := range []string{"call", "session"} {
		p := w.pool("_A_INSTANCES=1", "START=lazy", "AFFINITY="+affinity)
		m := w.mcp(nil, "--pool", "--mcp", "kid="+fake())
		m.tools()
		id := m.startTool("sleep", `{"ms":20000}`)
		until(t, "the call has its lease", func() bool { return p.status().Summary.Leased == 1 })
		var leased struct {
			Pools []struct {
				Instances []struct {
					URL string `json:"http_url"`
				}
			}
		}
		json.Unmarshal([]byte(w.run("bpool", "status").out), &leased)
		get(t, "GET", leased.Pools[0].Instances[0].URL+"/json/version") // as its child does
		pid := w.state().Instances[0].Browser.PID
		syscall.Kill(pid, syscall.SIGKILL)
		if r := m.answer(id).tool(t); !r.IsError { // as it is when the child has slept
			t.Errorf("the answer to a call whose browser was killed: %+v, want an error", r)
		}
		m.end()
		p.stop()
	}
}

// Calls after the end of bproxy have another one, from the first on.
func TestMCPProxyDies(t *testing.T) {
	w := newWorld(t)
	m := w.mcp(nil, "--mcp", "kid="+fake())
	for range 5 {
		if r := m.tool("echo", "{}"); r.tool(t).IsError {
			t.Fatalf("got %v, want no error", r.line)
		}
		syscall.Kill(w.state().Proxies[0].Process.PID, syscall.SIGKILL)
		if r := m.tool("coordinator_status", "{}").tool(t); len(r.Struct["notes"].([]any)) > 0 {
			t.Errorf("got %+v, want no notes", r.Struct)
		}
		if r := m.tool("env", "{}"); r.tool(t).IsError &&
			!strings.Contains(r.line, "the browser ended during this call") {
			t.Errorf("got %s, want a result, or that the browser ended during the call", r.line)
		}
	}
	m.end()
	w.clean()
}

// With ISOLATED a host has the same fresh browser for all its calls, and the
// next host another one.
func TestMCPIsolatedInstance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool("_A_INSTANCES=2", "_A_BROWSER=chromium", "_A_ISOLATED=true")
	clients, _ := filepath.Abs("../scripts/clients/node_modules/.bin")
	m := w.startMCP([]string{"HOME=" + w.dir}, "--pool", "--mcp", clients+"/playwright-mcp")
	m.greet("{}")
	m.lists("browser_navigate")
	for _, args := range []string{"", `"browser_instance":"1",`} {
		if r := m.tool("browser_navigate", `{`+args+`"url":"data:text/html,<title>mine</title>"}`); r.tool(t).IsError {
			t.Fatalf("got %v, want no error", r.line)
		}
		for range 3 {
			if r := m.tool("browser_evaluate",
				`{`+args+`"function":"() => document.title"}`); !strings.Contains(r.text(t),
				`"mine"`) {
				t.Errorf(`got %v, want '"mine"'`, r.line)
			}
		}
	}
	m.end()
	m = w.startMCP([]string{"HOME=" + w.dir}, "--pool", "--mcp", clients+"/playwright-mcp")
	m.greet("{}")
	m.lists("browser_navigate")
	r := m.tool("browser_evaluate", `{"browser_instance":"1","function":"() => document.title"}`)
	if r.tool(t).IsError ||
		strings.Contains(r.text(t), "mine") {
		t.Errorf(`got %v, want no error, nothing of "mine"`, r.line)
	}
	m.end()
}

// A child that answers nothing, not even a ping, is replaced, and its calls
// fail.
func TestMCPChildThatHangs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool("_A_INSTANCES=1", "TIMEOUT=0", "HEALTH_INTERVAL=1s", "HEALTH_TIMEOUT=4s")
	m := w.mcp(nil, "--pool", "--mcp", "kid="+fake())
	// One that ends again is not started at once.
	starts := func() bool { return !m.tool("echo", "{}").tool(t).IsError }
	for range 2 {
		until(t, "the child is started", starts)
		var pids []int
		for _, l := range w.ours() {
			pid, program := 0, ""
			if fmt.Sscan(l, &pid, &program); program == bin+"/fakechild" {
				pids = append(pids, pid)
			}
		}
		if len(pids) != 1 {
			t.Fatalf("no such child among %q", w.ours())
		}
		id := m.startTool("sleep", `{"ms":60000}`)
		syscall.Kill(pids[0], syscall.SIGSTOP)
		const late = "child kid did not answer a ping within 4s (HEALTH_TIMEOUT of pool A)"
		if r := m.answer(id).tool(t); !r.IsError || !strings.Contains(r.Content[0].Text, late) {
			t.Errorf("got %+v, want an error with %q", r, late)
		}
		until(t, "it is gone", func() bool { return syscall.Kill(pids[0], 0) != nil })
	}
	if !strings.Contains(m.errs.String(), "did not answer a ping") {
		t.Error("it is not logged")
	}
	until(t, "the child is started a third time", starts)
	// One that only works for long answers pings.
	if r := m.tool("sleep", `{"ms":6000}`); r.tool(t).IsError {
		t.Errorf("got %v, want no error", r.line)
	}
	if s := p.status(); s.Pools[0].Instances[0].Restarts != 0 {
		t.Errorf("got %+v, want no restart", s)
	}
	m.end()
}

// TIMEOUT bounds a call, in bulk too, but not the time that its host takes.
func TestMCPCallTakesTooLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool("_A_INSTANCES=1", "_A_TIMEOUT=3s", "_B_INSTANCES=1", "_B_TIMEOUT=0", "_A_IS_DEFAULT=true")
	m := w.mcp(nil, "--pool", "--mcp", "kid="+fake())
	const late = "child kid did not answer the call within 3s (TIMEOUT of pool A): it was cancelled"
	if r := m.tool("silent", "{}").tool(t); !r.IsError || r.Content[0].Text != late {
		t.Errorf("got %+v, want the error %q", r, late)
	}
	until(t, "the child is told", func() bool { return strings.Contains(m.errs.String(), "kid: cancelled") })
	if r := m.tool("browser_execute_bulk",
		`{"commands":[{"tool":"silent"}]}`).tool(t); !strings.Contains(fmt.Sprint(r.Struct["errors"]), late) {
		t.Errorf("got %+v, want the error %q", r, late)
	}
	if r := m.tool("echo", "{}").tool(t); r.IsError {
		t.Errorf("got %+v, want no error", r)
	}
	if r := m.tool("sleep", `{"ms":3500,"browser_pool":"B"}`).tool(t); r.IsError {
		t.Errorf("without a bound: %+v", r)
	}
	// The child asks, and the host takes its time.
	id := m.startTool("ask", `{"method":"elicitation/create","params":{"message":"well?"}}`)
	for {
		r := m.next()
		if r.Method != "elicitation/create" {
			continue
		}
		m.call("tools/call", `{"name":"sleep","arguments":{"ms":3500,"browser_pool":"B"}}`)
		m.send(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"action":"accept"}}`)
		break
	}
	if r := m.answer(id).tool(t); r.IsError || !strings.Contains(r.Content[0].Text, "accept") {
		t.Errorf(`got %+v, want no error, and "accept"`, r)
	}
	m.end()
}
