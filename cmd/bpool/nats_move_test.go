//go:build linux

package main_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/websocket"
)

// A lease is frozen for its move: its clients are disconnected if it is late, nobody uses it, and what is saved can be
// read. Thawed, it goes on. What stays is named with its reason.
func TestFreeze(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(t, tokens, "ci "+ciToken+" trust\nother "+otherToken+"\n")
	p := w.WebPool([]string{"--token-file", tokens}, "BROWSER=chrome-headless-shell", "_A_ISOLATION=context",
		"_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_B_INSTANCES=1", "_B_BROWSER="+cmdtest.Bin+"/fakebrowser")
	ci, other := webClient{t, p.HTTP, ciToken}, webClient{t, p.HTTP, otherToken}
	site := cmdtest.LoginSite(t)
	a := ci.lease(`{"pool": "A"}`)
	id := `{"lease": "` + a.Lease.ID + `"`
	hold := `{"leases": ["` + a.Lease.ID + `"]}`
	c := cmdtest.FirstPage(t, a.Instance.HTTPURL)
	c.Open(site + "/login")
	c.AwaitTitle("logged in")
	c.Open(site + "/inbox")
	asserts := func(what string, client webClient, path, body string, code int, part string) {
		t.Helper()
		if got, b := client.do(path, body); got != code || !strings.Contains(b, part) {
			t.Errorf("%s: %d %s", what, got, b)
		}
	}
	asserts("in use", ci, "/freeze", id+"}", 503, "it is in use")
	asserts("of another", other, "/freeze", id+"}", 404, "lease_not_found")
	asserts("not drained", ci, "/hold", hold, 200, `"draining":"no"`)
	at := strings.TrimPrefix(a.Instance.HTTPURL, p.HTTP)
	asserts("not frozen", ci, at+"/session", "", 400, "not frozen")
	if r := w.Run("bpool", "drain", "--move"); r.Code != 0 || !strings.Contains(r.Err, "leases move to other hosts") {
		t.Errorf("drain: %+v", r)
	}
	asserts("drained, in use", ci, "/hold", hold, 200, `"draining":"move"`)
	w.Run("bpool", "drain", "--move", "--timeout", "1ms").Exits(t, 0, "")
	asserts("late", ci, "/hold", hold, 200, `"move":["`+a.Lease.ID)
	asserts("late", ci, "/freeze", id+"}", 200, `"frozen":true`)
	var closed *websocket.CloseError
	for err := error(nil); !errors.As(err, &closed); {
		if _, err = c.Conn.Next(); err != nil && !errors.As(err, &closed) {
			t.Fatal(err)
		}
	}
	if closed.Code != websocket.ServiceRestart {
		t.Errorf("its client is disconnected with %d", closed.Code)
	}
	asserts("frozen", ci, at+"/json/list", "", 503, "moved to another host")
	asserts("frozen", ci, at+"/session", "", 200, "s3cret-cookie")
	asserts("moving", ci, "/hold", hold, 200, `"gone":[]}`)
	asserts("no offer", ci, "/lease", `{"pool": "A", "session": {}}`, 400, "offer")
	asserts("thawed", ci, "/freeze", id+`, "off": true, "why": "none has room"}`, 200, `"frozen":false`)
	cmdtest.FirstPage(t, a.Instance.HTTPURL).AwaitTitle("shows ann, s3cret-token, s3cret-key")
	w.Run("bpool", "drain", "--off").Exits(t, 0, "")
	ci.lease(`{"pool": "B"}`)
	p.Lease("A")
	w.Run("bpool", "drain", "--move").Exits(t, 0, "")
	if got := w.Run("bpool", "status").Out; !strings.Contains(got, `"stays":"it has a browser to itself"`) ||
		!strings.Contains(got, `"stays":"its client uses it without a gateway"`) ||
		!strings.Contains(got, `"stays":"none has room"`) {
		t.Errorf("why leases stay: %s", got)
	}
	w.Run("bpool", "drain", "--timeout", "1s").Exits(t, 64, "--wait and --move")
	w.Run("bpool", "drain", "--move", "--off").Exits(t, 64, "exclude")
}

// A host is drained by NATS. Errors say what there is in its place, and which right is missing.
func TestDrainHost(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	passwords := []string{"BTOOLS_VM1_PASSWORD=one", "BTOOLS_CI_PASSWORD=two", "BTOOLS_OPS_PASSWORD=three"}
	s := startNATSWith(t, passwords, "-c", cmdtest.Root+"/scripts/nats/users.conf")
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(t, tokens, "ci "+ciToken+" trust\n")
	user := func(name, password string) []string {
		cmdtest.WriteFile(t, w.Dir+"/"+name, password+"\n")
		return []string{"PW_MCP_PROXY_NATS_USER=" + name, "PW_MCP_PROXY_NATS_PASSWORD_FILE=" + w.Dir + "/" + name,
			"BTOOLS_POOL_NATS=" + s.url(), "PW_MCP_PROXY_HOSTS_TOKEN=" + ciToken}
	}
	host := w.With(user("vm1", "one")...)
	host.With("BTOOLS_STATE="+w.Dir+"/host.json", "PW_MCP_PROXY_HOSTS_TOKEN=").WebPool([]string{"--token-file", tokens,
		"--nats", s.url(), "--socket", w.Dir + "/host"}, "_A_INSTANCES=1", "LAUNCH=false")
	ci, ops := w.With(user("ci", "two")...), w.With(user("ops", "three")...)
	cmdtest.Until(t, "the host is found", func() bool { return free(ci) == 1 })
	held := hold(ci, "A")
	drain := func(on *cmdtest.World, code int, part string, args ...string) {
		t.Helper()
		r := on.Run("bpool", append([]string{"drain", "--host"}, args...)...)
		if r.Code != code || !strings.Contains(r.Err, part) {
			t.Errorf("drain %v: %+v", args, r)
		}
	}
	drain(ci, 69, `drain.ci.`, "vm1")
	drain(ops, 69, `there is no host "vm2": there are local/vm1`, "vm2")
	drain(ops, 69, "no pool is named", "vm1", "B")
	drain(ops, 75, "no other host grants leases of A", "vm1", "--move")
	drain(ops, 64, "exclude", "vm1", "--socket", w.Dir+"/host")
	drain(ops, 75, "1 lease (bpool", "vm1", "--wait", "--timeout", "100ms")
	cmdtest.Until(t, "hosts says so", func() bool { return listHosts(ops)[0].Host.State == "draining" })
	held.cmd.Process.Signal(syscall.SIGTERM)
	held.ends(0, "")
	drain(ops, 0, "", "local/vm1", "--wait")
	drain(ops, 0, "leases are granted again", "vm1", "--off")
	cmdtest.Until(t, "it is up again", func() bool { return free(ci) == 1 })
}
