//go:build linux

package main_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// A pool with WSL_WINDOWS launches by blaunch.exe; its process here stands for
// the browser there, and is all that has to end.
func TestWSLPool(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t).FakeWindows()
	if err := os.Symlink(cmdtest.Bin+"/blaunch", w.Dir+"/windows/blaunch.exe"); err != nil {
		t.Fatal(err)
	}
	p := w.Pool(cmdtest.WSLPool...)
	l := p.Lease()
	if code, body := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	i := p.Status().Pools[0].Instances[0]
	if args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", i.PID)); i.Status != "healthy" ||
		!strings.Contains(string(args), "blaunch.exe\x00--wait") || i.PID != l.Instance.PID {
		t.Errorf("%+v, %q", i, args)
	}
	syscall.Kill(i.PID, syscall.SIGKILL)
	cmdtest.Until(t, "another one has taken its place", func() bool {
		now := p.Status().Pools[0].Instances[0]
		return now.Status == "healthy" && now.PID != i.PID
	})
	p.Stop()
	w.Clean()
	p = w.Pool(cmdtest.WSLPool...)
	p.Cmd.Process.Kill()
	p.Cmd.Wait()
	w.Clean()
}
