//go:build linux

package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"btools/lib/control"
	"btools/lib/logins/remote"
	"btools/lib/pool"
	"btools/lib/proc"
	"btools/lib/state"
	"btools/lib/tokens"
)

// A lease of a retired process goes on by a hold of the service, also if that has come to a process which was replaced
// just now. It is gone when the retired process has ended, and not when that does not answer.
func TestHoldOfARetiredProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := state.Open(func(string) string { return filepath.Join(dir, "state.json") })
	other := exec.Command("sleep", "60") // stands for the retired process
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	id, err := proc.Of(other.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	list := func(socket string) {
		t.Helper()
		if err := store.Update(t.Context(), func(f *state.File) error {
			f.Set(state.PoolService{Process: id, Control: dir + socket, Former: dir + "/s"})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	left := make(chan struct{})
	close(left)
	before, _ := startService(t, "_A_INSTANCES=1")
	after, _ := startService(t, "_A_INSTANCES=1")
	serveAt(t, dir+"/before", &handler{service: before, states: &remote.Server{}, left: left})
	service := &handler{service: after, states: &remote.Server{}, store: store, path: dir + "/s"}
	serveAt(t, dir+"/s", service)
	replaced := &handler{service: after, left: left, path: dir + "/s"}
	list("/before")

	who := control.ByToken(&tokens.Token{Name: "t", Trust: true})
	g, _, err := before.Lease(t.Context(), pool.Request{Pool: "A", By: who})
	if err != nil {
		t.Fatal(err)
	}
	ctx, p := control.WithPeer(t.Context(), who), pool.Holding{Leases: []string{g.ID}}
	for name, h := range map[string]*handler{"the service": service, "one replaced just now": replaced} {
		if held := h.holdElsewhere(ctx, p); len(held.Gone)+len(held.Unheard) > 0 {
			t.Errorf("the retired process has the lease; %s: %+v", name, held)
		}
	}
	if err := os.Remove(dir + "/state.json"); err != nil {
		t.Fatal(err)
	}
	if held := service.holdElsewhere(ctx, p); len(held.Gone)+len(held.Unheard) > 0 {
		t.Errorf("the state file is lost: %+v", held)
	}
	list("/nobody")
	for name, h := range map[string]*handler{"the service": service, "one replaced just now": replaced} {
		if held := h.holdElsewhere(ctx, p); len(held.Gone) > 0 || len(held.Unheard) != 1 {
			t.Errorf("the retired process does not answer; %s: %+v", name, held)
		}
	}
	other.Process.Kill()
	other.Wait()
	if held := service.holdElsewhere(ctx, p); len(held.Gone) != 1 || len(held.Unheard) > 0 {
		t.Errorf("the retired process has ended: %+v", held)
	}
}
