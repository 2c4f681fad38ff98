//go:build linux

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// chainKills kills random processes of bproxy share, bpool with a shared Chrome, their blaunch and their Chrome, as
// often as BENCH_KILLS says, else 1000 times, and starts bproxy and bpool again if they have ended. It counts what is
// left in the end, and the sessions of bproxy that did not come back, none of which is used while something is killed.
func chainKills(b *bench) {
	const sessions = 4
	kills := 1000
	if n, err := strconv.Atoi(os.Getenv("BENCH_KILLS")); err == nil {
		kills = n
	}
	site := b.serve(counters) + "/?7"
	own := dir + "/chain"
	check(os.Mkdir(own, 0o700))
	mark := killMark + "=" + own
	env := []string{"TMPDIR=" + own, "BTOOLS_STATE=" + own + "/state.json", mark}
	port := freePort()
	url := "http://127.0.0.1:" + port
	begin := map[string]func() *exec.Cmd{
		"bproxy": func() *exec.Cmd {
			return command(bin+"bproxy", "share", "--no-input", "--browser=chrome-headless-shell",
				"--keep="+own+"/kept",
				"--listen=127.0.0.1:"+port, "--log-level=error")
		},
		"bpool": func() *exec.Cmd {
			c := command(bin+"bpool", "serve", "--socket="+own+"/pool.sock", "--drain-timeout=0s", "--log-level=error")
			for _, v := range []string{"BROWSER=chrome-headless-shell", "ISOLATION=context", "PER_BROWSER=4",
				"_A_INSTANCES=4", "_A_IS_DEFAULT=1"} {
				c.Env = append(c.Env, "PW_MCP_PROXY_"+v)
			}
			return c
		},
	}
	ended := map[string]chan struct{}{}
	programs := map[string]*exec.Cmd{}
	restart := func() {
		for name, begin := range begin {
			if over := ended[name]; over != nil {
				select {
				case <-over:
				default:
					continue
				}
			}
			c, over := begin(), make(chan struct{})
			c.Env = append(c.Env, env...)
			check(c.Start())
			go func() {
				c.Wait()
				close(over)
			}()
			programs[name], ended[name] = c, over
		}
	}
	b.atEnd(func() {
		for _, pid := range marked(mark) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	list := func(n int) string {
		r, err := http.Get(fmt.Sprintf("%s/session/s%d/json/list", url, n))
		if err != nil {
			return ""
		}
		defer r.Body.Close()
		body, _ := io.ReadAll(r.Body)
		return string(body)
	}
	lost := 0
	open := func(n int) {
		within(time.Minute, func() bool {
			restart()
			r, err := http.NewRequest(http.MethodPut, fmt.Sprintf("%s/session/s%d/json/new?%s", url, n, site), nil)
			check(err)
			answer, err := http.DefaultClient.Do(r)
			if err == nil {
				answer.Body.Close()
			}
			return err == nil && answer.StatusCode == http.StatusOK
		})
		within(time.Minute, func() bool {
			kept, _ := os.ReadFile(fmt.Sprintf("%s/kept/s%d.json", own, n))
			return strings.Contains(string(kept), site)
		})
	}
	look := func() {
		for n := range sessions {
			answer := ""
			within(time.Minute, func() bool {
				restart() // it may not have been seen yet that one has ended
				answer = list(n)
				return strings.HasPrefix(strings.TrimSpace(answer), "[")
			})
			if !strings.Contains(answer, site) {
				lost++
				open(n)
			}
		}
	}
	restart()
	for n := range sessions {
		open(n)
	}
	took := ms(func() {
		for n := range kills {
			restart()
			if pids := marked(mark); len(pids) > 0 {
				syscall.Kill(pids[rand.N(len(pids))], syscall.SIGKILL)
			}
			time.Sleep(rand.N(100 * time.Millisecond))
			if n%10 == 9 {
				look()
			}
		}
	})
	look()
	for name, c := range programs {
		c.Process.Signal(syscall.SIGTERM)
		<-ended[name]
	}
	gc := command(bin+"blaunch", "gc")
	gc.Env = append(gc.Env, env...)
	gc.Run()
	time.Sleep(3 * time.Second)
	left, _ := filepath.Glob(own + "/btools-*")
	row(fmt.Sprintf("kills: %d over bproxy, bpool, blaunch, Chrome; processes left", kills), "0", "%d in %.0f s",
		len(marked(mark)), took/1000)
	row("kills: directories left; sessions lost that were not in use", "0, 0", "%d, %d", len(left), lost)
}
