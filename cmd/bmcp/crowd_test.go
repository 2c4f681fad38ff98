//go:build linux

package main_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// More agents than may have pages at a time take turns, and lose nothing.
func TestMCPMaxBrowsers(t *testing.T) {
	t.Parallel()
	site := counters(t)
	w := cmdtest.New(t)
	const places, agents = 2, 5
	url, _ := w.WebMCP(nil, "--mcp", "builtin", "--max-sessions", fmt.Sprint(places))
	all := make([]*cmdtest.WebHost, agents)
	for i := range all {
		all[i] = cmdtest.NewWebHost(t, url)
	}
	for i, h := range all[:places] {
		if err := round(h, site, fmt.Sprintf("/agent-%d/0", i)); err != nil {
			t.Errorf("agent %d: %v", i, err)
		}
	}
	var wg sync.WaitGroup
	for i, h := range all[places:] {
		wg.Go(func() {
			path := fmt.Sprintf("/agent-%d/0", places+i)
			r, told := h.Progress("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+path))
			if r.IsError || !strings.Contains(r.Text(), fmt.Sprintf("heading %q", path)) {
				t.Errorf("agent %d loads %s: %s", places+i, path, r.Text())
			}
			if len(told) == 0 || !strings.Contains(told[0], "wait before it") {
				t.Errorf("agent %d is told %q while it waits, want how many wait before it", places+i, told)
			}
		})
	}
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		wg.Wait()
	}()
	for over := false; !over; {
		select {
		case <-asked:
			over = true
		case <-time.After(100 * time.Millisecond):
		}
		if n := w.CountAwake(); n > places {
			t.Errorf("%d have pages, want at most %d", n, places)
		}
	}
	r := all[0].Tool("browser_evaluate", `{"function":"() => location.pathname + document.cookie"}`)
	if r.IsError || !strings.Contains(r.Text(), "/agent-0/0who=agent-0") || r.Meta["btools/restored"] == nil {
		t.Errorf("the first agent has %s, %v, want its page and cookie, and that they were restored", r.Text(), r.Meta)
	}
	w.Run("bmcp", "--shared", "--max-sessions", "2").Exits(t, 64, "--max-sessions")
	w.Run("bmcp", "--max-sessions", "-1").Exits(t, 64, "--max-sessions")
}

// An agent that harms itself does not hold up another one.
func TestMCPHarmfulAgents(t *testing.T) {
	cmdtest.Long(t)
	t.Parallel()
	site := counters(t)
	w := cmdtest.New(t)
	url, bmcp := w.WebMCP(nil, "--mcp", "builtin")
	one := cmdtest.NewWebHost(t, url)
	if err := round(one, site, "/one/0"); err != nil {
		t.Fatal(err)
	}
	var harm sync.WaitGroup
	over := make(chan struct{})
	harm.Go(func() { // its page is busy for ever
		loops := cmdtest.NewWebHost(t, url)
		loops.Tool("browser_navigate", fmt.Sprintf(`{"url":%q}`, site+"/loops/0"))
		loops.Tool("browser_evaluate", `{"function":"() => { while (true); }"}`)
		if err := round(loops, site, "/loops/1"); err != nil {
			t.Errorf("after a script without end: %v", err)
		}
	})
	harm.Go(func() { // it has as many calls open as it may, all the time
		floods := cmdtest.NewWebHost(t, url)
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				for open := true; open; {
					floods.Tool("browser_evaluate", `{"function":"() => new Promise(r => setTimeout(r, 20))"}`)
					select {
					case <-over:
						open = false
					default:
					}
				}
			})
		}
		all.Wait()
	})
	harm.Go(func() { // it reads no answer
		mute := cmdtest.NewWebHost(t, url)
		c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for i := 0; ; i++ {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"m%d","method":"tools/call","params":{"name":`+
				`"browser_evaluate","arguments":{"function":"() => 'x'.repeat(40000)"}}}`, i)
			c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: %s\r\nAccept: application/json, "+
				"text/event-stream\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				mute.Session, len(body), body)
			select {
			case <-over:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	var worst time.Duration
	for n := range 8 {
		began := time.Now()
		if err := round(one, site, fmt.Sprintf("/one/%d", n)); err != nil {
			t.Error(err)
		}
		worst = max(worst, time.Since(began))
	}
	t.Logf("the slowest of 8 rounds took %v, bmcp has %.1f MiB", worst, pss(t, bmcp.Process.Pid))
	if worst > 20*time.Second {
		t.Errorf("a round of four calls took %v beside agents that do harm, want at most 20s", worst)
	}
	close(over)
	harm.Wait()
}

// What a host leaves behind is freed soon, whether it says that it ends or not.
func TestMCPHostThatIsKilled(t *testing.T) {
	t.Parallel()
	var open cmdtest.Presence
	site := countersOf(t, &open)
	w := cmdtest.New(t)
	url, _ := w.WebMCP(nil, "--mcp", "builtin")
	stays := cmdtest.NewWebHost(t, url)
	if err := round(stays, site, "/stays/0"); err != nil {
		t.Fatal(err)
	}
	pages := func(path string) bool { return open.Has(site + path) }
	freed := func(path string) {
		t.Helper()
		began := time.Now()
		cmdtest.Until(t, "the page "+path+" is gone", func() bool { return !pages(path) })
		t.Logf("the page %s is gone after %v", path, time.Since(began).Round(time.Millisecond))
		if !pages("/stays/0") {
			t.Error("the page of another host is gone, too")
		}
	}
	t.Run("it ends", func(t *testing.T) {
		h := cmdtest.NewWebHost(t, url)
		if err := round(h, site, "/ends/0"); err != nil {
			t.Fatal(err)
		}
		h.EndSession()
		freed("/ends/0")
	})
	t.Run("its connections are cut", func(t *testing.T) {
		h := cmdtest.NewWebHost(t, url)
		ctx, cut := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		r.Header.Set("Mcp-Session-Id", h.Session)
		r.Header.Set("Accept", "text/event-stream")
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Body.Close()
		if err := round(h, site, "/killed/0"); err != nil {
			t.Fatal(err)
		}
		cut()
		freed("/killed/0")
		again := h.Tool("browser_evaluate", `{"function":"() => location.pathname + document.cookie"}`)
		if again.IsError || !strings.Contains(again.Text(), "/killed/0who=killed") {
			t.Errorf("a host that comes back has %s, want its page and cookie", again.Text())
		}
	})
	t.Run("it is killed in mid-call over standard streams", func(t *testing.T) {
		w := cmdtest.New(t)
		c := w.Cmd("bmcp", "--mcp", "builtin")
		c.Dir = w.Dir
		c.Env = slices.Concat(w.Env, []string{"XDG_CACHE_HOME=" + w.Dir + "/cache", "HOME=" + w.Dir})
		in, _ := c.StdinPipe()
		out := cmdtest.StartRead(t, c)
		io.WriteString(in,
			cmdtest.FirstRequest("2025-11-25")+"\n"+`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+
				`{"name":"browser_navigate","arguments":{"url":"`+site+`/stdio/0"}}}`+"\n"+
				`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":`+
				`{"name":"browser_evaluate","arguments":{"function":"() => { while (true); }"}}}`+"\n")
		lines := bufio.NewReader(out)
		for loaded := regexp.MustCompile(`^{.*"id":1\b`); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if loaded.MatchString(line) {
				break
			}
		}
		in.Close()
		out.Close()
		began := time.Now()
		c.Wait()
		t.Logf("bmcp has ended after %v", time.Since(began).Round(time.Millisecond))
		w.Clean()
	})
}
