//go:build linux

package cmd_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"btools/lib/cmdtest"
	"btools/lib/settings"
)

var flagName = regexp.MustCompile(`--([a-z][a-z-]+)`)

// formerly are names that still work and that only the manual has.
var formerly = []string{"isolate", "extension", "session-throttle", "max-browsers", "browser-path", "no-vscode"}

// examples are lines of a page that may name other programs' flags.
var examples = regexp.MustCompile(`(?m)^\.Dl .*`)

// Pages name exactly the flags that the programs have.
func TestDocumentsNameTheFlags(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for p, commands := range map[string][]string{
		"bfind": nil, "bport": nil, "blaunch": {"list", "stop", "gc"},
		"bproxy": {"share", "hub",
			"list", "session", "status", "launch", "stop", "restart", "har", "cast", "downloads", "watch",
			"state", "extension", "join", "view", "top", "ask"},
		"bpool": {"serve", "check", "status", "lease", "renew", "release", "restart", "drain", "scale", "reload",
			"watch", "state", "downloads"},
		"bmcp": {"config", "auth", "call", "sessions", "end", "skill"},
	} {
		help := w.Run(p, "--help", "--all").Out
		for _, c := range commands {
			help += w.Run(p, c, "--help").Out
		}
		for _, path := range []string{"bash/" + p, "fish/" + p + ".fish"} { // where a shell looks for them by name
			if _, err := os.Stat(cmdtest.Root + "/completions/" + path); err != nil {
				t.Error(err)
			}
		}
		screen := strings.Split(strings.TrimSpace(w.Run(p, "--help").Out), "\n")
		if len(screen) > 24 || !regexp.MustCompile(`^\n(  \S.*\n){3}\n`).MatchString(strings.Join(screen[1:], "\n")) {
			t.Errorf("%s --help has %d lines, and begins with %q; want 24 at most, and three examples", p, len(screen),
				screen[:5])
		}
		var has []string
		common := false // whose lines name many
		for _, line := range strings.Split(help, "\n") {
			flags := flagName.FindAllStringSubmatch(line, -1)
			common = line == "Of every program:" || common && line != ""
			if !common && strings.HasPrefix(strings.TrimSpace(line), "--") {
				flags = flags[:min(1, len(flags))]
			} else if !common {
				flags = nil
			}
			for _, f := range flags {
				has = append(has, f[1])
			}
			if n := utf8.RuneCountInString(line); n > 80 {
				t.Errorf("%s --help has a line of %d columns: %s", p, n, line)
			}
		}
		page, err := os.ReadFile(cmdtest.Root + "/man/" + p + ".1")
		if err != nil {
			t.Fatal(err)
		}
		var named []string
		for _, m := range flagName.FindAllStringSubmatch(
			strings.ReplaceAll(examples.ReplaceAllString(string(page), ""), "Fl Fl ", "--"), -1) {
			named = append(named, m[1])
		}
		for _, f := range has {
			if !slices.Contains(named, f) {
				t.Errorf("%s.1 does not name --%s", p, f)
			}
		}
		for _, f := range named {
			if !slices.Contains(has, f) && !slices.Contains(formerly, f) {
				t.Errorf("%s.1 names --%s, which the program does not have", p, f)
			}
		}
	}
}

// readsVariable is where a program reads a variable of the environment.
var readsVariable = regexp.MustCompile(`(?:[gG]etenv\(|EnvVars: +\[\]string\{|\.cache\()"([A-Z_]+)"`)

// The ENVIRONMENT of a program's page, or that of btools(7), has each variable
// that the program reads.
func TestDocumentsNameTheVariables(t *testing.T) {
	t.Parallel()
	section := func(page string) string {
		b, err := os.ReadFile(cmdtest.Root + "/man/" + page)
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(b), ".Sh ENVIRONMENT\n")
		text, _, _ = strings.Cut(text, "\n.Sh ")
		return text
	}
	common := section("btools.7")
	for _, program := range programs(t) {
		text := section(program+".1") + common
		for _, line := range golist(t, "-deps", "-f",
			`{{with .Module}}{{if .Main}}{{$.Dir}} {{join $.GoFiles " "}}{{end}}{{end}}`, "./"+program) {
			files := strings.Fields(line)
			for _, f := range files[min(1, len(files)):] {
				source, err := os.ReadFile(files[0] + "/" + f)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range readsVariable.FindAllStringSubmatch(string(source), -1) {
					if !regexp.MustCompile(`Ev ` + m[1] + `\b`).MatchString(text) {
						t.Errorf("%s reads %s (%s), which its page does not name", program, m[1], f)
					}
				}
			}
		}
	}
}

// The manual has each setting with its default: a key in bpool.toml(5), and a flag in the
// page of its program.
func TestDocumentsNameTheSettings(t *testing.T) {
	t.Parallel()
	for _, missing := range undocumented(t, settings.Table()) {
		t.Error(missing)
	}
	row := &settings.Row{Name: "idle", Where: settings.Global | settings.Proxy, Default: "3s"}
	if missing := undocumented(t, []*settings.Row{row}); len(missing) != 2 {
		t.Errorf("of a setting that no page has, these are missing: %q", missing)
	}
}

// undocumented returns what the manual lacks of some settings.
func undocumented(t *testing.T, rows []*settings.Row) (missing []string) {
	pages := map[string]string{}
	for _, page := range []string{"bpool.toml.5", "bproxy.1", "bmcp.1", "bpool.1", "blaunch.1"} {
		b, err := os.ReadFile(cmdtest.Root + "/man/" + page)
		if err != nil {
			t.Fatal(err)
		}
		pages[page] = string(b)
	}
	// says reports whether an entry of a page has a default.
	says := func(page, entry, value string) bool {
		its, has := regexp.MustCompile(`^.*`+entry+`\b`), regexp.MustCompile(`\b`+value+`\b`)
		return slices.ContainsFunc(strings.Split(pages[page], "\n.It "), func(text string) bool {
			return its.MatchString(text) && has.MatchString(text)
		})
	}
	for _, r := range rows {
		if key := r.KeyName(); r.Where&settings.Keys != 0 &&
			!says("bpool.toml.5", "Cm "+strings.ToLower(key)+" , Ev "+key, r.Default) {
			missing = append(missing, "bpool.toml.5: "+key+", "+r.Default)
		}
		for at, page := range map[settings.Where]string{settings.Launches: "blaunch.1", settings.Proxy: "bproxy.1",
			settings.Share: "bproxy.1", settings.Hub: "bproxy.1", settings.Agent: "bmcp.1", settings.Lease: "bpool.1",
			settings.Request: "bproxy.1"} {
			value := r.DefaultAt(at)
			if strings.Trim(value, "0smh") == "" { // never, or no limit
				value = ""
			}
			value = strings.NewReplacer("m0s", "m", "h0m", "h").Replace(value)
			if r.Where&at != 0 && !says(page, "Fl Fl "+r.Name, value) {
				missing = append(missing, page+": --"+r.Name+", "+value)
			}
		}
	}
	return missing
}

// The manual has each method of control sockets, and no other one.
func TestDocumentsNameTheMethods(t *testing.T) {
	t.Parallel()
	read := func(path, expr string) (names []string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		if _, section, ok := strings.Cut(text, ".Sh CONTROL SOCKETS\n"); ok {
			text, _, _ = strings.Cut(section, ".Sh ")
		}
		for _, m := range regexp.MustCompile(expr).FindAllStringSubmatch(text, -1) {
			names = append(names, m[1])
		}
		return names
	}
	methods := read("../lib/control/api/api.go", `(?m)^\t\w+ +control\.Method\[.* = "(\w+)"$`)
	if named := read("../man/btools.7", `(?m)^\.It (\w+)$`); len(methods) < 18 || !slices.Equal(named, methods) {
		t.Errorf("btools(7) has the methods\n%q, rather than\n%q", named, methods)
	}
}
