//go:build linux

package main_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

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
	w.Run("bpool", "state", "import", w.Dir+"/ann.json", "--name", "here").Wants(t, 0, "")
	p := there.Shared("_A_INSTANCES=1", "_A_START=lazy", "_A_STATE=base")
	w.Run("bpool", "state", "import", w.Dir+"/ann.json").Wants(t, 0, "")
	if _, err := os.Stat(w.Dir + "/there/btools/states/ann.json"); err != nil {
		t.Error(err)
	}
	if got := w.Run("bpool", "state", "list", "-f", "state.name").Out; got != "ann\n" {
		t.Errorf("the service has %q", got)
	}
	w.Run("bpool", "lease", "--state", "here").Wants(t, 69, `there is no state "here"`)
	cmdtest.WriteFile(t, w.Dir+"/there/btools/states/damaged.json", `{"version":1,"state":{"cook`)
	w.Run("bpool", "lease", "--state", "damaged").Wants(t, 65, "is damaged")
	w.Run("bpool", "state", "delete", "damaged").Wants(t, 0, "")
	w.Run("bpool", "lease").Wants(t, 69, `there is no state "base"`)
	var e *control.Error
	err := control.Call(t.Context(), p.Socket, "lease",
		map[string]any{"state": "here", "state_dir": w.Dir + "/here/btools/states"}, nil)
	if !errors.As(err, &e) || e.Code != control.Unavailable || !strings.Contains(err.Error(), "/there/") {
		t.Errorf("with a directory of the client: %v", err)
	}
	w.Run("bpool", "state", "list", "--socket", w.Dir+"/none").Wants(t, 69, "no bpool service listens on")
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
	home, as := w.Other("bpool")
	site := cmdtest.Members(t)
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
	w.Run("bpool", "state", "import", w.Dir+"/base.json").Wants(t, 0, "") // which STATE reads
	another("state", "import", "shop.json").Wants(t, 0, "")
	if info, err := os.Stat(dir + "/uid-65534/shop.json"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the other user's state: %v, %v", info, err)
	}
	if got := another("state", "list", "-f", "state.name").Out; got != "shop\n" {
		t.Errorf("the other user has %q", got)
	}
	if got := w.Run("bpool", "state", "list", "-f", "state.name").Out; got != "base\n" {
		t.Errorf("the service's own user has %q", got)
	}
	w.Run("bpool", "lease", "--state", "shop").Wants(t, 69, `there is no state "shop"`)
	another("lease", "--state", "base").Wants(t, 69, `there is no state "base"`)
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
	another("release", lease("base")).Wants(t, 0, "")
	id := lease("another", "--state", "shop")
	another("state", "save", "saved", "--from", id).Wants(t, 0, "")
	if got := another("state", "export", "saved").Out; !strings.Contains(got, `"another"`) {
		t.Errorf("the saved state is %s", got)
	}
	another("release", id).Wants(t, 0, "")
	p.Stop()
	w.Clean()
}
