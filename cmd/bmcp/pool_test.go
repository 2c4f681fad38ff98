//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// A pool that belongs to one bmcp is never used by another one, nor by bpool's
// commands.
func TestMCPPrivatePool(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	one := w.MCP([]string{"PW_MCP_PROXY_BROWSER=" + cmdtest.Bin + "/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=1"},
		"--mcp",
		"kid="+cmdtest.FakeChild())
	if r := one.Tool("echo", "{}").Tool(t); r.IsError || r.Meta["btools/pool"] != "A" {
		t.Fatalf("got %+v, want a result of pool A", r)
	}
	if r := one.Tool("coordinator_restart_browser", "{}"); r.Error == nil ||
		!strings.Contains(r.Error.Message, "without pools") || !strings.Contains(r.Error.Message, "bpool restart") {
		t.Errorf("a tool that there is without pools: %s", r.Line)
	}
	two := w.MCP(nil, "--mcp", "kid="+cmdtest.FakeChild())
	if r := two.Tool("echo", "{}").Tool(t); r.IsError || r.Meta["btools/pool"] != nil {
		t.Errorf("got %+v, want a result of no pool", r)
	}
	sock := w.State().Pools[0].Control
	none := w.Run("bpool", "lease", "--timeout", "0")
	none.Exits(t, 69, "no bpool service runs")
	none.Exits(t, 69, "belongs to the program that runs it; use --socket "+sock)
	w.Run("bmcp", "--pool").Exits(t, 69, "no bpool service runs")
	w.Run("bpool", "status", "--socket", sock).Exits(t, 0, "")
	one.End()
	two.Tool("echo", "{}").MustSucceed(t) // after the other's end
	two.End()
	// What its errors advise can be done.
	bad := w.MCP([]string{"PW_MCP_PROXY_BROWSER=/bin/false", "PW_MCP_PROXY__A_INSTANCES=1",
		"PW_MCP_PROXY_LEASE_TIMEOUT=0s"}, "--mcp", "kid="+cmdtest.FakeChild())
	var advice []string
	cmdtest.Until(t, "its browser has failed", func() bool {
		r := bad.Tool("echo", "{}").Tool(t)
		advice = regexp.MustCompile(`\(bpool (status A --socket \S+) shows them`).FindStringSubmatch(r.Text())
		return advice != nil && strings.HasPrefix(r.Text(), "### Error\nDefault pool 'A' has no healthy instances.")
	})
	w.Run("bpool", strings.Fields(advice[1])...).Exits(t, 0, "")
	bad.End()
	w.Clean()
}

// A bpool service that runs is used by who asks for it; of several, the one
// that is named.
func TestMCPPoolService(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Run("bmcp", "--pool").Exits(t, 69, "no bpool service runs")
	p := w.Pool("_A_INSTANCES=1")
	on := func(m *cmdtest.MCP) any {
		t.Helper()
		return m.Tool("echo", "{}").Tool(t).Meta["btools/pool"]
	}
	own := w.MCP(nil, "--mcp", "kid="+cmdtest.FakeChild())
	if pool := on(own); pool != nil {
		t.Errorf("it is on pool %v without --pool", pool)
	}
	if !strings.Contains(own.Errs.String(), "--pool uses the bpool service that runs") {
		t.Errorf("it says %s", own.Errs.String())
	}
	own.End()
	m := w.MCP(nil, "--pool", "--mcp", "kid="+cmdtest.FakeChild())
	if pool := on(m); pool != "A" {
		t.Errorf("it is on pool %v", pool)
	}
	// It is gone for a while, and comes back elsewhere.
	p.Stop()
	m.Tool("echo", "{}").MustFail(t, "start one with bpool serve")
	other := func(name, sock string) *cmdtest.Pool {
		c := w.Cmd("bpool", "serve", "--socket", sock, "--drain-timeout", "0s")
		c.Env = append(c.Env, "PW_MCP_PROXY_BROWSER="+cmdtest.Bin+"/fakebrowser", "PW_MCP_PROXY__"+name+"_INSTANCES=1")
		p := &cmdtest.Pool{T: t, W: w, Cmd: c}
		p.Start()
		return p
	}
	early := m.StartTool("echo", "{}") // waits a little for a service that is restarted
	other("B", w.Dir+"/b.sock")
	if pool := m.Answer(early).Tool(t).Meta["btools/pool"]; pool != "B" {
		t.Errorf("it is on pool %v", pool)
	}
	m.End()
	other("C", w.Dir+"/c.sock")
	for _, program := range [][]string{{"bmcp", "--pool"}, {"bpool", "lease"}} {
		w.Run(program[0], program[1:]...).Exits(t, 64, "several bpool services run, name one by --socket: "+w.Dir+"/")
	}
	named := []string{"BTOOLS_POOL_SOCKET=" + w.Dir + "/b.sock"}
	for want, arg := range map[string]string{"B": "--pool", "C": "--socket=" + w.Dir + "/c.sock"} {
		m = w.MCP(named, arg, "--mcp", "kid="+cmdtest.FakeChild())
		if pool := on(m); pool != want {
			t.Errorf("with %s it is on pool %v", arg, pool)
		}
		m.End()
	}
}

// A host keeps the instances that it has used, as long as it uses them; another
// host has another one. Where results come from more than one, they say which.
func TestMCPAffinity(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=3", "_A_LEASE_TTL=10s", "_A__0_ALIAS=n0", "_A__1_ALIAS=n1", "_A__2_ALIAS=n2")
	host := func() *cmdtest.MCP { return w.MCP(nil, "--pool", "--mcp", "kid="+cmdtest.FakeChild()) }
	one, two := host(), host()
	at := func(m *cmdtest.MCP, args string) (instance string, told bool) {
		t.Helper()
		r := m.Tool("echo", args)
		return fmt.Sprint(r.Tool(t).Meta["btools/instance"]),
			strings.Contains(r.Text(t), "This result is from instance")
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
		one.Tool("browser_execute_bulk", `{"commands":[{"tool":"echo"}]}`)
	}
	if s := p.Status().Summary; s.Leased != 2 {
		t.Errorf("got %+v, want 2 leased", s)
	}
	// It may name the one that it keeps, and another one, which it keeps too.
	if x, told := at(one, `{"browser_instance":"`+a+`"}`); x != a || told {
		t.Errorf("on %s; says so: %v", x, told)
	}
	third := strings.NewReplacer(a, "", b, "").Replace("012")
	c, told := at(one, `{"browser_instance":"n`+third+`"}`)
	if s := p.Status().Summary; !told || c != third || s.Leased != 3 {
		t.Errorf("on %s, says so: %v; %+v", c, told, s)
	}
	if x, told := at(one, "{}"); x != a || !told {
		t.Errorf("on %s; says so: %v", x, told)
	}
	// Somebody ends its leases: it takes another one, and says so.
	w.Run("bpool", "release", "--all").Exits(t, 0, "")
	if r := one.Tool("echo", "{}"); !strings.Contains(r.Text(t),
		"this session's lease of instance "+a+" of pool A had been ended") || r.Tool(t).Meta["btools/replaced"] == nil {
		t.Errorf("got %s, want that the lease had been ended, and btools/replaced", r.Line)
	}
	if r := one.Tool("echo", "{}"); r.Tool(t).Meta["btools/replaced"] != nil {
		t.Error("it says so twice: " + r.Line)
	}
	cmdtest.Until(t, "idle instances are given back", func() bool { return p.Status().Summary.Leased == 0 })
	at(one, "{}")
	one.End()
	cmdtest.Until(t, "what a host has kept ends with it", func() bool { return p.Status().Summary.Leased == 0 })
}

// All calls of a session that need an instance wait for one lease: they are
// one in the line, and have it, or the error, at once.
func TestOneLeaseForAllWhoWait(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=1", "_A_LEASE_TIMEOUT=5s", "_A_LEASE_TTL=1h")
	m := w.MCP(nil, "--pool", "--mcp", "kid="+cmdtest.FakeChild())
	waits := func() {
		t.Helper()
		cmdtest.Until(t, "one request waits", func() bool { return p.Status().Summary.Waiting == 1 })
	}
	other := p.Lease().Lease.ID
	var ids []string
	for range 5 {
		ids = append(ids, m.StartTool("echo", "{}"))
	}
	waits()
	m.Call("ping", "{}") // by now all of them are read
	if n := p.Status().Summary.Waiting; n != 1 {
		t.Errorf("%d requests wait", n)
	}
	began := time.Now()
	for range ids {
		m.Next().MustFail(t, "none came free within 5s")
	}
	if took := time.Since(began); took > 20*time.Second { // which takes 5 times LEASE_TIMEOUT
		t.Errorf("they waited one after the other: %v", took)
	}
	// Whoever goes leaves the others in the line; when all have gone, nobody is.
	one, two := m.StartTool("echo", "{}"), m.StartTool("echo", "{}")
	waits()
	m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + one + `}}`)
	m.Call("ping", "{}")
	w.Run("bpool", "release", other).Exits(t, 0, "")
	m.Answer(two).MustSucceed(t)
	// That the host names what it has is no second request.
	for _, args := range []string{`{"browser_instance":"0"}`, "{}"} {
		m.Tool("echo", args).MustSucceed(t)
	}
	w.Run("bpool", "release", "--all").Exits(t, 0, "")
	other = p.Lease().Lease.ID
	one, two = m.StartTool("echo", "{}"), m.StartTool("echo", `{"browser_instance":"0"}`)
	cmdtest.Until(t, "both wait", func() bool { return p.Status().Summary.Waiting == 2 })
	w.Run("bpool", "release", other).Exits(t, 0, "")
	for range 2 { // who waits for any has it too
		m.Next().MustSucceed(t)
	}
	w.Run("bpool", "release", "--all").Exits(t, 0, "")
	other = p.Lease().Lease.ID
	one = m.StartTool("echo", "{}")
	waits()
	m.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + one + `}}`)
	cmdtest.Until(t, "nobody waits any more", func() bool { return p.Status().Summary.Waiting == 0 })
	m.End()
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
			w := cmdtest.New(t)
			args := []string{"--mcp", "kid=" + cmdtest.FakeChild()}
			if x.pool != nil {
				w.Pool(x.pool...)
				args = append(args, "--pool")
			}
			m := w.MCP(nil, args...)
			where := strings.Fields(m.Tool("env", "{}").Text(t))[0]
			told := func() bool {
				t.Helper()
				r := m.Tool("echo", "{}")
				x := r.Tool(t)
				if x.IsError {
					t.Fatalf("got %v, want no error", r.Line)
				}
				return x.Meta["btools/replaced"] != nil
			}
			for range 2 {
				if cmdtest.Get(t, "GET", where+"/json/version"); told() {
					t.Error("it is told though nothing has happened")
				}
			}
			cmdtest.Until(t, "there is a browser", func() bool { return len(w.State().Instances) == 1 })
			pid := w.State().Instances[0].Browser.PID
			syscall.Kill(pid, syscall.SIGKILL)
			cmdtest.Until(t, "it is gone", func() bool { return syscall.Kill(pid, 0) != nil })
			cmdtest.Until(t, "there is another one", func() bool {
				if x.pool == nil { // a pool does it by itself
					cmdtest.Get(t, "GET", where+"/json/version")
				}
				all := w.State().Instances
				return len(all) == 1 && all[0].Browser.PID != pid && all[0].Browser.PID != 0
			})
			r := m.Tool("echo", "{}")
			if got := fmt.Sprint(r.Tool(t).Meta["btools/replaced"]); !strings.HasPrefix(got, x.why) ||
				!strings.Contains(r.Text(t), "Note: "+x.why) || !strings.Contains(r.Text(t), "navigate again") {
				t.Errorf("got %s, want btools/replaced and a note: %s", r.Line, x.why)
			}
			if told() {
				t.Error("it is told twice")
			}
			m.End()
		})
	}
	// A browser that no call has used is stopped, whether its child is connected or not.
	idle := cmdtest.New(t)
	for _, x := range [][]string{nil, {"--shared"}} {
		m := idle.MCP(nil, append(x, "--idle", "1s", "--mcp", "kid="+cmdtest.FakeChild())...)
		m.Tool("echo", "{}")
		cmdtest.Until(t, "the browser is stopped", func() bool { return len(idle.State().Instances) == 0 })
		const why = "the browser had ended (it had not been used for 1s) and was launched anew"
		if r := m.Tool("echo", "{}"); r.Tool(t).Meta["btools/replaced"] != why || !strings.Contains(r.Text(t), why) {
			t.Errorf("got %s, want btools/replaced and a note: %s", r.Line, why)
		}
		m.End()
	}
	// Who has asked for another browser knows.
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", "kid="+cmdtest.FakeChild())
	m.Tool("echo", "{}")
	m.Tool("coordinator_restart_browser", "{}")
	if r := m.Tool("echo", "{}"); r.Tool(t).Meta["btools/replaced"] != nil {
		t.Errorf("got %s, want no btools/replaced: the host has asked for it", r.Line)
	}
	m.End()
}

// The death of a browser that was launched only when a call needed it fails
// that call at once, too.
func TestMCPLazyBrowserDies(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for _, affinity := range []string{"call", "session"} {
		p := w.Pool("_A_INSTANCES=1", "START=lazy", "AFFINITY="+affinity)
		m := w.MCP(nil, "--pool", "--mcp", "kid="+cmdtest.FakeChild())
		m.Tools()
		id := m.StartTool("sleep", `{"ms":20000}`)
		cmdtest.Until(t, "the call has its lease", func() bool { return p.Status().Summary.Leased == 1 })
		var leased struct {
			Pools []struct {
				Instances []struct {
					URL string `json:"http_url"`
				}
			}
		}
		json.Unmarshal([]byte(w.Run("bpool", "status").Out), &leased)
		cmdtest.Get(t, "GET", leased.Pools[0].Instances[0].URL+"/json/version") // as its child does
		pid := w.State().Instances[0].Browser.PID
		syscall.Kill(pid, syscall.SIGKILL)
		if r := m.Answer(id).Tool(t); !r.IsError { // as it is when the child has slept
			t.Errorf("the answer to a call whose browser was killed: %+v, want an error", r)
		}
		m.End()
		p.Stop()
	}
}

// Calls after the end of bproxy have another one, from the first on.
func TestMCPProxyDies(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(nil, "--mcp", "kid="+cmdtest.FakeChild())
	for range 5 {
		m.Tool("echo", "{}").MustSucceed(t)
		syscall.Kill(w.State().Proxies[0].Process.PID, syscall.SIGKILL)
		if r := m.Tool("coordinator_status", "{}").Tool(t); len(r.Struct["notes"].([]any)) > 0 {
			t.Errorf("got %+v, want no notes", r.Struct)
		}
		if r := m.Tool("env", "{}"); r.Tool(t).IsError &&
			!strings.Contains(r.Line, "the browser ended during this call") {
			t.Errorf("got %s, want a result, or that the browser ended during the call", r.Line)
		}
	}
	m.End()
	w.Clean()
}

// With ISOLATED a host has the same fresh browser for all its calls, and the
// next host another one.
func TestMCPIsolatedInstance(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Pool("_A_INSTANCES=2", "_A_BROWSER=chrome-headless-shell", "_A_ISOLATED=true")
	m := w.StartMCP([]string{"HOME=" + w.Dir}, "--pool", "--mcp", "builtin")
	m.Initialize("{}")
	m.AwaitTools("browser_navigate")
	for _, args := range []string{"", `"browser_instance":"1",`} {
		m.Tool("browser_navigate", `{`+args+`"url":"data:text/html,<title>mine</title>"}`).MustSucceed(t)
		for range 3 {
			if r := m.Tool("browser_evaluate",
				`{`+args+`"function":"() => document.title"}`); !strings.Contains(r.Text(t),
				`"mine"`) {
				t.Errorf(`got %v, want '"mine"'`, r.Line)
			}
		}
	}
	m.End()
	m = w.StartMCP([]string{"HOME=" + w.Dir}, "--pool", "--mcp", "builtin")
	m.Initialize("{}")
	m.AwaitTools("browser_navigate")
	r := m.Tool("browser_evaluate", `{"browser_instance":"1","function":"() => document.title"}`)
	if r.Tool(t).IsError ||
		strings.Contains(r.Text(t), "mine") {
		t.Errorf(`got %v, want no error, nothing of "mine"`, r.Line)
	}
	m.End()
}

// A child that answers nothing, not even a ping, is replaced, and its calls
// fail.
func TestMCPChildThatHangs(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Pool("_A_INSTANCES=1", "TIMEOUT=0", "HEALTH_INTERVAL=300ms", "HEALTH_TIMEOUT=300ms")
	m := w.MCP(nil, "--pool", "--mcp", "kid="+cmdtest.FakeChild())
	// One that ends again is not started at once.
	starts := func() bool { return !m.Tool("echo", "{}").Tool(t).IsError }
	for range 2 {
		cmdtest.Until(t, "the child is started", starts)
		var pids []int
		for _, l := range w.Processes() {
			pid, program := 0, ""
			if fmt.Sscan(l, &pid, &program); program == cmdtest.Bin+"/fakechild" {
				pids = append(pids, pid)
			}
		}
		if len(pids) != 1 {
			t.Fatalf("no such child among %q", w.Processes())
		}
		id := m.StartTool("sleep", `{"ms":60000}`)
		syscall.Kill(pids[0], syscall.SIGSTOP)
		const late = "child kid did not answer two pings, each within 300ms or more (HEALTH_TIMEOUT of pool A)"
		m.Answer(id).MustFail(t, late)
		cmdtest.Until(t, "it is gone", func() bool { return syscall.Kill(pids[0], 0) != nil })
	}
	if !strings.Contains(m.Errs.String(), "did not answer two pings") {
		t.Error("it is not logged")
	}
	cmdtest.Until(t, "the child is started a third time", starts)
	// One that only works for long answers pings.
	m.Tool("sleep", `{"ms":2000}`).MustSucceed(t)
	if s := p.Status(); s.Pools[0].Instances[0].Restarts != 0 {
		t.Errorf("got %+v, want no restart", s)
	}
	m.End()
}

// TIMEOUT bounds a call, in bulk too, but not the time that its host takes.
func TestMCPCallTakesTooLong(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Pool("_A_INSTANCES=1", "_A_TIMEOUT=3s", "_B_INSTANCES=1", "_B_TIMEOUT=0", "_A_IS_DEFAULT=true")
	m := w.MCP(nil, "--pool", "--mcp", "kid="+cmdtest.FakeChild())
	const late = "child kid did not answer the call within 3s (TIMEOUT of pool A): it was cancelled"
	if r := m.Tool("silent", "{}").Tool(t); !r.IsError || r.Content[0].Text != "### Error\n"+late {
		t.Errorf("got %+v, want the error %q", r, late)
	}
	cmdtest.Until(t, "the child is told", func() bool { return strings.Contains(m.Errs.String(), "kid: cancelled") })
	if r := m.Tool("browser_execute_bulk",
		`{"commands":[{"tool":"silent"}]}`).Tool(t); !strings.Contains(fmt.Sprint(r.Struct["errors"]), late) {
		t.Errorf("got %+v, want the error %q", r, late)
	}
	m.Tool("echo", "{}").MustSucceed(t)
	// The child asks, and the host takes its time.
	id := m.StartTool("ask", `{"method":"elicitation/create","params":{"message":"well?"}}`)
	for {
		r := m.Next()
		if r.Method != "elicitation/create" {
			continue
		}
		m.Tool("sleep", `{"ms":3500,"browser_pool":"B"}`).MustSucceed(t) // without a bound
		m.Send(`{"jsonrpc":"2.0","id":` + string(r.ID) + `,"result":{"action":"accept"}}`)
		break
	}
	if r := m.Answer(id).Tool(t); r.IsError || !strings.Contains(r.Content[0].Text, "accept") {
		t.Errorf(`got %+v, want no error, and "accept"`, r)
	}
	m.End()
}
