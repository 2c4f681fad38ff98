package shell

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"btools/lib/control"
	"btools/lib/lazy"
	"btools/lib/proc"
)

// A session belongs to what wants it: the nearest program above a call that does not only run other programs.

var (
	shells = []string{"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh", "ash", "busybox", "pwsh"}
	// runners only run other programs, too: what stands before a command, sandboxes, and what gives one a terminal.
	runners = []string{"sudo", "doas", "su", "runuser", "env", "timeout", "xargs", "make", "gmake", "just", "npm",
		"npx", "pnpm", "yarn", "bunx", "uv", "uvx", "poetry", "pipenv", "pdm", "hatch", "nice", "ionice", "taskset",
		"nohup", "setsid", "setpriv", "prlimit", "stdbuf", "time", "watch", "parallel", "flock", "strace", "ltrace",
		"script", "unbuffer", "expect", "dbus-run-sessio", "fakeroot", "chroot", "unshare", "nsenter", "bwrap",
		"firejail", "proot", "systemd-run", "codex-linux-san"}
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

// ownerOf returns which of the processes above a call owns its session, and those above it; false: the user does.
func ownerOf(above []proc.Ancestor) (owner proc.Ancestor, rest []proc.Ancestor, ok bool) {
	for i, a := range above {
		switch {
		case a.PID == 1 || is(a, reapers):
			if i == 0 {
				return owner, nil, false
			}
			return above[i-1], above[i:], true
		case is(a, doors):
			return owner, nil, false
		case !is(a, shells) && !is(a, runners) || takesLines(a):
			return a, above[i+1:], true
		}
	}
	return owner, nil, false
}

// takesLines reports whether an ancestor is a shell that began the session of a terminal to read commands from it, as a
// person has it, and not to run one command: many agents give each a terminal of its own.
func takesLines(a proc.Ancestor) bool {
	if !a.Leader || !is(a, shells) || len(a.Args) == 0 {
		return false
	}
	for args := a.Args[1:]; len(args) > 0; args = args[1:] {
		switch word := args[0]; {
		case strings.EqualFold(word, "-noexit"): // pwsh, with a command before the first line
			return true
		case slices.Contains(withValue, word):
			args = args[min(1, len(args)-1):]
		case word == "" || word[0] != '-' && word[0] != '+': // a script
			return false
		case word[0] == '-' && !strings.HasPrefix(word, "--") && strings.Contains(word, "c"), word == "--command":
			return false
		}
	}
	return true
}

// withValue are the options of shells whose value is the next word.
var withValue = []string{"-o", "+o", "-O", "+O", "--rcfile", "--init-file", "-C", "--init-command"}

// title returns what a program is called.
func title(a proc.Ancestor) string { return cmp.Or(a.Title, a.Program) }

// callName returns what people call the session of a program, as a session of bproxy can be called.
func callName(owner proc.Ancestor) string {
	const most = 24
	program := notInName().ReplaceAllString(title(owner), "-")
	program = strings.Trim(program[:min(len(program), most)], "-")
	return fmt.Sprintf("%s-%d", cmp.Or(program, "process"), owner.PID)
}

var notInName = lazy.Regexp(`[^A-Za-z0-9._]+`)

// byName returns the key under which the services find the session of a program by what people call it.
func (c *caller) byName() string { return "called " + c.called }

// caller is whose session a call has.
type caller struct {
	key    string // of the session
	called string // the session, by people
	named  bool
	owner  proc.Ancestor // of whom the session of a name may have the Identity only
	owned  bool          // by a process: else the session belongs to the user
	// like is the key of a session of another owner with that name, which the same program has run; "": none.
	like string
	// above are the processes above the call, if its session has neither a name nor an owner that was named.
	above []proc.Ancestor
}

// of returns whose session a target names: the socket tells which program calls.
func (t *Target) of(ctx context.Context) (c caller) {
	peer := control.PeerOf(ctx)
	isSeen := peer != nil && peer.PID > 0
	var rest []proc.Ancestor
	if c.named = t.Session != ""; t.Owner != nil {
		c.owner, c.owned = proc.Ancestor{Identity: *t.Owner}, true
	} else if !c.named && isSeen {
		c.above = proc.Ancestors(peer.PID)
		c.owner, rest, c.owned = ownerOf(c.above)
	}
	switch {
	case c.named:
		c.called, c.key = t.Session, "name "+t.Session
	case c.owned:
		c.called = callName(c.owner)
		c.key = fmt.Sprintf("process %d %d %s", c.owner.PID, c.owner.Start, c.owner.Boot)
		if above, _, ok := ownerOf(rest); ok {
			c.like = fmt.Sprintf("like %s below %d %d %s", title(c.owner), above.PID, above.Start, above.Boot)
		}
	case isSeen: // the user of this container
		c.called, c.key = fmt.Sprint("user-", os.Getuid()), "user "+proc.Boot()
	default:
		c.called, c.key = fmt.Sprint("user-", os.Getuid()), "user"
	}
	return c
}
