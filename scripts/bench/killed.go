//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// killMark is a variable of all that a killed server has started, whose value is its directory.
const killMark = "BENCH_KILLED"

// killedServers is README's table: a server starts, opens a page and is killed by SIGKILL; what is left after ten
// seconds is counted.
func killedServers(b *bench) {
	url := b.serve(counters) + "/?7"
	opens := func(tool string, argv ...string) func(dir string) (float64, []int) {
		return func(dir string) (took float64, pids []int) {
			var h *host
			took = ms(func() {
				h = b.host(argv, "TMPDIR="+dir, "HOME="+dir, "XDG_CACHE_HOME="+dir+"/cache", killMark+"="+dir)
				out := h.tool(tool, fmt.Sprintf(`{"url":%q}`, url))
				if strings.Contains(string(out), `"isError":true`) {
					fail("%s: %s", argv[0], out)
				}
			})
			return took, []int{h.Process.Pid}
		}
	}
	_, agent, _ := shellTools()
	chromium := agent.env[0][strings.Index(agent.env[0], "=")+1:]
	two := func(dir string) (took float64, pids []int) {
		in := func(session string) {
			c := agent.in(session, agent.open, url)
			c.Env = append(c.Env, "TMPDIR="+dir, "HOME="+dir, killMark+"="+dir)
			if out, err := c.Output(); err != nil {
				fail("agent-browser: %v: %s", err, out)
			}
		}
		took = ms(func() { in("one") })
		in("two")
		for _, pid := range marked(killMark + "=" + dir) {
			exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
			if strings.HasPrefix(filepath.Base(exe), "agent-browser") {
				pids = append(pids, pid)
			}
		}
		return took, pids
	}
	for n, s := range []struct {
		name string
		open func(dir string) (float64, []int)
	}{
		{"bmcp", opens("browser_navigate", bin+"bmcp")},
		{"@playwright/mcp", opens("browser_navigate", playwrightMCP()...)},
		{"chrome-devtools-mcp", opens("new_page", client(".bin/chrome-devtools-mcp"), "--headless", "--isolated",
			"--executablePath", chromium, "--chromeArg=--no-sandbox")},
		{"agent-browser, two sessions", two},
	} {
		var took, files, processes series
		for turn := range 5 {
			own := fmt.Sprintf("%s/k%d-%d", dir, n, turn)
			check(os.Mkdir(own, 0o700))
			t, pids := s.open(own)
			for _, pid := range pids {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			time.Sleep(10 * time.Second)
			left := marked(killMark + "=" + own)
			took.add(t)
			processes.add(float64(len(left)))
			files.add(float64(filesIn(own)))
			for ; len(left) > 0; left = marked(killMark + "=" + own) {
				for _, pid := range left {
					syscall.Kill(pid, syscall.SIGKILL)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		row("killed: "+s.name+": first page; processes, files left", "0, 0", "%.0f ms, %.0f, %.0f", took.median(),
			processes.median(), files.median())
	}
}

// filesIn counts the files of programs in a directory, not those of the test's home.
func filesIn(dir string) (n int) {
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case d.IsDir() && path != dir && slices.Contains([]string{"cache", ".cache", ".local", ".config"}, d.Name()) &&
			filepath.Dir(path) == dir:
			return filepath.SkipDir
		case !d.IsDir():
			n++
		}
		return nil
	})
	return n
}
