package calls

import (
	"slices"
	"strings"

	"btools/lib/proc"
)

// A session belongs to what wants it: the nearest program above a call that does not only run other programs.

var (
	// runners only run other programs: shells, and what stands before a command.
	runners = []string{"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh", "ash", "busybox", "pwsh",
		"sudo", "doas", "su", "env", "timeout", "xargs", "make", "gmake", "npm", "npx", "pnpm", "yarn", "bunx", "nice",
		"nohup", "setsid", "stdbuf", "time", "watch", "parallel", "flock"}
	// reapers live as long as the machine or the container, and so would a session of theirs.
	reapers = []string{"systemd", "init", "launchd", "cron", "crond", "atd", "containerd-shim", "tini", "dumb-init",
		"docker-init", "catatonit", "conmon", "runsv", "s6-supervise", "supervisord"}
	// doors let in somebody whose own programs are on another machine.
	doors = []string{"sshd", "sshd-session", "dropbear"}
)

// is reports whether an ancestor is one of these programs.
func is(a proc.Ancestor, names []string) bool {
	title, _, _ := strings.Cut(a.Title, " ")
	return slices.ContainsFunc(names, func(name string) bool {
		return a.Program == name || title == name || len(name) == 15 && strings.HasPrefix(a.Program, name)
	})
}

// ownerOf returns which of the processes above a call owns its session; false: the user does.
func ownerOf(above []proc.Ancestor) (owner proc.Ancestor, ok bool) {
	for i, a := range above {
		switch {
		case a.PID == 1 || is(a, reapers):
			if i == 0 {
				return owner, false
			}
			return above[i-1], true
		case is(a, doors):
			return owner, false
		case a.Leader || !is(a, runners):
			return a, true
		}
	}
	return owner, false
}
