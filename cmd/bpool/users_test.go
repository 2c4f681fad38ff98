//go:build linux

package main_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"btools/lib/cmdtest"
	"btools/lib/control"
)

// The names of states are those of the service, whose directory no client gives.
func TestStatesOfAService(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	there := w.With("XDG_STATE_HOME=" + w.Dir + "/there")
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/here")
	const state = `{"origins":[{"origin":"https://a.test"}]}`
	cmdtest.WriteFile(t, w.Dir+"/ann.json", state)
	w.Run("bpool", "state", "import", w.Dir+"/ann.json", "--name", "here").Exits(t, 0, "")
	p := there.Shared("_A_INSTANCES=1", "_A_START=lazy", "_A_STATE=base")
	w.Run("bpool", "state", "import", w.Dir+"/ann.json").Exits(t, 0, "")
	if _, err := os.Stat(w.Dir + "/there/btools/states/ann.json"); err != nil {
		t.Error(err)
	}
	if got := w.Run("bpool", "state", "list", "-f", "state.name").Out; got != "ann\n" {
		t.Errorf("the service has %q", got)
	}
	w.Run("bpool", "lease", "--state", "here").Exits(t, 69, `there is no state "here"`)
	cmdtest.WriteFile(t, w.Dir+"/there/btools/states/damaged.json", `{"version":1,"state":{"cook`)
	w.Run("bpool", "lease", "--state", "damaged").Exits(t, 65, "is damaged")
	w.Run("bpool", "state", "delete", "damaged").Exits(t, 0, "")
	w.Run("bpool", "lease").Exits(t, 69, `there is no state "base"`)
	var e *control.Error
	err := control.Path(p.Socket).Call(t.Context(), "hold",
		map[string]any{"settings": map[string]any{"state": "here"}, "state_dir": w.Dir + "/here/btools/states"}, nil)
	if !errors.As(err, &e) || e.Code != control.Unavailable || !strings.Contains(err.Error(), "/there/") {
		t.Errorf("with a directory of the client: %v", err)
	}
	w.Run("bpool", "state", "list", "--socket", w.Dir+"/none").Exits(t, 69, "no bpool service listens on")
	p.Stop()
	if got := w.Run("bpool", "state", "list", "-f", "state.name").Out; got != "here\n" {
		t.Errorf("without a service there are %q", got)
	}
	w.Clean()
}

// Each user of a service has their own names.
func TestStatesOfUsers(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	home, as := w.OtherUser("bpool")
	site := cmdtest.LoginSite(t)
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	dir := w.Dir + "/xdg/btools/states"
	token := func(value string) string {
		return `{"origins":[{"origin":"` + site + `","localStorage":[{"name":"token","value":"` + value + `"}]}]}`
	}
	cmdtest.WriteFile(t, w.Dir+"/base.json", token("base"))
	cmdtest.WriteFile(t, home+"/shop.json", token("another"))
	p := w.Shared("_A_INSTANCES=1", "_A_STATE=base")
	if err := errors.Join(os.Chmod(w.Dir+"/state", 0o755), os.Chmod(p.Socket, 0o666),
		os.Chown(home+"/shop.json", int(as.Credential.Uid), -1)); err != nil {
		t.Fatal(err)
	}
	// another runs bpool as a client that can read nothing of the service's.
	another := func(args ...string) cmdtest.Result {
		t.Helper()
		c := w.Cmd(w.Dir+"/bin/bpool", append(args, "--socket", p.Socket)...)
		c.Env = append(slices.Clone(w.Env), "HOME="+home, "XDG_STATE_HOME=", "BTOOLS_STATE="+home+"/state.json")
		c.Dir = home
		c.SysProcAttr = as
		var errs strings.Builder
		c.Stderr = &errs
		out, _ := c.Output()
		return cmdtest.Result{Out: string(out), Err: errs.String(), Code: c.ProcessState.ExitCode()}
	}
	w.Run("bpool", "state", "import", w.Dir+"/base.json").Exits(t, 0, "") // which STATE reads
	another("state", "import", "shop.json").Exits(t, 0, "")
	if info, err := os.Stat(dir + "/uid-65534/shop.json"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the other user's state: %v, %v", info, err)
	}
	if got := another("state", "list", "-f", "state.name").Out; got != "shop\n" {
		t.Errorf("the other user has %q", got)
	}
	if got := w.Run("bpool", "state", "list", "-f", "state.name").Out; got != "base\n" {
		t.Errorf("the service's own user has %q", got)
	}
	w.Run("bpool", "lease", "--state", "shop").Exits(t, 69, `there is no state "shop"`)
	another("lease", "--state", "base").Exits(t, 69, `there is no state "base"`)
	lease := func(want string, args ...string) (id string) {
		t.Helper()
		r := another(append([]string{"lease", "-f", "lease.id,instance.ws_url"}, args...)...)
		id, ws, _ := strings.Cut(strings.TrimSpace(r.Out), "\t")
		if r.Code != 0 || ws == "" {
			t.Fatalf("lease %v: %+v", args, r)
		}
		if got := shows(t, ws, site); got != "shows nobody, "+want+", nothing" {
			t.Errorf("the lease of the other user shows %q", got)
		}
		return id
	}
	another("release", lease("base")).Exits(t, 0, "")
	id := lease("another", "--state", "shop")
	for uid, want := range map[int]int{int(as.Credential.Uid): 200, 70001: 403, 0: 200} {
		i := p.Status().Pools[0].Instances[0]
		for _, path := range []string{"/json/version", "/downloads"} {
			if code, body := getAs(t, uid, i.HTTPURL+path); code != want {
				t.Errorf("user %d gets %d for %s of the lease: %s", uid, code, path, body)
			}
		}
	}
	another("state", "save", "saved", "--from", id).Exits(t, 0, "")
	if got := another("state", "export", "saved").Out; !strings.Contains(got, `"another"`) {
		t.Errorf("the saved state is %s", got)
	}
	another("release", id).Exits(t, 0, "")
	p.Stop()
	w.Clean()
}

// getAs requests a URL as another user, and returns the answer.
func getAs(t *testing.T, uid int, url string) (code int, body string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			// The thread makes files, and so the socket, as that user.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			unix.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
			defer unix.RawSyscall(unix.SYS_SETFSUID, uintptr(os.Geteuid()), 0, 0)
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}}
	resp, err := (&http.Client{Transport: transport}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// BTOOLS_POOL_SOCKET names the service for each command that uses one, and for serve; --socket wins.
func TestPoolSocketVariable(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	there, none := w.Dir+"/there.sock", w.Dir+"/none.sock"
	w.Env = append(w.Env, "BTOOLS_POOL_SOCKET="+there)
	p := w.Pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1", "LAUNCH=false")
	if p.Socket != there {
		t.Errorf("it listens on %s", p.Socket)
	}
	w.Env = append(w.Env, "BTOOLS_STATE="+w.Dir+"/elsewhere/state.json") // the variable alone leads to it
	l := p.Lease()
	cmdtest.WriteFile(t, w.Dir+"/shop.json", `{"origins":[{"origin":"https://a.test"}]}`)
	for _, args := range []string{"status", "renew " + l.Lease.ID, "restart A", "scale A 1", "reload", "drain",
		"drain --off", "state import shop.json", "state list", "release " + l.Lease.ID, "lease --timeout 5s",
		"downloads " + l.Lease.ID, "state save --from " + l.Lease.ID + " x", "watch"} {
		c := w.With("BTOOLS_POOL_SOCKET=" + none)
		c.Run("bpool", strings.Fields(args)...).Exits(t, 69, "no bpool service listens on "+none)
		if r := w.Run("bpool", append(strings.Fields(args), "--socket", none)...); r.Code != 69 ||
			!strings.Contains(r.Err, none) {
			t.Errorf("%s with another --socket: %+v", args, r)
		}
	}
	p.Stop()
	w.Clean()
}

// The system's units serve the members of a group, as a user who has no home.
func TestSystemUnits(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	home, as := w.OtherUser("bpool", "blaunch", "fakebrowser")
	unit := cmdtest.Unit(t, "bpool.socket", "bpool.socket.d/system.conf", "bpool.service.d/system.conf")
	group, err := os.ReadFile(cmdtest.Root + "/scripts/systemd/btools.sysusers")
	if err != nil || string(group) != "g "+unit["SocketGroup"]+" -\n" {
		t.Errorf("the group of the socket is %q, and systemd makes %q, %v", unit["SocketGroup"], group, err)
	}
	mode, err := strconv.ParseUint(unit["SocketMode"], 8, 32)
	if err != nil {
		t.Fatal(err)
	}
	const gid = 4242 // of the group
	socket, run := w.Dir+"/bpool.sock", home+"/run"
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, _ := l.(*net.UnixListener).File()
	defer f.Close()
	if err := errors.Join(os.Chmod(socket, os.FileMode(mode)), os.Chown(socket, 0, gid), os.Mkdir(run, 0o755),
		os.Mkdir(run+"/bpool", 0o755), os.Chown(run+"/bpool", int(as.Credential.Uid), -1)); err != nil {
		t.Fatal(err)
	}
	p := &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("sh", "-c", `export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" serve`,
		w.Dir+"/bin/bpool")}
	there := strings.NewReplacer("%t", run, "%C/bpool", home, "%S/"+unit["StateDirectory"], home+"/state")
	p.Cmd.Env = append(strings.Fields(there.Replace(unit["Environment"])),
		"PATH="+w.Dir+"/bin:"+os.Getenv("PATH"), "PW_MCP_PROXY_BROWSER="+w.Dir+"/bin/fakebrowser")
	p.Cmd.ExtraFiles, p.Cmd.SysProcAttr, p.Cmd.Dir = []*os.File{f}, as, "/"
	p.Start()
	client := func(uid, gid uint32, args ...string) cmdtest.Result {
		t.Helper()
		c := w.Cmd(w.Dir+"/bin/bpool", args...)
		c.Env = []string{"HOME=/nonexistent", "BTOOLS_STATE=" + home + "/none/state.json",
			"BTOOLS_POOL_SOCKET=" + socket}
		c.Dir, c.Stdin = "/", strings.NewReader("")
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
		var errs strings.Builder
		c.Stderr = &errs
		out, _ := c.Output()
		return cmdtest.Result{Out: string(out), Err: errs.String(), Code: c.ProcessState.ExitCode()}
	}
	cmdtest.WriteFile(t, home+"/shop.json", `{"origins":[{"origin":"https://a.test"}]}`)
	if err := os.Chmod(home+"/shop.json", 0o644); err != nil {
		t.Fatal(err)
	}
	client(5000, gid, "state", "import", home+"/shop.json").Exits(t, 0, "")
	if _, err := os.Stat(home + "/state/btools/states/uid-5000/shop.json"); err != nil {
		t.Errorf("the state is not in the directory that is kept: %v", err)
	}
	if got := client(5000, gid, "state", "list", "-f", "state.name").Out; got != "shop\n" {
		t.Errorf("a member of the group has the states %q", got)
	}
	if got := client(5001, gid, "state", "list", "-f", "state.name").Out; got != "" {
		t.Errorf("another member has the states %q", got)
	}
	lease := client(5001, gid, "lease", "-f", "lease.id,instance.http_url")
	lease.Exits(t, 0, "")
	id, endpoint, _ := strings.Cut(strings.TrimSpace(lease.Out), "\t")
	// It belongs to that member alone.
	for _, args := range [][]string{{"release", id}, {"renew", id}, {"downloads", id},
		{"state", "save", "x", "--from", id}} {
		client(5000, gid, args...).Exits(t, 69, "there is no lease "+id)
	}
	for _, args := range [][]string{{"drain"}, {"scale", "DEFAULT", "2"}, {"restart", "DEFAULT"}, {"reload"}} {
		client(5000, gid, args...).Exits(t, 69,
			"only root, the user who runs the service and tokens with admin may call "+args[0])
	}
	if got := client(5000, gid, "release", "--all").Out; got != "" {
		t.Errorf("release --all of another member ends %q", got)
	}
	if got := client(5000, gid, "status").Out; strings.Contains(got, id) || strings.Contains(got, endpoint) ||
		!strings.Contains(got, `"by":"uid:5001"`) {
		t.Errorf("another member sees %s", got)
	}
	for uid, want := range map[int]int{5001: 200, 5000: 403, 0: 200, int(as.Credential.Uid): 200} {
		if code, body := getAs(t, uid, endpoint+"/json/version"); code != want ||
			want == 403 && !strings.Contains(body, `"code":"not_allowed"`) {
			t.Errorf("user %d gets %d from the endpoint, want %d: %s", uid, code, want, body)
		}
	}
	client(5001, gid, "release", id).Exits(t, 0, "")
	if code, _ := getAs(t, 5001, endpoint+"/json/version"); code != 403 {
		t.Errorf("after the lease its user gets %d from the endpoint", code)
	}
	client(0, 0, "drain").Exits(t, 0, "")
	client(5000, 5000, "status").Exits(t, 1, "permission denied")
	p.Stop()
	w.Clean()
}
