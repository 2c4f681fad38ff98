//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"time"

	"btools/lib/control"
)

// shared measures instances that share a Chrome.
func shared() {
	spares()
	cycles()
	killed()
}

// instances are the pids of the browsers of the healthy ones, and how many
// sessions wait for a lease.
func instances(url string) (pids []int, ready int) {
	var st struct {
		Pools []struct {
			Instances []struct {
				Status string
				PID    int `json:"process_id"`
			}
		}
	}
	json.Unmarshal([]byte(output(bin+"bpool", "status")), &st)
	for _, i := range st.Pools[0].Instances {
		if i.Status == "healthy" && i.PID != 0 {
			pids = append(pids, i.PID)
		}
	}
	for _, line := range strings.Split(textAt(url+"/metrics"), "\n") {
		fmt.Sscanf(line, `bpool_sessions{pool="A",state="spare"} %d`, &ready)
	}
	return pids, ready
}

func textAt(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// sharing starts a service with as many instances on one Chrome, and returns
// when each has a session ready.
func sharing(instancesOfA int) (s daemon, socket, url string) {
	n := fmt.Sprint(instancesOfA)
	s, socket, url = bpoolHTTP("BROWSER=chromium", "ISOLATION=context", "PER_BROWSER="+n, "_A_INSTANCES="+n,
		"_A_IS_DEFAULT=1")
	for {
		if _, ready := instances(url); ready == instancesOfA {
			return s, socket, url
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// spares leases and releases, each time with a session that is ready.
func spares() {
	s, path, _ := sharing(12)
	defer s.stop()
	c, err := control.Dial(ctx, path)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	var took []float64
	for range 1000 {
		began := time.Now()
		var r struct{ Lease struct{ ID string } }
		if err := c.Call(ctx, "lease", nil, &r); err != nil {
			panic(err)
		}
		took = append(took, time.Since(began).Seconds()*1000)
		if err := c.Call(ctx, "release", map[string]string{"lease": r.Lease.ID}, nil); err != nil {
			panic(err)
		}
	}
	slices.Sort(took)
	row("shared Chrome: lease with a spare over the socket, p50, p99",
		fmt.Sprintf("%.2f, %.2f ms", took[500], took[990]),
		"≤ 1, ≤ 3 ms")
}

// cycles compares a lease with a context of a browser that a client holds.
func cycles() {
	s, _, url := sharing(12)
	defer s.stop()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "<!doctype html><title>page</title><p>text")
	}))
	defer site.Close()
	chrome := output(bin+"bfind", "--no-input", "--type", "chromium", "--first", "-f", "browser.path")
	var one, ours, theirs, ten, ours10, theirs10 float64
	fmt.Sscan(output("node", "shared.mjs", abs(bin+"bpool"), chrome, site.URL, url+"/metrics"), &one, &ours, &theirs,
		&ten,
		&ours10, &theirs10)
	row("lease → connectOverCDP → goto → release ÷ own newContext",
		fmt.Sprintf("%.2f (%.0f, %.0f ms)", one, ours, theirs),
		"≤ 1.5")
	row("the same, 10 at once on 12 instances ÷ 10 at once",
		fmt.Sprintf("%.2f (%.0f, %.0f ms)", ten, ours10, theirs10),
		"≤ 1.5")
}

// killed kills a Chrome under 50 sessions.
func killed() {
	s, path, url := sharing(50)
	defer s.stop()
	pids, _ := instances(url)
	began := time.Now()
	syscall.Kill(pids[0], syscall.SIGKILL)
	for {
		now, _ := instances(url)
		if len(now) == 50 && now[0] != pids[0] {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	c, err := control.Dial(ctx, path)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	for range 50 {
		if err := c.Call(ctx, "lease", nil, nil); err != nil {
			panic(err)
		}
	}
	row("Chrome killed under 50 sessions, until all are leased again",
		fmt.Sprintf("%.1f s", time.Since(began).Seconds()),
		"≤ 3 s")
}
