//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// natsServer is a server of NATS.
type natsServer struct {
	t    *testing.T
	addr string
	args []string
	env  []string
	cmd  *exec.Cmd
}

// startNATS starts a server, which ends with the test.
func startNATS(t *testing.T, args ...string) *natsServer { return startNATSWith(t, nil, args...) }

func startNATSWith(t *testing.T, env []string, args ...string) *natsServer {
	t.Helper()
	s := &natsServer{t: t, addr: cmdtest.Address(t), args: args, env: env}
	s.start()
	t.Cleanup(func() { s.kill() })
	return s
}

func (s *natsServer) start() {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(s.addr)
	program := os.Getenv("BTOOLS_NATS_SERVER")
	if program == "" {
		program = "nats-server"
	}
	s.cmd = exec.Command(program, append([]string{"-a", host, "-p", port}, s.args...)...)
	s.cmd.Env = append(os.Environ(), s.env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("%v: make deps installs it", err)
	}
	cmdtest.Until(s.t, "the server of NATS listens", func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func (s *natsServer) kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

func (s *natsServer) url() string { return "nats://" + s.addr }

// hosts starts services that are found by a server of NATS, each as on a machine of its own, and returns the world of
// a client, which finds them.
func hosts(w *cmdtest.World, s *natsServer, n int, vars ...string) (client *cmdtest.World, all []*cmdtest.Pool) {
	w.T.Helper()
	tokens := filepath.Join(w.Dir, "tokens")
	if err := os.WriteFile(tokens, []byte("ci "+ciToken+" trust\n"), 0o600); err != nil {
		w.T.Fatal(err)
	}
	for i := range n {
		on := w.With(fmt.Sprintf("BTOOLS_STATE=%s/host%d.json", w.Dir, i))
		all = append(all, on.WebPool([]string{"--token-file", tokens, "--nats", s.url(), "--socket",
			fmt.Sprintf("%s/host%d.sock", w.Dir, i)}, append([]string{fmt.Sprint("NATS_NAME=host", i)}, vars...)...))
	}
	return w.With("BTOOLS_POOL_NATS="+s.url(), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken), all
}

// hostRow is what bpool hosts prints of a host.
type hostRow struct {
	Host struct {
		Name, Region, Address, State string
		Total, Free, Waiting         int
	}
}

// listHosts returns what bpool hosts prints.
func listHosts(w *cmdtest.World) (rows []hostRow) {
	w.T.Helper()
	r := w.Run("bpool", "hosts")
	for line := range strings.Lines(r.Out) {
		var row hostRow
		if err := json.Unmarshal([]byte(line), &row); err != nil || r.Code != 0 {
			w.T.Fatalf("%+v: %v", r, err)
		}
		rows = append(rows, row)
	}
	return rows
}

// free returns the number of free instances of all hosts.
func free(w *cmdtest.World) (n int) {
	for _, h := range listHosts(w) {
		n += h.Host.Free
	}
	return n
}

// command is a command that runs.
type command struct {
	t         *testing.T
	cmd       *exec.Cmd
	out, errs cmdtest.SyncBuffer
	ended     chan struct{}
}

// begin starts a command.
func begin(w *cmdtest.World, args ...string) *command {
	w.T.Helper()
	c := &command{t: w.T, cmd: w.Cmd("bpool", args...), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.errs
	if err := c.cmd.Start(); err != nil {
		w.T.Fatal(err)
	}
	go func() {
		c.cmd.Wait()
		close(c.ended)
	}()
	w.T.Cleanup(func() {
		c.cmd.Process.Kill()
		<-c.ended
		if w.T.Failed() {
			w.T.Logf("%v, %v, says:\n%s", args, c.cmd.ProcessState, &c.errs)
		}
	})
	return c
}

// hold starts a command that holds a lease.
func hold(w *cmdtest.World, args ...string) *command {
	w.T.Helper()
	c := begin(w, append([]string{"lease", "--wait"}, args...)...)
	cmdtest.Until(w.T, "there is a lease", func() bool { return strings.Contains(c.out.String(), "\n") })
	return c
}

// ends waits until the command has ended, and asserts its exit code and part of what it has printed.
func (c *command) ends(code int, part string) {
	c.t.Helper()
	cmdtest.Until(c.t, "the command ends", c.hasEnded)
	if got := c.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(c.out.String()+c.errs.String(), part) {
		c.t.Errorf("it has ended with %d: %s%s", got, &c.out, &c.errs)
	}
}

func (c *command) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// lease returns the command's lease; it is zero before there is one.
func (c *command) lease() (l cmdtest.Leased) {
	json.Unmarshal([]byte(c.out.String()), &l)
	return l
}

func (c *command) at() string { return c.lease().Instance.HTTPURL }
func (c *command) id() string { return c.lease().Lease.ID }

// One command leases from any of three hosts, which only NATS finds. When all are full, it waits for the first that
// becomes free. The death of NATS ends no lease; that of a host ends its own lease.
func TestLeaseByNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, all := hosts(w, s, 3)
	cmdtest.Until(t, "three hosts are found", func() bool { return free(client) == 3 })
	r := client.Run("bpool", "lease", "--", "sh", "-c", "curl -sS {cdp_endpoint}/json/version; echo {ws_endpoint}")
	if !strings.Contains(r.Out, `"webSocketDebuggerUrl":"ws://127.0.0.1:`) ||
		!strings.Contains(r.Out, "}ws://127.0.0.1:") || r.Code != 0 || strings.TrimSpace(r.Err) != "" {
		t.Errorf("a command: %+v", r)
	}
	var held []*command
	for range 3 {
		held = append(held, hold(client))
	}
	if n := free(client); n != 0 {
		t.Errorf("%d are free of three that are leased", n)
	}
	client.Run("bpool", "lease", "--timeout", "100ms", "--wait").Exits(t, 75, "none of the hosts has had one")
	waits := begin(client, "lease", "--", "echo", "got it")
	cmdtest.Until(t, "a request waits", func() bool {
		return slices.ContainsFunc(listHosts(client), func(h hostRow) bool { return h.Host.Waiting > 0 })
	})
	s.kill()
	client.Run("bpool", "lease", "--timeout", "100ms", "--wait").Exits(t, 75, "no NATS server has answered")
	for _, h := range held {
		if code, _ := cmdtest.Get(t, "GET", h.at()+"/json/version"); code != 200 || h.hasEnded() {
			t.Error("a lease has ended with NATS")
		}
	}
	s.start()
	held[0].cmd.Process.Signal(syscall.SIGTERM)
	held[0].ends(0, "")
	waits.ends(0, "got it")
	for _, p := range all {
		p.Cmd.Process.Signal(syscall.SIGSTOP)
		defer p.Cmd.Process.Signal(syscall.SIGCONT)
	}
	for _, h := range held[1:] {
		h.ends(69, "has not answered for 8s")
	}
}

// A host that encrypts its port leases a whole Chromium to a client that knows its certificate, and to no other one.
func TestLeaseByNATSAndTLS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	cert, key := w.Dir+"/cert", w.Dir+"/key"
	writeCertificate(t, cert, key)
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(t, tokens, "ci "+ciToken+" trust\n")
	w.With("BTOOLS_STATE="+w.Dir+"/host.json").WebPool([]string{"--token-file", tokens, "--tls-cert", cert, "--tls-key",
		key, "--nats", s.url(), "--socket", w.Dir + "/host"}, "BROWSER=chrome-headless-shell", "_A_INSTANCES=1")
	client := w.With("BTOOLS_POOL_NATS="+s.url(), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken, "PW_MCP_PROXY_HOSTS_CA="+cert)
	r := client.Run("bpool", "lease", "A", "--", "node", cmdtest.Clients(t)+"/nats.mjs", "{ws_endpoint}")
	if r.Code != 0 || r.Out != "it works\n" {
		t.Errorf("Playwright: %+v", r)
	}
	briefly := []string{"lease", "--timeout", "2s", "A", "--", "true"}
	w.With("BTOOLS_POOL_NATS="+s.url(), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken).Run("bpool", briefly...).
		Exits(t, 75, "certificate")
	client.With("PW_MCP_PROXY_HOSTS_TOKEN=wrong-wrong-wrong-wrong").Run("bpool", briefly...).
		Exits(t, 75, "no valid token")
}

// Requests of several clients are served by their age, wherever they wait; nobody waits while a host has room.
func TestQueueByNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	client, _ := hosts(w, startNATS(t), 3)
	cmdtest.Until(t, "three hosts are found", func() bool { return free(client) == 3 })
	var held []*command
	for range 3 {
		held = append(held, hold(client))
	}
	waiting := func() (n int) {
		for _, h := range listHosts(client) {
			n += h.Host.Waiting
		}
		return n
	}
	var order []*command
	for k := range 4 {
		order = append(order, begin(client, "lease", "--wait"))
		cmdtest.Until(t, "each stands in three queues", func() bool { return waiting() == 3*(k+1) })
	}
	got := func() (n int) {
		for _, c := range order {
			if c.at() == "" {
				break
			}
			n++
		}
		for _, c := range order[n:] {
			if c.at() != "" {
				t.Error("a request has overtaken an older one")
			}
		}
		return n
	}
	for k, h := range held {
		h.cmd.Process.Signal(syscall.SIGTERM)
		h.ends(0, "")
		cmdtest.Until(t, "the oldest has the lease", func() bool { return got() == k+1 })
	}
	order[3].cmd.Process.Signal(syscall.SIGKILL)
	order[0].cmd.Process.Signal(syscall.SIGTERM) // the next offer finds out
	cmdtest.Until(t, "no place is left of a request whose client was killed", func() bool {
		return waiting() == 0 || free(client) > 0
	})
}

// A service is a host only with a name of its own, HTTP and tokens.
func TestBadNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	_, all := hosts(w, s, 1)
	tokens := w.Dir + "/tokens"
	serve := func(env []string, args ...string) cmdtest.Result {
		return w.With(append(env, "PW_MCP_PROXY_LAUNCH=false")...).Run("bpool",
			append([]string{"serve", "--socket", w.Dir + "/s"}, args...)...)
	}
	web := []string{"--http", "0", "--token-file", tokens, "--nats"}
	serve([]string{"PW_MCP_PROXY_NATS_NAME=host0"}, append(web, s.url())...).
		Exits(t, 78, "another host is called host0")
	serve(nil, "--nats", s.url()).Exits(t, 64, "--token-file")
	for text, url := range map[string]string{"must be URLs": "nats", "tls://": "nats://8.8.8.8:4222",
		"password": "tls://u:p@n1", "not \"\"": "tls://a,,tls://b"} {
		serve(nil, append(web, url)...).Exits(t, 64, text)
	}
	for _, url := range []string{"tls://u:hush@n1", "ws://u:hush@n1", "tls://u:hu@hush@n1", "tls://u:%hush@n1:x"} {
		r := serve(nil, append(web, url)...)
		if r.Exits(t, 64, "password in the URL of n1"); strings.Contains(r.Err, "hush") {
			t.Errorf("the password is shown: %s", r.Err)
		}
	}
	serve([]string{"PW_MCP_PROXY_NATS_NKEY=" + w.Dir + "/none"}, append(web, s.url())...).Exits(t, 78, "none")
	none := w.With("BTOOLS_POOL_NATS=nats://127.0.0.1:1", "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken)
	none.Run("bpool", "lease", "--timeout", "300ms", "--", "true").Exits(t, 75, "no NATS server has answered")
	none.Run("bpool", "lease").Exits(t, 64, "--wait")
	none.Run("bpool", "lease", "--socket", all[0].Socket, "--", "true").Exits(t, 64, "exclude")
	none.Run("bpool", "lease", "--instance", "0", "--", "true").Exits(t, 64, "exclude")
	w.With("BTOOLS_POOL_NATS="+s.url()).Run("bpool", "lease", "--", "true").Exits(t, 78, "HOSTS_TOKEN")
	w.Run("bpool", "hosts").Exits(t, 64, "--nats")
}

// The users of scripts/nats/users.conf can do what a host and a gateway do. Others are told what they may not.
func TestNATSPermissions(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	passwords := []string{"BTOOLS_VM1_PASSWORD=one", "BTOOLS_CI_PASSWORD=two", "BTOOLS_OPS_PASSWORD=three"}
	s := startNATSWith(t, passwords, "-c", cmdtest.Root+"/scripts/nats/users.conf")
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(t, tokens, "ci "+ciToken+" trust\n")
	cmdtest.WriteFile(t, w.Dir+"/one", "one\n")
	cmdtest.WriteFile(t, w.Dir+"/two", "two\n")
	w.With("BTOOLS_STATE="+w.Dir+"/host.json").WebPool([]string{"--token-file", tokens, "--nats", s.url(), "--socket",
		w.Dir + "/host"}, "NATS_USER=vm1", "NATS_PASSWORD_FILE="+w.Dir+"/one", "_A_INSTANCES=1")
	ci := w.With("BTOOLS_POOL_NATS="+s.url(), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken, "PW_MCP_PROXY_NATS_USER=ci",
		"PW_MCP_PROXY_NATS_PASSWORD_FILE="+w.Dir+"/two")
	cmdtest.Until(t, "the host is found", func() bool { return free(ci) == 1 })
	held := hold(ci, "A")
	waits := begin(ci, "lease", "A", "--", "true")
	cmdtest.Until(t, "a request waits", func() bool { return listHosts(ci)[0].Host.Waiting == 1 })
	held.cmd.Process.Signal(syscall.SIGTERM)
	held.ends(0, "")
	waits.ends(0, "")
	ci.With("PW_MCP_PROXY_NATS_PASSWORD_FILE="+w.Dir+"/one").Run("bpool", "hosts").Exits(t, 75, "Authorization")
	cmdtest.WriteFile(t, w.Dir+"/three", "three\n")
	ops := ci.With("PW_MCP_PROXY_NATS_USER=ops", "PW_MCP_PROXY_NATS_PASSWORD_FILE="+w.Dir+"/three")
	denied := ci.Run("bpool", "drain", "--host", "vm1")
	denied.Exits(t, 69, `Publish to "btools.v1.local.host.vm1.drain.ci.`)
	ops.Run("bpool", "drain", "--host", "vm1").Exits(t, 0, "")
	ops.Run("bpool", "drain", "--host", "vm1", "--off").Exits(t, 0, "")
	ops.Run("bpool", "lease", "A", "--", "true").Exits(t, 0, "")
	r := ci.With("PW_MCP_PROXY_NATS_NAME=other").Run("bpool", "lease", "A", "--", "true")
	r.Exits(t, 78, "NATS_NAME must be the name in the permissions of NATS_USER ci")
	r.Exits(t, 78, `Publish to "btools.v1.local.free.A.any.other.`)
}

// A host that is upgraded keeps its leases, and grants new ones.
func TestUpgradeOfAHost(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	client, all := hosts(w, startNATS(t), 1, "_A_INSTANCES=2")
	held := hold(client, "A")
	on := all[0].W.With("BTOOLS_POOL_SOCKET=" + all[0].Socket)
	t.Cleanup(func() { stopService(t, w.Dir+"/host0.json") }) // however the test ends
	for range 2 {
		on.Run("bpool", "upgrade").Exits(t, 0, "the service has the pid")
		if code, _ := cmdtest.Get(t, "GET", held.at()+"/json/version"); code != 200 || held.hasEnded() {
			t.Fatalf("the lease is lost: %s", &held.errs)
		}
		cmdtest.Until(t, "it is a host again", func() bool { return len(listHosts(client)) == 1 })
		client.Run("bpool", "lease", "A", "--", "true").Exits(t, 0, "")
	}
	held.cmd.Process.Signal(syscall.SIGTERM)
	held.ends(0, "")
	cmdtest.Until(t, "the lease has ended on the host", func() bool {
		return !strings.Contains(on.Run("bpool", "status").Out, held.id())
	})
}

// stopService ends the processes of the service in a state file.
func stopService(t *testing.T, file string) {
	var s struct {
		Pools []struct{ Process struct{ PID int } }
	}
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Error(err)
	}
	for _, p := range s.Pools {
		syscall.Kill(p.Process.PID, syscall.SIGTERM)
	}
}

// A request gets a browser of its own region while there is one, and then one of the next region.
func TestRegionsOfNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, _ := hosts(w, s, 1, "NATS_REGION=eu", "_A_INSTANCES=2")
	tokens := w.Dir + "/tokens"
	w.With("BTOOLS_STATE="+w.Dir+"/us.json").WebPool([]string{"--token-file", tokens, "--nats", s.url(), "--socket",
		w.Dir + "/us"}, "NATS_NAME=us0", "NATS_REGION=us", "_A_INSTANCES=2")
	near := client.With("PW_MCP_PROXY_NATS_REGIONS=eu us")
	cmdtest.Until(t, "two hosts are found", func() bool { return free(client) == 4 })
	in := func(region string) (free, waiting int) {
		for _, h := range listHosts(client) {
			if h.Host.Region == region {
				free, waiting = free+h.Host.Free, waiting+h.Host.Waiting
			}
		}
		return free, waiting
	}
	freeIn := func(region string) int {
		n, _ := in(region)
		return n
	}
	var held []*command
	for k := range 4 {
		held = append(held, hold(near, "A"))
		if eu, us := freeIn("eu"), freeIn("us"); eu != max(0, 1-k) || us != min(2, 3-k) {
			t.Errorf("after %d leases %d are free in the own region, %d in the next one", k+1, eu, us)
		}
	}
	for _, of := range []string{"eu", "us"} {
		near.Run("bpool", "lease", "--region", of, "--timeout", "600ms", "A", "--", "true").Exits(t, 75,
			"none of the hosts of region "+of)
	}
	waits := begin(client, "lease", "--region", "us", "A", "--", "true") // of a client of neither region
	cmdtest.Until(t, "it waits there", func() bool { _, n := in("us"); return n == 1 })
	held[0].cmd.Process.Signal(syscall.SIGTERM)
	held[0].ends(0, "")
	if freeIn("eu") != 1 || waits.hasEnded() {
		t.Error("a pinned request has another region")
	}
	held[2].cmd.Process.Signal(syscall.SIGTERM)
	waits.ends(0, "")
	near.Run("bpool", "lease", "--region", "us", "A", "--", "true").Exits(t, 0, "")
	g := gatewayOf(w, s, "LAUNCH=false", "NATS_REGION=eu", "_A_INSTANCES=1")
	for region, host := range map[string]string{"eu": "", "us": "us0"} {
		if l := g.Lease("--region", region, "A"); l.Lease.Host != host {
			t.Errorf("a service has leased in region %s from %q", region, l.Lease.Host)
		}
	}
	w.Pool("LAUNCH=false").W.Run("bpool", "lease", "--region", "us", "--", "true").Exits(t, 64, "no other hosts")
}
