//go:build unix

package proxy

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"btools/lib/launch/options"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/state"
)

// A launcher that has ended leaves a record. Its browser is stopped only if it
// runs on this machine, was started by this launch, and is not leased.
func TestLauncherHasLeft(t *testing.T) {
	t.Parallel()
	const id = "inst_1_a"
	for _, c := range []struct {
		name    string
		listed  bool
		id      string // of the entry
		other   bool   // the entry's supervisor is another process
		before  bool
		lease   bool
		stopped bool
	}{
		{name: "of another machine"},
		{name: "of another instance", listed: true, id: "inst_2_b"},
		{name: "of another supervisor", listed: true, id: id, other: true},
		{name: "launched before", listed: true, id: id, before: true},
		{name: "leased", listed: true, id: id, lease: true},
		{name: "its own", listed: true, id: id, stopped: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			supervisor := exec.Command("sleep", "1000")
			if err := supervisor.Start(); err != nil {
				t.Fatal(err)
			}
			identity, err := proc.Of(supervisor.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			if c.other {
				identity = proc.Self()
			}
			file := filepath.Join(t.TempDir(), "state", "state.json")
			store := state.Open(func(string) string { return file })
			if c.listed {
				started := time.Now().Add(time.Minute)
				if c.before {
					started = time.Now().Add(-time.Minute)
				}
				r := record.New()
				r.MustSet("instance", record.Instance{ID: c.id, StartedAt: record.Time{Time: started}})
				if err := store.Update(t.Context(), func(f *state.File) error {
					f.Instances = append(f.Instances, state.Instance{ID: c.id, Supervisor: identity, Record: r})
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			printed := record.New()
			printed.MustSet("instance", record.Instance{ID: id, Port: 1, SupervisorPID: supervisor.Process.Pid})
			if c.lease {
				printed.MustSet("lease", record.Lease{ID: "lease_1"})
			}
			end := filepath.Join(t.TempDir(), "end")
			p := &Proxy{State: store}
			p.Launch = func(ctx context.Context, _ options.Options, _ string) (*sibling.Browser, error) {
				return sibling.Launch(ctx, sibling.Spec{
					Argv:  []string{"/bin/sh", "-c", `cat; until [ -e "$0" ]; do sleep 0.01; done`, end},
					Input: printed, Timeout: patience, Grace: time.Second, Stderr: os.Stderr,
				})
			}
			serve(t, p)
			if err := p.Relaunch(t.Context(), options.Options{}, false); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(end, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			until(t, "the end is noted", func() bool { s, _ := p.Status(); return s.State == Stopped })
			if !c.stopped {
				supervisor.Process.Kill() // the first signal that comes ends it
			}
			supervisor.Wait()
			if got := supervisor.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM; got != c.stopped {
				t.Errorf("it was stopped: %v", got)
			}
		})
	}
}
