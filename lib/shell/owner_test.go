package shell

import (
	"strconv"
	"strings"
	"testing"

	"btools/lib/proc"
)

func TestOwner(t *testing.T) {
	t.Parallel()
	// The processes above a call: number, program, and what it calls itself if that is another word; + is the leader
	// of a terminal, and then its arguments follow.
	for what, c := range map[string]struct {
		above []string
		want  int // 0: the user
	}{
		"an agent that runs a shell":     {[]string{"20 bash sh", "10 node claude", "+30 bash"}, 10},
		"a script that an agent runs":    {[]string{"21 dash test.sh", "20 timeout", "10 agent"}, 10},
		"npx below make":                 {[]string{"23 node npm", "22 make", "10 Runner.Worker"}, 10},
		"a person at a terminal":         {[]string{"+30 bash", "5 sshd", "1 systemd"}, 30},
		"a person's make":                {[]string{"21 dash sh", "20 make", "+30 bash", "5 sshd", "1 systemd"}, 30},
		"a login shell":                  {[]string{"+30 bash -bash -l", "5 sshd", "1 systemd"}, 30},
		"a pane of tmux":                 {[]string{"+30 bash -bash", "5 tmux", "1 systemd"}, 30},
		"a command of tmux":              {[]string{"+30 dash sh -c x", "5 tmux", "1 systemd"}, 5},
		"the terminal of VS Code":        {[]string{"+30 bash - --init-file i.sh", "5 code", "4 code", "1 init"}, 30},
		"fish in VS Code":                {[]string{"+30 fish - -C source", "5 code", "4 code", "1 init"}, 30},
		"PowerShell in VS Code":          {[]string{"+30 pwsh - -noexit -command .", "5 code", "1 init"}, 30},
		"a task of VS Code":              {[]string{"+30 zsh - -l -i -c x", "5 code", "4 code", "1 init"}, 5},
		"sudo of another user":           {[]string{"31 - sudo", "+30 bash"}, 30},
		"sudo with its own terminal":     {[]string{"+32 - sudo", "31 - sudo", "+30 bash"}, 30},
		"a program that a person starts": {[]string{"31 python3.12", "+30 bash"}, 31},
		"a program with a terminal":      {[]string{"+31 python3.12 python3 agent.py", "5 tmux", "1 systemd"}, 31},
		"ssh that runs a command":        {[]string{"20 bash", "5 sshd-session", "1 systemd"}, 0},
		"ssh -t that runs a command":     {[]string{"+20 bash bash -c x", "5 sshd-session", "1 systemd"}, 0},
		"a script that nobody waits for": {[]string{"21 bash job.sh", "20 bash", "1 systemd"}, 20},
		"below a user's systemd":         {[]string{"21 bash job.sh", "9 systemd", "1 systemd"}, 21},
		"below cron":                     {[]string{"21 dash", "9 cron", "1 systemd"}, 21},
		"in a container":                 {[]string{"7 bash test.sh", "1 tini"}, 7},
		"alone in a container":           {[]string{"1 tini"}, 0},
		"docker exec":                    {[]string{"40 dash"}, 0},
		"docker exec -t":                 {[]string{"+40 dash sh -c x"}, 0},
		"another PID namespace":          {nil, 0},

		// A terminal for each command, with and without a pipe in it, for which the shell stays.
		"Codex":                   {[]string{"10 codex", "9 node codex", "+30 zsh"}, 10},
		"Codex, a pipe":           {[]string{"+20 bash bash -lc x|y", "10 codex", "9 node codex", "+30 zsh"}, 10},
		"Codex in its sandbox":    {[]string{"20 bash", "19 codex codex-linux-san", "18 bwrap", "10 codex"}, 10},
		"Gemini CLI":              {[]string{"+20 bash bash -c x", "10 node gemini", "9 node", "+30 zsh"}, 10},
		"Gemini CLI, a script":    {[]string{"21 bash", "+20 bash bash -c x", "10 node gemini", "+30 zsh"}, 10},
		"Claude Code":             {[]string{"20 bash", "10 claude", "+30 zsh"}, 10},
		"its sandbox":             {[]string{"21 bash", "20 bwrap", "19 bwrap", "18 bash", "10 claude", "+30 zsh"}, 10},
		"Cursor's agent":          {[]string{"20 zsh", "10 node cursor-agent", "+30 zsh"}, 10},
		"aider":                   {[]string{"+20 bash /bin/bash -i -c x", "10 python3.12 aider", "+30 zsh"}, 10},
		"a script for a terminal": {[]string{"+20 bash bash x.sh", "10 agent"}, 10},
		"script -c":               {[]string{"+22 dash sh -c x", "21 script", "20 script", "10 agent"}, 10},
		"make in a terminal":      {[]string{"22 dash", "+21 make make test", "10 agent"}, 10},
		"an agent's own shell":    {[]string{"+20 bash bash --norc -i", "10 python3.12 agent", "+30 bash"}, 20},
		"uv run":                  {[]string{"22 uv", "21 bash", "10 agent"}, 10},
	} {
		var above []proc.Ancestor
		for _, text := range c.above {
			f := strings.Fields(strings.TrimPrefix(text, "+"))
			pid, _ := strconv.Atoi(f[0])
			a := proc.Ancestor{Identity: proc.Identity{PID: pid}, Program: f[1], Title: f[1], Leader: text[0] == '+'}
			if a.Leader {
				a.Args = f[min(len(f)-1, 2):]
				if f[1] == "-" {
					a.Title = f[2]
				}
			} else {
				a.Title = f[len(f)-1]
			}
			above = append(above, a)
		}
		owner, _, ok := ownerOf(above)
		if owner.PID != c.want || ok != (c.want != 0) {
			t.Errorf("%s: the owner is %d, %t, want %d", what, owner.PID, ok, c.want)
		}
	}
}

func TestPageOfAResult(t *testing.T) {
	t.Parallel()
	var p page
	p.see([]byte(`{"content":[{"type":"text","text":"### Open tabs\n- 0: [A](http://a/)\n` +
		`- 1: (current) [B \"x\"](http://b/)\n### Page\n- Page URL: http://b/\n- Page Title: B \"x\"\n### Snapshot\n` +
		`- generic [ref=e1]:\n  - button \"Add [1]\" [ref=e5]\n` +
		`  - link \"L\" [ref=e6] [cursor=pointer]:\n    - text: t"}]}`))
	if p.url != "http://b/" || p.title != `B "x"` || p.tabs != 2 || len(p.refs) != 3 ||
		p.refs[1] != `e5 button "Add [1]"` {
		t.Errorf("the page is %+v", p)
	}
	p.see([]byte(`{"content":[{"type":"text","text":"### Result\n1"}]}`))
	if len(p.refs) != 3 {
		t.Errorf("a result without a page changed it: %+v", p)
	}
	p.see([]byte(`{"content":[{"type":"text","text":"### Page\n- Page URL: http://c/"}]}`))
	if p.url != "http://c/" || p.title != "" || p.refs != nil {
		t.Errorf("of another page it knows %+v", p)
	}
}

// The session of a program has a name that bproxy takes, and no command takes for an option.
func TestCallName(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]string{"claude": "claude-7", "npm exec @a/b": "npm-exec-a-b-7",
		"日本": "process-7", "": "process-7", "-x\n": "x-7", "a.b_c": "a.b_c-7",
		strings.Repeat("x", 100): strings.Repeat("x", 24) + "-7"} {
		if got := callName(proc.Ancestor{Title: title, Identity: proc.Identity{PID: 7}}); got != want {
			t.Errorf("%q: %q, want %q", title, got, want)
		}
	}
}
