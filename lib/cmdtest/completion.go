//go:build linux

package cmdtest

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"btools/lib/shellwords"
)

// offering are the scripts by which each shell tells what it offers at the end of
// the command lines that are its arguments: a line each, and "=" after the last. Fish
// does so when it is asked; the others do what they do for a person at a terminal.
var offering = map[string]string{
	// The line with all that can be inserted into it.
	"bash": `cat >$TMPDIR/bashrc <<'END'
PS1=
source $COMPLETIONS/bash/btools
bind -x '"\C-x2": printf "%s\n=\n" "$READLINE_LINE" >>$TMPDIR/offers'
END
: >$TMPDIR/offers
{ printf '%s\e*\x182\x15' "$@"; echo exit; } |
	TERM=dumb bash --noprofile --rcfile $TMPDIR/bashrc -i >/dev/null 2>$TMPDIR/bash-says
cat $TMPDIR/offers`,
	"fish": `set -p fish_complete_path $TMPDIR/fish
for line in $argv[2..]
	complete -C $line | string replace -r '\t.*' ''
	echo =
end`,
	"zsh": `export OUT=$TMPDIR/offers OFFER=${(F)@} ZDOTDIR=$TMPDIR/zsh
mkdir -p $ZDOTDIR && : >$OUT && cat >$ZDOTDIR/.zshrc <<'END'
fpath=($COMPLETIONS/zsh $fpath)
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

var flagBefore = regexp.MustCompile(`^--[a-z-]+=`)

// CheckOffers checks what each shell, or each of these, offers at the end of command
// lines; of flags those that are wanted, of files the last part of their paths.
func (w *World) CheckOffers(lines map[string][]string, shells ...string) {
	w.T.Helper()
	os.Mkdir(w.Dir+"/fish", 0o700)
	programs, _ := filepath.Glob(Root + "/cmd/*/main.go")
	for _, p := range programs { // as make install does
		os.Symlink(Root+"/completions/fish/btools.fish", w.Dir+"/fish/"+filepath.Base(filepath.Dir(p))+".fish")
	}
	w = w.With("COMPLETIONS=" + Root + "/completions")
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
			want, have := slices.Clone(lines[line]), strings.Split(got[n], "\n")
			if shell == "bash" {
				have = nil
				if words := shellwords.Begun(got[n]); got[n] != line+"\n" {
					have = words[len(shellwords.Begun(line))-1:]
				}
			}
			for i := range have {
				have[i] = strings.ReplaceAll(flagBefore.ReplaceAllString(have[i], ""), `\ `, " ")
				if filepath.IsAbs(have[i]) { // as zsh tells it
					have[i] = filepath.Base(have[i])
				}
			}
			have = slices.DeleteFunc(have, func(s string) bool {
				return s == "" || s[0] == '-' && !slices.Contains(want, s)
			})
			slices.Sort(have)
			have = slices.Compact(have)
			slices.Sort(want)
			if !slices.Equal(have, want) {
				w.T.Errorf("%s: %q offers %q, not %q", shell, line, have, want)
			}
		}
	}
}
