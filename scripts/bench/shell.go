//go:build linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// shellTool is a program by which a shell drives a browser: bmcp call, or a peer of it. All drive the same Chromium.
type shellTool struct {
	program []string
	session string // what names a session, with %s for its name
	env     []string
	open    string
	eval    []string
	end     []string
	left    int                                       // processes that its sessions have left
	batch   func(n int) (args []string, input string) // nil: it has none
}

// mark is a variable of all that the tool starts: one that the service of bmcp call keeps.
func (s *shellTool) mark() string { return "TMPDIR=" + dir + "/" + filepath.Base(s.program[0]) }

func shellTools() (ours, agentBrowser, playwright *shellTool) {
	path := output(bin+"bfind", "--no-input", "--type", "chromium", "--first", "-f", "browser.path")
	repeat := func(before, each, between, after string, n int) string {
		return before + strings.TrimSuffix(strings.Repeat(each+between, n), between) + after
	}
	ours = &shellTool{program: []string{bin + "bmcp", "call"}, session: "--session %s", open: "navigate",
		eval: []string{"evaluate", "1+1"}, end: []string{bin + "bmcp", "end", "--all"},
		env: []string{"BTOOLS_BROWSER=" + path},
		batch: func(n int) ([]string, string) {
			return []string{"--batch"}, repeat("", "evaluate 1230+5", "\n", "\n", n)
		}}
	arch := cmp.Or(map[string]string{"amd64": "x64"}[runtime.GOARCH], runtime.GOARCH)
	agent := must(filepath.Abs(installed("node_modules/agent-browser/bin/agent-browser-linux-"+arch, "npm ci")))
	agentBrowser = &shellTool{program: []string{agent}, session: "--session %s", open: "open",
		eval: []string{"eval", "1+1"}, end: []string{agent, "close", "--all"},
		env: []string{"AGENT_BROWSER_EXECUTABLE_PATH=" + path, "AGENT_BROWSER_ARGS=--no-sandbox"},
		batch: func(n int) ([]string, string) {
			return []string{"batch", "--json"}, repeat("[", `["eval","1230+5"]`, ",", "]", n)
		}}
	cli := must(filepath.Abs(installed("node_modules/.bin/playwright-cli", "npm ci")))
	playwright = &shellTool{program: []string{cli}, session: "-s=%s", open: "open", eval: []string{"eval", "() => 1+1"},
		end: []string{cli, "close-all"},
		env: []string{"PLAYWRIGHT_MCP_EXECUTABLE_PATH=" + path, "PLAYWRIGHT_MCP_SANDBOX=false"}}
	return ours, agentBrowser, playwright
}

func (s *shellTool) command(argv ...string) *exec.Cmd {
	c := command(argv[0], argv[1:]...)
	c.Dir = dir
	c.Env = append(append(c.Env, "HOME="+dir, s.mark()), s.env...)
	return c
}

// in is a command of a session.
func (s *shellTool) in(session string, args ...string) *exec.Cmd {
	return s.command(slices.Concat(s.program, strings.Fields(fmt.Sprintf(s.session, session)), args)...)
}

// call makes a call in a session, and returns what it prints.
func (s *shellTool) call(session string, args ...string) string {
	c := s.in(session, args...)
	out, err := c.Output()
	if err != nil {
		fail("%s %v: %v\n%s", filepath.Base(c.Path), args, err, out)
	}
	return string(out)
}

// stop ends the sessions, and what is left of them after five seconds.
func (s *shellTool) stop() {
	s.command(s.end...).Run() // there may be none
	for end := time.Now().Add(5 * time.Second); len(s.processes()) > 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	for left := s.processes(); len(left) > 0; left = s.processes() {
		s.left += len(left)
		for _, pid := range left {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// processes are those that the tool has started.
func (s *shellTool) processes() (pids []int) { return marked(s.mark()) }

// marked returns the processes that have a variable whose value begins so.
func marked(assignment string) (pids []int) {
	mark := []byte(assignment)
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		b, _ := os.ReadFile(path)
		if bytes.Contains(b, mark) {
			pids = append(pids, must(strconv.Atoi(filepath.Base(filepath.Dir(path)))))
		}
	}
	return pids
}

// shells measures calls of one tool from a shell.
func shells(b *bench) {
	ours, agent, cli := shellTools()
	tools := []*shellTool{ours, agent, cli}
	url := b.serve(counters) + "/?7"
	for _, s := range tools {
		check(os.MkdirAll(strings.TrimPrefix(s.mark(), "TMPDIR="), 0o700))
		b.atEnd(s.stop)
	}
	stop := func() { // one that runs beside it slows another down
		for _, s := range tools {
			s.stop()
		}
	}
	first := func(s *shellTool) func() float64 {
		return func() float64 {
			stop()
			return ms(func() { s.call("one", s.open, url) })
		}
	}
	m := medians(5, first(ours), first(agent), first(cli))
	row("shell: the first page, median of 5: ours, agent-browser", "", "%.0f, %.0f ms", m[0], m[1])
	row("the same: playwright-cli", "", "%.0f ms", m[2])
	row("the same: ours ÷ agent-browser", "≤ 0.5", "%.2f", m[0]/m[1])

	stop()
	for _, s := range tools {
		s.call("one", s.open, url)
	}
	warm := func(s *shellTool, words ...string) func() float64 {
		return func() float64 { return ms(func() { s.call("one", words...) }) }
	}
	m = medians(21, warm(ours, ours.eval...), warm(agent, agent.eval...), warm(cli, cli.eval...))
	row("shell: evaluate, a whole process, median of 21: ours, theirs", "≤ 12 ms", "%.1f, %.1f ms", m[0], m[1])
	row("the same: playwright-cli", "", "%.0f ms", m[2])
	row("the same: ours ÷ agent-browser", "≤ 1", "%.2f", m[0]/m[1])
	row("the same: ours ÷ playwright-cli", "≤ 0.02", "%.3f", m[0]/m[2])
	for _, c := range []struct {
		name, goal   string
		ours, theirs []string
	}{
		{"navigate", "≤ 1", []string{"navigate", url}, []string{"open", url}},
		{"snapshot", "≤ 0.5", []string{"snapshot"}, []string{"snapshot"}},
		{"take_screenshot", "≤ 1", []string{"--save", "ours.png", "take_screenshot"},
			[]string{"screenshot", "theirs.png"}},
	} {
		m = medians(21, warm(ours, c.ours...), warm(agent, c.theirs...))
		row("shell: "+c.name+", a whole process, median of 21: ours, theirs", "", "%.1f, %.1f ms", m[0], m[1])
		row("the same: ours ÷ agent-browser", c.goal, "%.2f", m[0]/m[1])
	}

	batch := func(s *shellTool) func() float64 {
		return func() float64 {
			args, input := s.batch(100)
			c := s.in("one", args...)
			c.Stdin = strings.NewReader(input)
			return ms(func() {
				if out, err := c.Output(); err != nil || bytes.Count(out, []byte("1235")) < 100 {
					fail("batch: %v, %.300s", err, out)
				}
			})
		}
	}
	m = medians(5, batch(ours), batch(agent))
	row("shell: 100 evaluations in a batch, median of 5: ours, theirs", "", "%.0f, %.0f ms", m[0], m[1])
	row("the same: ours ÷ agent-browser", "≤ 0.5", "%.2f", m[0]/m[1])

	var memory []float64
	for _, s := range tools[:2] {
		for n := range 10 {
			s.call(fmt.Sprint("s", n), s.open, url)
		}
		memory = append(memory, pss(s.processes()...))
		s.left = 0
		s.stop()
	}
	row("shell: 10 sessions with a page, all processes: ours, theirs", "", "%.0f, %.0f MiB", memory[0], memory[1])
	row("the same: ours ÷ agent-browser", "≤ 0.4", "%.2f", memory[0]/memory[1])

	row("the same: processes left 5 s after their end: ours, theirs", "0", "%d, %d", ours.left, agent.left)

	large := b.serve(thousands)
	ours.call("big", ours.open, large)
	agent.call("big", agent.open, large)
	texts := []string{ours.call("big", "--max-inline", "0", "snapshot", "interactive=true"),
		agent.call("big", "snapshot", "-i")}
	var size [2]int // of the lines of links, buttons and fields: theirs has headings, too
	var which [2]string
	for i, text := range texts {
		for _, m := range interactive.FindAllStringSubmatch(text, -1) {
			size[i] += len(m[0])
			which[i] += m[1] + "\n"
		}
	}
	if n := strings.Count(which[0], "\n"); which[0] != which[1] || n != 1500 {
		fail("the snapshots differ: ours has %d elements: %.300s, theirs %.300s", n, which[0], which[1])
	}
	whole := []int{len(texts[0]), len(texts[1])}
	row("shell: tokens of 5,000 elements, the interactive: ours, theirs", "", "%d, %d", whole[0]/4, whole[1]/4)
	row("the same: ours ÷ agent-browser", "≤ 1", "%.2f", float64(whole[0])/float64(whole[1]))
	row("the same: of the lines that both have", "≤ 1", "%.2f", float64(size[0])/float64(size[1]))
}

// interactive is the line of a link, a button or a field in a snapshot, with its role and name.
var interactive = regexp.MustCompile(`(?m)^ *- ((?:link|button|textbox) "[^"]*").*\n?`)
