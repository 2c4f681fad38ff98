//go:build linux

package main_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// Two hosts of one name that meet later, as no server has answered when they started, say so both.
func TestHostsOfOneName(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	s.kill()
	_, all := hosts(w, s, 2, "LAUNCH=false", "NATS_NAME=same")
	s.start()
	for i, p := range all {
		cmdtest.Until(t, "a host says that another one has its name", func() bool {
			return strings.Contains(p.Errs.String(), "another host is called same: that at "+all[1-i].HTTP)
		})
	}
}

// A server that cannot be used is named with the reason: one without an address, one that is something else, one that
// says nothing, one whose users may do other things only. A service starts all the same, and says so.
func TestBadServersOfNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	cmdtest.WriteFile(t, w.Dir+"/small", "max_payload: 1KB\n")
	cmdtest.WriteFile(t, w.Dir+"/jetstream", `authorization: { users: [ { user: u, password: p, permissions:
		{ publish: "$JS.API.>", subscribe: "_INBOX.u.>" } } ] }`)
	cmdtest.WriteFile(t, w.Dir+"/password", "p")
	small, jetStream := startNATS(t, "-c", w.Dir+"/small"), startNATS(t, "-c", w.Dir+"/jetstream")
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	html := strings.TrimPrefix(cmdtest.TitledSite(t), "http://")
	client, all := hosts(w, s, 1, "LAUNCH=false")
	lease := func(servers string, vars ...string) cmdtest.Result {
		return client.With(append(vars, "BTOOLS_POOL_NATS="+servers)...).Run("bpool", "lease", "--timeout", "700ms", "--",
			"echo", "leased")
	}
	for servers, text := range map[string]string{
		"nats://none.invalid:4222":          "none.invalid",
		"nats://" + html:                    "no NATS server has answered",
		"nats://" + silent.Addr().String():  "no NATS server has answered",
		"nats://127.0.0.1:1":                "connection refused",
		"nats://127.0.0.1:1," + small.url(): "max_payload must be 8192 or more",
	} {
		lease(servers).Exits(t, 75, text)
	}
	lease(jetStream.url(), "PW_MCP_PROXY_NATS_USER=u", "PW_MCP_PROXY_NATS_PASSWORD_FILE="+w.Dir+"/password").
		Exits(t, 78, `Permissions Violation for Publish to "btools.v1.local.free.DEFAULT.any.u.`)
	if r := lease("nats://none.invalid:4222,nats://127.0.0.1:1," + s.url()); r.Out != "leased\n" {
		t.Errorf("with one good server of three: %+v", r)
	}
	for _, name := range []string{"*", ">", "DEFAULT.any", "DEFAULT "} { // no pool is called so
		client.Run("bpool", "lease", "--timeout", "100ms", name, "--", "true").Exits(t, 75, "instance of pool "+name+":")
	}
	if n, said := free(client), all[0].Errs.String(); n != 1 || strings.Contains(said, "error") {
		t.Errorf("%d are free; the host says %s", n, said)
	}
	tokens := w.Dir + "/tokens"
	later := w.WebPool([]string{"--token-file", tokens, "--nats", "nats://" + silent.Addr().String(), "--socket",
		w.Dir + "/later"}, "LAUNCH=false")
	cmdtest.Until(t, "the service says that no server answers", func() bool {
		return strings.Contains(later.Errs.String(), "no NATS server has answered for 2s")
	})
}

// A server whose name has no address yet is found when it has one.
func TestNATSNameThatResolvesLater(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can give a process another /etc/hosts")
	}
	s := startNATS(t)
	client, _ := hosts(w, s, 1, "LAUNCH=false")
	file := w.Dir + "/hosts"
	cmdtest.WriteFile(t, file, "127.0.0.1 localhost\n")
	_, port, _ := net.SplitHostPort(s.addr)
	c := client.Cmd("unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec bpool lease -- echo leased`, file)
	c.Env = append(c.Env, "BTOOLS_POOL_NATS=nats://later.test:"+port)
	out := cmdtest.StartRead(t, c)
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(f, "127.0.0.1 later.test")
	f.Close()
	b, _ := io.ReadAll(out)
	if err := c.Wait(); err != nil || string(b) != "leased\n" {
		t.Errorf("%v: %s", err, b)
	}
}
