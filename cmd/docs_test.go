//go:build linux

package cmd_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var flagName = regexp.MustCompile(`--([a-z][a-z-]+)`)

// Pages and completions name exactly the flags that the programs have.
func TestDocumentsNameTheFlags(t *testing.T) {
	w := newWorld(t)
	for p, commands := range map[string][]string{
		"bfind": nil, "bport": nil, "blaunch": {"list", "stop", "gc"}, "bproxy": {"list", "status", "launch", "stop", "restart"},
		"bpool": {"serve", "check", "status", "lease", "renew", "release", "restart", "drain", "scale", "reload", "watch"},
	} {
		help := w.run(p, "--help").out
		for _, c := range commands {
			help += w.run(p, c, "--help").out
		}
		var has []string
		for _, line := range strings.Split(help, "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "--") {
				has = append(has, flagName.FindStringSubmatch(line)[1])
			}
		}
		read := func(path string) string {
			b, err := os.ReadFile("../" + path)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		for path, text := range map[string]string{
			"man":  strings.ReplaceAll(read("man/"+p+".1"), "Fl Fl ", "--"),
			"bash": read("completions/bash/" + p), "zsh": read("completions/zsh/_" + p),
			"fish": strings.ReplaceAll(read("completions/fish/"+p+".fish"), " -l ", " --"),
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
				if !slices.Contains(has, f) {
					t.Errorf("%s: %s names --%s, which the program does not have", p, path, f)
				}
			}
		}
	}
}

// Bash, zsh and fish offer what they should, and launch nothing.
func TestCompletionOfInstances(t *testing.T) {
	w := newWorld(t)
	x := parse(t, w.fake(""))
	script := `source ../completions/bash/blaunch; COMP_WORDS=(blaunch stop inst); COMP_CWORD=2; _blaunch; echo "${COMPREPLY[@]}"`
	if r := w.run("bash", "-c", script); strings.TrimSpace(r.out) != x.Instance.ID {
		t.Errorf("%+v", r)
	}
}
