//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/pool/bus"
)

// userFiles makes users with JWT, or revokes one: the arguments of the program beside the permission files.
func userFiles(t *testing.T, env []string, args ...string) {
	t.Helper()
	c := exec.Command("go", append([]string{"run", "./jwt"}, args...)...)
	c.Dir, c.Env = cmdtest.Root+"/scripts/nats", append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Users with JWT lease. The server does not let one in that is revoked, or whose time is over: it is told so at once,
// with the setting to look at, and what it has leased goes on to its end.
func TestNATSUsersWithJWT(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	dir := w.Dir + "/users"
	userFiles(t, nil, dir, "host", "vm1")
	userFiles(t, nil, dir, "gateway", "ci", "old")
	s := startNATS(t, "-c", dir+"/server.conf")
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(t, tokens, "ci "+ciToken+" trust\n")
	host := w.With("BTOOLS_STATE="+w.Dir+"/host.json").WebPool([]string{"--token-file", tokens, "--nats", s.url(),
		"--socket", w.Dir + "/host"}, "NATS_NAME=vm1", "NATS_CREDS="+dir+"/vm1.creds", "_A_INSTANCES=3")
	as := func(user string) *cmdtest.World {
		return w.With("BTOOLS_POOL_NATS="+s.url(), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken, "PW_MCP_PROXY_NATS_NAME="+user,
			"PW_MCP_PROXY_NATS_CREDS="+dir+"/"+user+".creds")
	}
	cmdtest.Until(t, "the host is found", func() bool { return free(as("ci")) == 3 })
	barred := func(user, text string, held *command) {
		t.Helper()
		cmdtest.Until(t, "it is told that it is not let in", func() bool {
			return strings.Contains(held.errs.String(), "NATS refuses the user "+user+": nats: "+text) &&
				strings.Contains(held.errs.String(), ": look at NATS_CREDS "+dir)
		})
		timeout := 300 * time.Millisecond
		cmdtest.Until(t, "a request says so", func() bool { // if it is connected in time
			r := as(user).Run("bpool", "lease", "--timeout", timeout.String(), "A", "--", "true")
			timeout *= 2
			return r.Code == 75 && strings.Contains(r.Err, "look at NATS_CREDS "+dir)
		})
		if code, _ := cmdtest.Get(t, "GET", held.at()+"/json/version"); code != 200 || held.hasEnded() {
			t.Error("a lease has ended with the right to ask for one")
		}
		held.cmd.Process.Signal(syscall.SIGTERM)
		held.ends(0, "")
	}
	old := hold(as("old"), "A")
	var brief *command
	for valid := 3 * time.Second; brief == nil; valid *= 2 { // which is over before the lease on a busy machine
		userFiles(t, []string{"VALID=" + valid.String()}, dir, "gateway", "brief")
		c := begin(as("brief"), "lease", "--wait", "A")
		cmdtest.Until(t, "there is a lease, or it is too late", func() bool {
			return c.id() != "" || strings.Contains(c.errs.String(), "NATS refuses")
		})
		if c.id() != "" {
			brief = c
		} else {
			c.cmd.Process.Kill()
		}
	}
	barred("brief", "auth", brief)
	userFiles(t, nil, dir, "revoke", "old")
	s.cmd.Process.Signal(syscall.SIGHUP)
	barred("old", "auth", old)
	as("ci").Run("bpool", "lease", "A", "--", "true").Exits(t, 0, "")
	held := hold(as("ci"), "A")
	userFiles(t, nil, dir, "revoke", "vm1")
	s.cmd.Process.Signal(syscall.SIGHUP)
	cmdtest.Until(t, "the host is told that it is not let in", func() bool {
		return strings.Contains(host.Errs.String(), "NATS refuses the user vm1: nats: auth")
	})
	if code, _ := cmdtest.Get(t, "GET", held.at()+"/json/version"); code != 200 || held.hasEnded() {
		t.Error("a lease has ended with its host's right to offer")
	}
	held.cmd.Process.Signal(syscall.SIGTERM)
	held.ends(0, "")
}

// A gateway with all rights of NATS neither sees, uses, renews, holds nor ends the lease of another one: the host
// knows it by its token.
func TestLeasesOfOtherGateways(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	client, all := hosts(w, startNATS(t), 1, "_A_INSTANCES=2")
	cmdtest.WriteFile(t, w.Dir+"/tokens", "ci "+ciToken+" trust\nother "+otherToken+" trust max=1\n")
	other := webClient{t, all[0].HTTP, otherToken}
	held := hold(client, "A")
	id := held.id()
	cmdtest.Until(t, "the other token is known", func() bool {
		code, _ := other.do("/leases", "")
		return code == 200
	})
	body := `{"lease":"` + id + `"}`
	for _, c := range []struct {
		path, body string
		code       int
	}{
		{"/release", body, 404}, {"/renew", body, 404}, {"/state", body, 404},
		{"/freeze", body, 404}, {"/rest", body, 404},
		{"/session/" + id, "", 404},
		{"/lease/" + id + ".wrong/json/version", "", 404}, {"/lease/" + id + "/json/version", "", 404},
	} {
		if code, b := other.do(c.path, c.body); code != c.code {
			t.Errorf("%s of another's lease: %d %s", c.path, code, b)
		}
	}
	if code, b := other.do("/hold", `{"leases":["`+id+`"]}`); code != 200 || !strings.Contains(b, `"gone":["`+id+`"]`) {
		t.Errorf("another's lease is held: %d %s", code, b)
	}
	for _, path := range []string{"/leases", "/status"} {
		if code, b := other.do(path, ""); code != 200 || strings.Contains(b, id) {
			t.Errorf("%s shows another's lease: %d %s", path, code, b)
		}
	}
	if code, _ := cmdtest.Get(t, "GET", held.at()+"/json/version"); code != 200 || held.hasEnded() {
		t.Error("another token has ended the lease")
	}
	mine := client.With("PW_MCP_PROXY_HOSTS_TOKEN=" + otherToken)
	theirs := hold(mine, "A") // what its token may, and no more
	theirs.cmd.Process.Signal(syscall.SIGTERM)
	theirs.ends(0, "")
}

// Nothing that is secret crosses NATS, nor is it in a command line, an environment, a record or a log.
func TestSecretsOfNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	const natsPassword, spyPassword, cookie = "password-of-nats", "password-of-the-spy", "cookie-of-a-login"
	cmdtest.WriteFile(t, w.Dir+"/conf", fmt.Sprintf("authorization: { users: [ { user: u, password: %s }, "+
		"{ user: spy, password: %s } ] }\n", natsPassword, spyPassword))
	s := startNATS(t, "-c", w.Dir+"/conf")
	cmdtest.WriteFile(t, w.Dir+"/password", natsPassword+"\n")
	cmdtest.WriteFile(t, w.Dir+"/spy", spyPassword+"\n")
	cmdtest.WriteFile(t, w.Dir+"/token", ciToken+"\n")
	cmdtest.WriteFile(t, w.Dir+"/login.json", `{"cookies":[{"name":"n","value":"`+cookie+
		`","domain":"a.test","path":"/","expires":-1,"httpOnly":false,"secure":false,"sameSite":"Lax"}]}`)
	keys := bus.Keys{Servers: []string{s.url()}, Name: "spy", User: "spy", PasswordFile: w.Dir + "/spy"}
	spy, err := bus.Connect(keys, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer spy.Close()
	var mu sync.Mutex
	var messages strings.Builder
	_, err = spy.Subscribe(">", "", func(m *bus.Message) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&messages, "%s %s\n", m.Subject, m.Data)
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := func() string {
		mu.Lock()
		defer mu.Unlock()
		return messages.String()
	}
	user := []string{"NATS_USER=u", "NATS_PASSWORD_FILE=" + w.Dir + "/password"}
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	w.Run("bpool", "state", "import", w.Dir+"/login.json").Exits(t, 0, "")
	client, all := hosts(w.With("BTOOLS_LOG_LEVEL=debug"), s, 1, append(user, "_A_INSTANCES=1",
		"_A_ISOLATION=context", "BROWSER=chrome-headless-shell")...)
	client = client.With("PW_MCP_PROXY_HOSTS_TOKEN=@"+w.Dir+"/token", "PW_MCP_PROXY_"+user[0], "PW_MCP_PROXY_"+user[1])
	cmdtest.Until(t, "the host is found", func() bool { return free(client) == 1 })
	held := begin(client, "lease", "A", "--state", "login", "--", "sh", "-c",
		"echo {ws_endpoint}; env; exec sleep 60")
	cmdtest.Until(t, "there is a lease", func() bool { return strings.Contains(held.out.String(), "BTOOLS_") })
	waits := begin(client, "lease", "A", "--", "true")
	cmdtest.Until(t, "a request waits", func() bool { return listHosts(client)[0].Host.Waiting == 1 })
	admin := webClient{t, all[0].HTTP, ciToken}
	_, leases := admin.do("/leases", "")
	var parsed []cmdtest.Leased
	if err := json.Unmarshal([]byte(leases), &parsed); err != nil || len(parsed) != 1 {
		t.Fatal(leases, err)
	}
	_, path, _ := strings.Cut(parsed[0].Instance.HTTPURL, "/lease/"+parsed[0].Lease.ID+".")
	secrets := map[string]string{"password": natsPassword, "token": ciToken, "login": cookie,
		"secret of the lease": path}
	for name, secret := range secrets {
		if secret == "" {
			t.Errorf("no %s: %s", name, leases)
		}
	}
	check := func(where, text string) {
		for name, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s has the %s: %s", where, name, text)
			}
		}
	}
	pids := []int{held.cmd.Process.Pid, waits.cmd.Process.Pid, all[0].Cmd.Process.Pid}
	for _, dir := range globs("/proc/[0-9]*/stat") {
		var pid, parent int
		var name, state string
		if b, err := os.ReadFile(dir); err == nil {
			fmt.Sscanf(string(b), "%d %s %s %d", &pid, &name, &state, &parent)
			if parent == pids[0] {
				pids = append(pids, pid)
			}
		}
	}
	if len(pids) < 4 {
		t.Error("the command is not found")
	}
	for _, pid := range pids {
		for _, file := range []string{"cmdline", "environ"} {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil {
				t.Error(err)
			}
			check(fmt.Sprintf("the %s of a process", file), string(b))
		}
	}
	held.cmd.Process.Signal(syscall.SIGTERM)
	held.ends(143, "")
	waits.ends(0, "")
	cmdtest.Until(t, "the slot is free", func() bool { return free(client) == 1 })
	check("the command's output", held.out.String()+held.errs.String()+waits.errs.String())
	check("the host's log", all[0].Errs.String())
	check("a message", seen())
	for _, part := range []string{".free.A.any.u.", ".want.", ".offer.", ".load.", "$SRV.STATS.bpool", `"url":"http`} {
		if !strings.Contains(seen(), part) {
			t.Errorf("the test has seen no %s: %s", part, seen())
		}
	}
}

func globs(pattern string) []string {
	all, _ := filepath.Glob(pattern)
	return all
}
