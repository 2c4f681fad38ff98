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
	cmd  *exec.Cmd
}

// startNATS starts a server, which ends with the test.
func startNATS(t *testing.T, args ...string) *natsServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &natsServer{t: t, addr: l.Addr().String(), args: args}
	l.Close()
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

// at returns the address of the command's lease.
func (c *command) at() string {
	var l cmdtest.Leased
	json.Unmarshal([]byte(c.out.String()), &l)
	return l.Instance.HTTPURL
}

// One command leases from any of three hosts, which only NATS finds. When all are full, it waits for the first that
// becomes free. The death of NATS ends no lease; that of a host ends its own lease.
func TestLeaseByNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, all := hosts(w, s, 3)
	cmdtest.Until(t, "three hosts are found", func() bool { return free(client) == 3 })
	r := client.Run("bpool", "lease", "--", "sh", "-c", "curl -sS {cdp_endpoint}/json/version; echo {ws_endpoint}")
	if !strings.Contains(r.Out, `"webSocketDebuggerUrl":"ws://127.0.0.1:`) || !strings.Contains(r.Out, "}ws://127.0.0.1:") ||
		r.Code != 0 || strings.TrimSpace(r.Err) != "" {
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
