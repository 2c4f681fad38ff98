//go:build linux

package cmd_test

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"btools/lib/cmdtest"
)

var flagName = regexp.MustCompile(`--([a-z][a-z-]+)`)

// formerly are names that still work and that only the manual has.
var formerly = []string{"isolate", "extension", "session-throttle", "max-browsers"}

// examples are lines of a page that may name other programs' flags.
var examples = regexp.MustCompile(`(?m)^\.Dl .*`)

// Pages and completions name exactly the flags that the programs have.
func TestDocumentsNameTheFlags(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	for p, commands := range map[string][]string{
		"bfind": nil, "bport": nil, "blaunch": {"list", "stop", "gc"},
		"bproxy": {"share", "hub",
			"list", "session", "status", "launch", "stop", "restart", "har", "cast", "downloads", "watch",
			"state", "extension", "join"},
		"bpool": {"serve", "check", "status", "lease", "renew", "release", "restart", "drain", "scale", "reload",
			"watch", "state", "downloads"},
		"bmcp": {"config"},
	} {
		help := w.Run(p, "--help", "--all").Out
		for _, c := range commands {
			help += w.Run(p, c, "--help").Out
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
				flags = flags[:1]
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
		read := func(path string) string {
			b, err := os.ReadFile(cmdtest.Root + "/" + path)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		for path, text := range map[string]string{
			"man":  strings.ReplaceAll(examples.ReplaceAllString(read("man/"+p+".1"), ""), "Fl Fl ", "--"),
			"bash": read("completions/bash/" + p), "zsh": read("completions/zsh/_" + p),
			"fish": strings.NewReplacer("set -l ", "", " -l ", " --", "--fcs-skip", "").
				Replace(read("completions/fish/" + p + ".fish")),
		} {
			var named []string
			for _, m := range flagName.FindAllStringSubmatch(text, -1) {
				named = append(named, m[1])
			}
			for _, f := range has {
				if !slices.Contains(named, f) {
					t.Errorf("%s: %s does not name --%s", p, path, f)
				}
			}
			for _, f := range named {
				if !slices.Contains(has, f) && !slices.Contains(formerly, f) {
					t.Errorf("%s: %s names --%s, which the program does not have", p, path, f)
				}
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
			`{{with .Module}}{{if eq .Path "btools"}}{{$.Dir}} {{join $.GoFiles " "}}{{end}}{{end}}`, "./"+program) {
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

// Bash offers the instances that run.
func TestCompletionOfInstances(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	x := cmdtest.Parse(t, w.Fake(""))
	script := `source ../completions/bash/blaunch; COMP_WORDS=(blaunch stop inst); COMP_CWORD=2; _blaunch
		echo "${COMPREPLY[@]}"`
	if r := w.Run("bash", "-c", script); strings.TrimSpace(r.Out) != x.Instance.ID {
		t.Errorf("%+v", r)
	}
}

// offering are the scripts by which each shell tells what it offers at the end
// of the command lines that are its arguments: a line each, and "=" after the
// last. Zsh does so only on a terminal.
var offering = map[string]string{
	"bash": `for line; do
	source ../completions/bash/${line%% *}
	line=${line//=/ = } COMP_WORDS=()
	while [[ $line == *" "* ]]; do COMP_WORDS+=("${line%% *}"); line=${line#* }; done
	COMP_WORDS+=("$line") COMP_CWORD=${#COMP_WORDS[@]} COMPREPLY=()
	((COMP_CWORD--))
	_${COMP_WORDS[0]}
	for x in "${COMPREPLY[@]}"; do eval "printf '%s\n' $x"; done
	echo =
done`,
	"fish": `for line in $argv[2..]
	source ../completions/fish/(string split -f 1 ' ' $line).fish
	complete -C $line | string replace -r '\t.*' '' | string replace -r '^--instance=' ''
	echo =
end`,
	"zsh": `export OUT=$TMPDIR/offers OFFER=${(F)@} ZDOTDIR=$TMPDIR/zsh
mkdir -p $ZDOTDIR && : >$OUT && cat >$ZDOTDIR/.zshrc <<'END'
fpath=($PWD/../completions/zsh $fpath)
autoload -Uz compinit && compinit -u -d $TMPDIR/zcompdump
compadd() {
	local -a added
	if [[ ${@[1,(i)(-|--)]} != *-[OAD]\ * ]]; then
		builtin compadd -O added "$@"
		print -rl -- $added >>$OUT
	fi
	builtin compadd "$@"
}
zle-line-init() {
	for BUFFER in ${(f)OFFER}; do
		CURSOR=$#BUFFER
		zle list-choices
		print = >>$OUT
	done
	exit
}
zle -N zle-line-init
END
zmodload zsh/zpty && zpty z zsh -d -i && zpty -r z all '*no end*'
cat $OUT`,
}

// offers checks what each shell, or each of these, offers at the end of command
// lines, flags aside, which are another test's.
func offers(w *cmdtest.World, lines map[string][]string, shells ...string) {
	w.T.Helper()
	for shell, script := range offering {
		if len(shells) > 0 && !slices.Contains(shells, shell) {
			continue
		}
		if _, err := exec.LookPath(shell); err != nil {
			w.T.Logf("not tested: %v", err)
			continue
		}
		order := slices.Sorted(maps.Keys(lines))
		r := w.Run(shell, append([]string{"-c", script, shell}, order...)...)
		got := strings.Split(r.Out, "=\n")
		if r.Code != 0 || r.Err != "" || len(got) != len(order)+1 {
			w.T.Fatalf("%s: %+v", shell, r)
		}
		for n, line := range order {
			want := lines[line]
			have := slices.DeleteFunc(strings.Split(got[n], "\n"), func(s string) bool {
				return s == "" || s[0] == '-'
			})
			slices.Sort(have)
			slices.Sort(want)
			if !slices.Equal(have, want) {
				w.T.Errorf("%s: %q offers %q, not %q", shell, line, have, want)
			}
		}
	}
}

// Behind -- it is the command's turn. Commands are offered where they may
// stand: not all that there are, and no words of the shell.
func TestCompletionOfCommands(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	os.WriteFile(w.Dir+"/mycommand", []byte("#!/bin/sh\n"), 0o700)
	w.Env = append(slices.Clone(w.Env), "PATH="+w.Dir+":"+os.Getenv("PATH")+":"+cmdtest.Bin)
	mine := []string{"mycommand"}
	offers(w, map[string][]string{"blaunch -- mycomm": mine, "bproxy --idle 1s -- mycomm": mine,
		"bmcp --eager -- mycomm": mine})
	for line, want := range map[string]string{"bmcp --mcp ": "builtin @playwright/mcp chrome-devtools-mcp ",
		"bmcp --mcp mycomm": "mycommand ", "bmcp --mcp whil": "", "bproxy --launch ": "",
		"bproxy --launch mycomm": "mycommand "} {
		r := w.Run("bash", "-c", offering["bash"], "bash", line)
		if got := strings.ReplaceAll(strings.TrimSuffix(r.Out, "=\n"), "\n", " "); got != want || r.Err != "" {
			t.Errorf("%q offers %q, not %q (%s)", line, got, want, r.Err)
		}
	}
}

// Bash, zsh and fish offer what a running service has, and start none.
func TestCompletionOfPools(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	there := w.With("XDG_STATE_HOME=" + w.Dir + "/there")
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/here")
	cmdtest.WriteFile(t, w.Dir+"/here/btools/states/here.json", "{}")
	cmdtest.WriteFile(t, w.Dir+"/login.json", "{}")
	p := there.Pool("LAUNCH=false", "_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_A__1_ALIAS=second", "_B_INSTANCES=1",
		"_B__0_ALIAS=it's $(touch hacked)")
	w.Run("bpool", "state", "import", w.Dir+"/login.json").Wants(t, 0, "")
	var shells []string // all
	offers := func(lines map[string][]string) {
		t.Helper()
		offers(w, lines, shells...)
	}
	a, b := p.Lease("--instance", "second").Lease.ID, p.Lease("B").Lease.ID
	odd := "it's $(touch hacked)"
	offers(map[string][]string{
		"bpool status ": {"A", "B"}, "bpool drain --off ": {"A", "B"}, "bpool scale ": {"A", "B"},
		"bpool lease --ttl 1m ": {"A", "B"},

		"bpool status A ": nil, "bpool drain A ": nil, "bpool scale A ": nil, "bpool restart A ": nil,
		"bpool reload ": nil, "bpool status C": nil,

		"bpool restart ": {"A", "B", "A/0", "A/1", "A/second", "B/0", "B/" + odd}, "bpool restart A/s": {"A/second"},
		"bpool lease --instance ": {"0", "1", "second"}, "bpool lease A --instance s": {"second"},
		"bpool lease --instance=s": {"second"},

		"bpool lease B --instance ": {"0", odd}, "bpool lease --timeout 5s B --wait --instance ": {"0", odd},
		"bpool lease C --instance ": nil,

		"bpool lease --state ": {"login"}, "bpool lease --socket " + p.Socket + " --state l": {"login"},
		"bpool lease --socket " + w.Dir + "/none.sock --state ": nil,

		"bpool renew ": {a, b}, "bpool renew " + a + " ": nil,
		"bpool release lease_": {a, b}, "bpool release " + a + " lease_": {b},

		"bpool status --socket " + p.Socket + " ": {"A", "B"}, "bpool renew --socket=" + p.Socket + " ": {a, b},
		"bpool status --socket " + w.Dir + "/none.sock ": nil, "bpool lease --socket=/ --instance ": nil,
	})
	// After -- it is the command's turn, and names come before options.
	os.WriteFile(w.Dir+"/mycommand", []byte("#!/bin/sh\n"), 0o700)
	path := w.Env
	w.Env = append(slices.Clone(w.Env), "PATH="+w.Dir+":"+os.Getenv("PATH")+":"+cmdtest.Bin)
	offers(map[string][]string{"bpool lease -- mycomm": {"mycommand"},
		"bpool lease A --ttl 1m -- mycomm": {"mycommand"}})
	w.Env = path
	r := w.Run("bash", "-c",
		`source ../completions/bash/bpool; for w in "" -; do COMP_WORDS=(bpool lease "$w") COMP_CWORD=2 COMPREPLY=()
		_bpool; echo "${COMPREPLY[@]}"; done`)
	if names, flags, _ := strings.Cut(r.Out, "\n"); names != "A B" || !strings.HasPrefix(flags, "--socket ") {
		t.Errorf("%+v, want the pools without a word, and the flags after -", r)
	}
	if _, err := os.Stat("hacked"); err == nil {
		t.Error("an alias is executed")
		os.Remove("hacked")
	}
	if s := p.Status().Summary; s.Leased != 2 {
		t.Errorf("after the completions: %+v, want 2 leased as before", s)
	}

	shells = []string{"bash"} // what follows is bpool's to tell, in all of them alike

	// One beside another state file, and two of which neither is named.
	other := w.With("BTOOLS_STATE=" + w.Dir + "/other/state.json")
	o := other.Pool("LAUNCH=false", "_O_INSTANCES=1", "_O_IS_DEFAULT=1")
	offers(map[string][]string{"bpool status --socket " + o.Socket + " ": {"O"}, "bpool status ": {"A", "B"}})
	o.Stop()
	o = &cmdtest.Pool{T: t, W: w, Cmd: w.Cmd("bpool", "serve", "--socket", w.Dir+"/o")}
	o.Cmd.Env = append(o.Cmd.Env, "PW_MCP_PROXY_LAUNCH=false", "PW_MCP_PROXY__O_INSTANCES=1",
		"PW_MCP_PROXY__O_IS_DEFAULT=1")
	o.Start()
	offers(map[string][]string{"bpool status --socket " + o.Socket + " ": {"O"}, "bpool status ": nil})
	o.Stop()

	// One that was killed, at whose socket systemd listens.
	state, _ := os.ReadFile(w.Dir + "/state/state.json")
	p.Stop()
	if err := os.WriteFile(w.Dir+"/state/state.json", state, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			t.Error("a completion would start the service")
			c.Close()
		}
	}()
	offers(map[string][]string{"bpool status ": nil, "bpool renew --socket " + p.Socket + " ": nil})
	os.RemoveAll(w.Dir + "/state")
	offers(map[string][]string{
		"bpool status ": nil, "bpool lease --instance ": nil, "bpool renew --socket " + p.Socket + " ": nil,
		"bpool lease --state ": {"here"},
	})
	if _, err := os.Stat(w.Dir + "/state"); err == nil {
		t.Error("a completion writes a state")
	}
}
