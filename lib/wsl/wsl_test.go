//go:build unix

package wsl

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// side puts programs of Windows on PATH, played by scripts of the shell. Its
// drive C: is a directory, which it returns.
func side(t *testing.T, programs map[string]string) (drive string) {
	t.Helper()
	dir := t.TempDir()
	drive = filepath.Join(dir, "mnt", "c")
	bin := filepath.Join(dir, "bin")
	for _, d := range []string{drive, bin} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{"wslpath": `#!/bin/sh
case $1 in
-w) case $2 in "` + drive + `"*) printf '%s\n' "C:${2#` + drive + `}";;
	*) printf '%s\n' "//wsl.localhost/Debian$2";; esac | tr / '\\';;
-u) printf '%s\n' "$2" | tr '\\' / | sed "s|^C:|` + drive + `|";;
esac
`}
	for name, text := range programs {
		all[name] = text
	}
	for name, text := range all {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":/usr/bin:/bin")
	return drive
}

func inWSL(k string) string {
	if k == "WSL_DISTRO_NAME" {
		return "Debian"
	}
	return ""
}

func TestPath(t *testing.T) {
	drive := side(t, nil)
	os.Mkdir(filepath.Join(drive, "Users"), 0o755)
	for name, want := range map[string]string{
		drive:                            "C:",
		drive + "/Users":                 `C:\Users`,
		drive + "/Users/not/there yet//": `C:\Users\not\there yet`,
		"/tmp":                           "",
	} {
		got, err := Path(t.Context(), name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

const where = "#!/bin/sh\n[ \"$*\" = \"/d /c where node\" ] || exit 9\n" +
	"printf 'C:\\\\Program Files\\\\nodejs\\\\node.exe\\r\\nC:\\\\other\\\\node.exe\\r\\n'\n"

func TestNode(t *testing.T) {
	drive := side(t, map[string]string{"cmd.exe": where, "script": "#!/usr/bin/env node\n", "program": "#!/bin/sh\n"})
	npm := filepath.Join(drive, "Program Files/nodejs/node_modules/npm/bin")
	os.MkdirAll(npm, 0o755)
	os.WriteFile(filepath.Join(npm, "npx-cli.js"), nil, 0o644)
	node := filepath.Join(drive, "Program Files/nodejs/node.exe")
	for _, c := range []struct{ argv, want []string }{
		{[]string{"npx", "-y", "@playwright/mcp", "a & b"},
			[]string{node, `C:\Program Files\nodejs\node_modules\npm\bin\npx-cli.js`, "-y", "@playwright/mcp",
				"a & b"}},
		{[]string{"/usr/bin/node", "server.js"}, []string{node, "server.js"}},
		{[]string{"script", "x"}, []string{node, `\\wsl.localhost\Debian*bin\script`, "x"}},
		{[]string{"program", "x"}, []string{"program", "x"}},
		{[]string{"none", "x"}, []string{"none", "x"}},
	} {
		got, err := Node(t.Context(), inWSL, c.argv)
		if !slices.EqualFunc(got, c.want, func(g, w string) bool {
			head, end, any := strings.Cut(w, "*")
			return g == w || any && strings.HasPrefix(g, head) && strings.HasSuffix(g, end)
		}) || err != nil {
			t.Errorf("%q: %q, %v", c.argv, got, err)
		}
	}
}

// What is missing is named.
func TestMissing(t *testing.T) {
	for _, c := range []struct {
		name     string
		programs map[string]string
		outside  bool
		want     string
	}{
		{name: "WSL", outside: true, want: "not WSL"},
		{name: "cmd.exe", want: "cmd.exe is not on PATH"},
		{name: "interop", programs: map[string]string{"cmd.exe": "MZ\x90\x00"}, want: "interop is off"},
		{name: "node", programs: map[string]string{"cmd.exe": "#!/bin/sh\nexit 1\n"}, want: "Windows has no Node.js"},
		{name: "npm", programs: map[string]string{"cmd.exe": where}, want: "no npm beside"},
	} {
		t.Run(c.name, func(t *testing.T) {
			side(t, c.programs)
			getenv := inWSL
			if c.outside {
				if b, _ := os.ReadFile("/proc/sys/kernel/osrelease"); strings.Contains(strings.ToLower(string(b)),
					"microsoft") {
					t.Skip("this is WSL")
				}
				getenv = func(string) string { return "" }
			}
			if _, err := Node(t.Context(), getenv, []string{"npx", "x"}); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
