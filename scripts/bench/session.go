//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/states"
)

// carried measures what sessions carry: downloads, logins, a proxy, sleep.
func carried() {
	attempt("a 1 GiB download", bigDownload)
	attempt("a lease with a saved login", leaseWithState)
	attempt("page load through a proxy with a password", proxied)
	attempt("200 hibernated sessions", hibernated)
}

// site serves pages that keep something, /file, 1 GiB, and /image.
func site() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/file" {
			w.Header().Set("Content-Type", "text/html")
			http.SetCookie(w, &http.Cookie{Name: "sid", Value: r.URL.Path})
			io.WriteString(w, "<!doctype html><script>localStorage.setItem('a', 'b')</script>"+
				strings.Repeat("text ", 2000))
			return
		}
		w.Header().Set("Content-Disposition", "attachment; filename=file.bin")
		w.Header().Set("Content-Length", strconv.Itoa(1<<30))
		part := make([]byte, 1<<20)
		for range 1 << 10 {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}))
}

// bigDownload compares a session with a Chrome behind bproxy alone, by turns:
// until the file is where the client wants it, and until its digest is known.
func bigDownload() {
	s := site()
	defer s.Close()
	plain, plainAt := bproxy()
	defer plain.stop()
	shared, at := bproxy("--isolate", "--download-limit", "0")
	defer shared.stop()
	to := filepath.Join(dir, "downloads")
	download := func(url string) (seconds float64) {
		c := openPage(url) // another page each time: Chrome closes one that has only downloaded
		defer c.CloseNow()
		c.client.call(`"method":"Browser.setDownloadBehavior","params":{"behavior":"allow","downloadPath":"` +
			to + `"}`)
		began := time.Now()
		c.call("Page.navigate", map[string]string{"url": s.URL + "/file"})
		within(5*time.Minute, func() bool {
			st, err := os.Stat(filepath.Join(to, "file.bin"))
			return err == nil && st.Size() == 1<<30
		})
		seconds = time.Since(began).Seconds()
		os.RemoveAll(to)
		return seconds
	}
	var alone, ours, digests []float64
	for i := range 5 {
		alone = append(alone, download("ws://"+plainAt+"/"))
		name := "download-" + strconv.Itoa(i)
		took := download(sessionURL(at, name))
		began := time.Now()
		within(5*time.Minute, func() bool {
			return strings.Contains(string(get("http://"+at+"/session/"+name+"/downloads")), `"complete"`)
		})
		ours, digests = append(ours, took), append(digests, time.Since(began).Seconds())
		output(bin+"bproxy", "session", "end", name, "--port", port(at))
	}
	row("a 1 GiB download, median of 5: Chrome alone, a session",
		fmt.Sprintf("%.2f, %.2f s", median(alone), median(ours)), "")
	row("the same: in a session ÷ alone", fmt.Sprintf("%.2f", median(ours)/median(alone)), "≤ 1.1")
	row("the same: from there until its sha256 is known", fmt.Sprintf("%.2f s", median(digests)), "")
}

// within waits until something is so.
func within(d time.Duration, ok func() bool) {
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			panic(failure{fmt.Errorf("not within %v", d)})
		}
	}
}

// leaseWithState takes leases with and without a state, by turns.
func leaseWithState() {
	storage := filepath.Join(dir, "storage.json")
	state := states.State{}
	for i := range 200 {
		state.Cookies = append(state.Cookies, states.Cookie{Name: "c" + strconv.Itoa(i), Value: strings.Repeat("v", 40),
			Domain: fmt.Sprintf("site-%d.example", i%20), Path: "/", Expires: -1})
	}
	for i := range 20 {
		state.Origins = append(state.Origins, states.Origin{Origin: fmt.Sprintf("https://site-%d.example", i),
			LocalStorage: json.RawMessage(`[{"name":"token","value":"` + strings.Repeat("t", 500) + `"}]`)})
	}
	if err := os.WriteFile(storage, state.Export(), 0o600); err != nil {
		panic(err)
	}
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "xdg"))
	defer os.Unsetenv("XDG_STATE_HOME")
	output(bin+"bpool", "state", "import", storage, "--name", "many")
	s, socket, url := sharing(8)
	defer s.stop()
	var plain, with []float64
	for range 20 {
		for _, args := range [][]string{nil, {"--state", "many"}} {
			within(time.Minute, func() bool { _, ready := instances(url); return ready == 8 })
			began := time.Now()
			id := output(bin+"bpool", append([]string{"lease", "--socket", socket, "-f", "lease.id"}, args...)...)
			took := time.Since(began).Seconds() * 1000
			output(bin+"bpool", "release", "--socket", socket, id)
			if args == nil {
				plain = append(plain, took)
			} else {
				with = append(with, took)
			}
		}
	}
	row("bpool lease with a spare, median of 20: without, with a state",
		fmt.Sprintf("%.1f, %.1f ms", median(plain), median(with)), "")
	row("the same: added by 200 cookies, 20 origins", fmt.Sprintf("%.1f ms", median(with)-median(plain)), "≤ 15 ms")
}

// proxied loads pages in sessions that differ by their proxies' password.
func proxied() {
	s := site()
	defer s.Close()
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL = r.In.URL }}
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/secret/") && r.Header.Get("Proxy-Authorization") == "" {
			w.Header().Set("Proxy-Authenticate", "Basic realm=x")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	defer p.Close()
	b, at := bproxy("--isolate")
	defer b.stop()
	var pages []*page
	for i, user := range []string{"", "user:word@"} {
		name := "proxied-" + strconv.Itoa(i)
		output(bin+"bproxy", "session", "new", name, "--proxy", strings.Replace(p.URL, "//", "//"+user, 1),
			"--proxy-bypass", "<-loopback>", "--port", port(at))
		pages = append(pages, openPage(sessionURL(at, name)))
	}
	var took [2][]float64
	for i := range 200 {
		// Which of them is first changes: what the other has left to do for its page delays the next.
		for turn := range 2 {
			k := (i + turn) % 2
			_, us := pages[k].call("Page.navigate", map[string]string{
				"url": s.URL + []string{"/open/", "/secret/"}[k] + strconv.Itoa(i)})
			took[k] = append(took[k], us/1000)
		}
	}
	row("page load through a proxy, median of 200: without, with password",
		fmt.Sprintf("%.2f, %.2f ms", median(took[0]), median(took[1])), "")
	row("the same: with a password ÷ without", fmt.Sprintf("%.2f", median(took[1])/median(took[0])), "≤ 1.05")
	for _, p := range pages {
		p.CloseNow()
	}
}

// hibernated hibernates sessions with a login and a page, and wakes some.
func hibernated() {
	s := site()
	defer s.Close()
	p, at := bproxy("--isolate", "--hibernate", "1s", "--max-sessions", "300")
	defer p.stop()
	visit := func(name string) {
		c := dial(sessionURL(at, name))
		defer c.CloseNow()
		b, _ := c.call(`"method":"Target.getTargets"`)
		var got struct {
			Result struct{ TargetInfos []struct{ TargetID string } }
		}
		json.Unmarshal(b, &got)
		b, _ = c.call(`"method":"Target.attachToTarget","params":{"flatten":true,"targetId":"` +
			got.Result.TargetInfos[0].TargetID + `"}`)
		tab := &page{c, jsonrpc.GetString(b, "result", "sessionId")}
		tab.call("Page.navigate", map[string]string{"url": s.URL + "/" + name})
	}
	asleep := func(n int) func() bool {
		return func() bool {
			list := exec.Command(bin+"bproxy", "session", "list", "--port", port(at), "-f", "session.hibernated")
			list.Env = append(os.Environ(), "BTOOLS_STATE="+dir+"/state/state.json")
			out, _ := list.Output()
			return strings.Count(string(out), "true") == n
		}
	}
	const first, n = 10, 200
	for i := range first {
		visit("first-" + strconv.Itoa(i))
	}
	within(time.Minute, asleep(first))
	time.Sleep(3 * time.Second)
	before, own := pssOf(tree(p.Process.Pid)...), pssOf(p.Process.Pid)
	for i := range n {
		visit("agent-" + strconv.Itoa(i))
	}
	within(5*time.Minute, asleep(first+n))
	time.Sleep(3 * time.Second)
	row("200 hibernated sessions: memory of everything added by each, Pss",
		fmt.Sprintf("%.2f MiB", (pssOf(tree(p.Process.Pid)...)-before)/n), "≤ 0.2 MiB")
	row("the same: of it bproxy", fmt.Sprintf("%.3f MiB", (pssOf(p.Process.Pid)-own)/n), "")
	var woken []float64
	for i := range 20 {
		began := time.Now()
		c := dial("ws://" + at + "/session/agent-" + strconv.Itoa(i) + "/devtools/browser")
		c.call(getVersion)
		woken = append(woken, time.Since(began).Seconds()*1000)
		c.CloseNow()
	}
	row("the same: to wake one with its tab, median of 20", fmt.Sprintf("%.0f ms", median(woken)), "≤ 500 ms")
}
