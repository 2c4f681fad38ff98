//go:build linux

package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// windows puts on PATH what WSL has of Windows, played by programs of this
// system: blaunch.exe is blaunch, and fakes say what the others do.
func (w *world) windows() *world {
	w.t.Helper()
	bin, drive := filepath.Join(w.dir, "windows"), filepath.Join(w.dir, "c")
	os.MkdirAll(drive+"/nodejs/node_modules/npm/bin", 0o755)
	os.Mkdir(bin, 0o755)
	for path, text := range map[string]string{
		drive + "/nodejs/node_modules/npm/bin/npx-cli.js": "",
		drive + "/nodejs/node.exe": "#!/bin/sh\nprintf '%s\\n' \"$@\" >'" + w.dir +
			"/node-args'\nexec fakechild\n",
		bin + "/cmd.exe": "#!/bin/sh\nprintf 'C:\\\\nodejs\\\\node.exe\\r\\n'\n",
		bin + "/wslpath": `#!/bin/sh
case $1 in
-w) case $2 in ` + drive + `*) printf '%s\n' "C:${2#` + drive + `}";;
	*) printf '%s\n' "//wsl.localhost/Test$2";; esac | tr / '\\';;
-u) printf '%s\n' "$2" | tr '\\' / | sed 's|^C:|` + drive + `|';;
esac
`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	inside := *w
	inside.env = append(slices.Clone(w.env), "WSL_DISTRO_NAME=Test", "PATH="+bin+":"+w.path())
	return &inside
}

// path is PATH.
func (w *world) path() (path string) {
	for _, kv := range w.env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	return path
}

var wslPool = []string{"WSL_WINDOWS=true", "_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_TIMEOUT=60000",
	"BROWSER=chrome-headless-shell"}

// What WSL_WINDOWS lacks is told, each thing by its name.
func TestWSLIsMissing(t *testing.T) {
	base := newWorld(t)
	exe := filepath.Join(base.dir, "windows", "blaunch.exe")
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
			w := base.windows()
			os.Remove(exe)
			if c.blaunch != "" {
				os.WriteFile(exe, []byte(c.blaunch), 0o755)
			}
			if c.outside {
				w.env = append(w.env, "WSL_DISTRO_NAME=")
			}
			vars := slices.Clone(wslPool)
			if c.browser != "" {
				vars = append(vars, "BROWSER="+c.browser)
			}
			p := w.pool(vars...)
			if i := p.status().Pools[0].Instances[0]; i.Status != "failed" ||
				!strings.Contains(i.Health.Error, c.want) {
				t.Errorf("%+v", i)
			}
			p.stop()
		})
	}
	base.clean()
}

// A pool with WSL_WINDOWS launches by blaunch.exe; its process here stands for
// the browser there, and is all that has to end.
func TestWSLPool(t *testing.T) {
	w := newWorld(t).windows()
	if err := os.Symlink(bin+"/blaunch", w.dir+"/windows/blaunch.exe"); err != nil {
		t.Fatal(err)
	}
	p := w.pool(wslPool...)
	l := p.lease()
	if code, body := get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 200 {
		t.Errorf("%d %s", code, body)
	}
	i := p.status().Pools[0].Instances[0]
	if args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", i.PID)); i.Status != "healthy" ||
		!strings.Contains(string(args), "blaunch.exe\x00--wait") || i.PID != l.Instance.PID {
		t.Errorf("%+v, %q", i, args)
	}
	syscall.Kill(i.PID, syscall.SIGKILL)
	until(t, "another one has taken its place", func() bool {
		now := p.status().Pools[0].Instances[0]
		return now.Status == "healthy" && now.PID != i.PID
	})
	p.stop()
	w.clean()
	p = w.pool(wslPool...)
	p.cmd.Process.Kill()
	p.cmd.Wait()
	w.clean()
}

// A child for such an instance runs on Windows' Node.js.
func TestWSLChild(t *testing.T) {
	w := newWorld(t).windows()
	if err := os.Symlink(bin+"/blaunch", w.dir+"/windows/blaunch.exe"); err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, v := range wslPool {
		env = append(env, "PW_MCP_PROXY_"+v)
	}
	env = append(env, "PATH="+w.path())
	m := w.mcp(env, "--mcp", "kid=npx -y some-mcp {cdp_endpoint}")
	if got := m.tool("echo", `{}`).text(t); !strings.Contains(got, "echo") {
		t.Errorf(`got %q, want "echo"`, got)
	}
	args, _ := os.ReadFile(w.dir + "/node-args")
	if f := strings.Split(strings.TrimSpace(string(args)), "\n"); len(f) != 4 ||
		f[0] != `C:\nodejs\node_modules\npm\bin\npx-cli.js` || f[2] != "some-mcp" ||
		!strings.HasPrefix(f[3], "http://127.0.0.1:") {
		t.Errorf("%q", f)
	}
	m.end()

	os.Remove(w.dir + "/windows/cmd.exe")
	m = w.mcp(env, "--mcp", "kid=npx -y some-mcp {cdp_endpoint}")
	m.tool("echo", "{}") // a child whose tools are known is started by a call
	until(t, "what is missing is told", func() bool {
		return strings.Contains(m.tool("coordinator_status", `{}`).text(t), "cmd.exe is not on PATH")
	})
}
