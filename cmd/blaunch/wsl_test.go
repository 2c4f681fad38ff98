//go:build linux

package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// What WSL_WINDOWS lacks is told, each thing by its name.
func TestWSLIsMissing(t *testing.T) {
	t.Parallel()
	base := cmdtest.New(t)
	exe := filepath.Join(base.Dir, "windows", "blaunch.exe")
	for _, c := range []struct {
		name, blaunch string // the text of blaunch.exe, "" if there is none
		outside       bool
		browser, want string
	}{
		{name: "WSL", outside: true, want: "this is not WSL"},
		{name: "blaunch.exe", want: "cannot find blaunch.exe"},
		{name: "interop", blaunch: "MZ\x90\x00", want: "interop is off"},
		{name: "browser", blaunch: "#!/bin/sh\necho 'blaunch.exe: no edge is installed' >&2\nexit 69\n",
			want: "no edge is installed"},
		{name: "loopback",
			blaunch: "#!/bin/sh\necho '{\"v\":1,\"instance\":{\"port\":1,\"ws_url\":\"ws://127.0.0.1:1/x\"}}'\ncat\n",
			want:    "can't be reached from WSL"},
		{name: "path", blaunch: "#!/bin/sh\n", browser: "/opt/none", want: "is not on a drive of Windows"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := base.FakeWindows()
			os.Remove(exe)
			if c.blaunch != "" {
				os.WriteFile(exe, []byte(c.blaunch), 0o755)
			}
			if c.outside {
				w.Env = append(w.Env, "WSL_DISTRO_NAME=")
			}
			vars := slices.Clone(cmdtest.WSLPool)
			if c.browser != "" {
				vars = append(vars, "BROWSER="+c.browser)
			}
			p := w.Pool(vars...)
			cmdtest.Until(t, "it has failed, and will be tried again: "+c.want, func() bool {
				i := p.Status().Pools[0].Instances[0]
				return i.Status == "failed" && strings.Contains(i.Health.Error, c.want)
			})
			p.Stop()
		})
	}
	base.Clean()
}
