package calls

import (
	"strconv"
	"strings"
	"testing"

	"btools/lib/proc"
)

func TestOwner(t *testing.T) {
	t.Parallel()
	// The processes above a call: number, program, and what it calls itself if that is another word; + is the leader
	// of a terminal.
	for what, c := range map[string]struct {
		above []string
		want  int // 0: the user
	}{
		"an agent that runs a shell":     {[]string{"20 bash sh", "10 node claude", "+30 bash"}, 10},
		"a script that an agent runs":    {[]string{"21 dash test.sh", "20 timeout", "10 agent"}, 10},
		"npx below make":                 {[]string{"23 node npm", "22 make", "10 Runner.Worker"}, 10},
		"a person at a terminal":         {[]string{"+30 bash", "5 sshd", "1 systemd"}, 30},
		"sudo of another user":           {[]string{"31 - sudo", "+30 bash"}, 30},
		"a program that a person starts": {[]string{"31 python3.12", "+30 bash"}, 31},
		"ssh that runs a command":        {[]string{"20 bash", "5 sshd-session", "1 systemd"}, 0},
		"a script that nobody waits for": {[]string{"21 bash job.sh", "20 bash", "1 systemd"}, 20},
		"below a user's systemd":         {[]string{"21 bash job.sh", "9 systemd", "1 systemd"}, 21},
		"below cron":                     {[]string{"21 dash", "9 cron", "1 systemd"}, 21},
		"in a container":                 {[]string{"7 bash test.sh", "1 tini"}, 7},
		"alone in a container":           {[]string{"1 tini"}, 0},
		"docker exec":                    {[]string{"40 dash"}, 0},
		"another PID namespace":          {nil, 0},
	} {
		var above []proc.Ancestor
		for _, text := range c.above {
			f := strings.Fields(strings.TrimPrefix(text, "+"))
			pid, _ := strconv.Atoi(f[0])
			above = append(above, proc.Ancestor{Identity: proc.Identity{PID: pid}, Program: f[1], Title: f[len(f)-1],
				Leader: text[0] == '+'})
		}
		owner, ok := ownerOf(above)
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
