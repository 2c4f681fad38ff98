//go:build linux

package cmd_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// A command starts when the application under test is ready, and not at all if that
// takes too long or a signal comes first. Neither a browser nor a lease waits with it.
func TestWaitFor(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Pool("_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	nobody := closed.Addr().String()
	fake := []string{"--browser", cmdtest.Bin + "/fakebrowser"}
	programs := map[string][]string{"blaunch": fake, "bproxy": fake, "bpool": {"lease"}}
	for name, args := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			site := cmdtest.Serve(t, func(rw http.ResponseWriter, r *http.Request) {
				if asked.Add(1) < 3 {
					rw.WriteHeader(503)
				}
			})
			run := func(more ...string) cmdtest.Result {
				t.Helper()
				return w.Run(name, append(args[:len(args):len(args)], more...)...)
			}
			r := run("--wait-for", site+"/", "--wait-for", strings.TrimPrefix(site, "http://"), "--", "sh", "-c",
				"echo ran; exit 7")
			if n := asked.Load(); r.Code != 7 || r.Out != "ran\n" || n != 3 {
				t.Errorf("%+v, after %d requests; want the command after 3", r, n)
			}
			run("--wait-for", "http://"+nobody+"/x", "--wait-for", nobody, "--wait-timeout", "1s", "--",
				"echo", "ran").Exits(t, 75, fmt.Sprintf("http://%s/x is not ready: connection refused; %s is not "+
				"ready: connection refused after 1s", nobody, nobody))
			run("--wait-for", nobody).Exits(t, 64, "hint: bport --wait")
			run("--wait-for", "3000", "--", "true").Exits(t, 64, "did you mean localhost:3000?")
			run("--wait-timeout", "1s", "--", "true").Exits(t, 64, "--wait-timeout needs --wait-for")
			for signal, code := range map[os.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
				c := w.Cmd(name, append(args[:len(args):len(args)], "--wait-for", nobody, "--", "echo", "ran")...)
				said := &cmdtest.SyncBuffer{}
				c.Stderr = said
				cmdtest.Start(t, c)
				cmdtest.Until(t, "it says what it waits for", func() bool {
					return strings.Contains(said.String(), "waiting for "+nobody+": connection refused")
				})
				if x := w.State().Instances; name == "blaunch" && len(x) > 1 { // that of the pool
					t.Errorf("browsers wait with it: %+v", x)
				}
				c.Process.Signal(signal)
				c.Wait()
				if got := c.ProcessState.ExitCode(); got != code {
					t.Errorf("%v: exit %d, want %d: %s", signal, got, code, said)
				}
			}
		})
	}
	t.Run("bport", func(t *testing.T) {
		t.Parallel()
		site := cmdtest.Serve(t, func(http.ResponseWriter, *http.Request) {})
		if r := w.Run("bport", "--wait", site); r.Code != 0 || r.Out+r.Err != "" {
			t.Errorf("%+v, want silence", r)
		}
		w.Run("bport", "--wait", nobody, "--wait", site, "--wait-timeout", "100ms").Exits(t, 75,
			nobody+" is not ready: connection refused after 100ms")
		w.Run("bport", "--wait", site, "-n", "2").Exits(t, 64, "--wait and --count exclude each other")
		w.Run("bport", "--wait-timeout", "1s").Exits(t, 64, "--wait-timeout needs --wait")
		w.Run("bport", "--wait", site, "--wait-timeout", "0s").Exits(t, 64, "positive duration")
	})
}
