//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"btools/lib/logins"
)

// site serves pages that keep something, and /file, 1 GiB.
func site(w http.ResponseWriter, r *http.Request) {
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
}

// bigDownload compares a session with a Chrome behind bproxy alone, by turns:
// until the file is where the client wants it, and until its digest is known.
func bigDownload(b *bench) {
	site := b.serve(site)
	_, plain := b.bproxy()
	_, at := b.bproxy("--isolate", "--download-limit", "0")
	to := filepath.Join(dir, "downloads")
	download := func(url string) float64 {
		defer os.RemoveAll(to)
		p := openPage(url) // another page each time: Chrome closes one that has only downloaded
		defer p.CloseNow()
		p.browser.call(`"method":"Browser.setDownloadBehavior","params":{"behavior":"allow","downloadPath":"` +
			to + `"}`)
		return ms(func() {
			p.call("Page.navigate", map[string]string{"url": site + "/file"})
			within(5*time.Minute, func() bool {
				st, err := os.Stat(filepath.Join(to, "file.bin"))
				return err == nil && st.Size() == 1<<30
			})
		}) / 1000
	}
	n := 0
	var digests series
	m := medians(5, func() float64 { return download("ws://" + plain + "/") }, func() float64 {
		n++
		name := "download-" + strconv.Itoa(n)
		took := download(sessionURL(at, name))
		digests.add(ms(func() {
			within(5*time.Minute, func() bool {
				return strings.Contains(string(get("http://"+at+"/session/"+name+"/downloads")), `"complete"`)
			})
		}) / 1000)
		output(bin+"bproxy", "session", "end", name, "--port", portOf(at))
		return took
	})
	row("a 1 GiB download, median of 5: Chrome alone, a session", "", "%.2f, %.2f s", m[0], m[1])
	row("the same: in a session ÷ alone", "≤ 1.1", "%.2f", m[1]/m[0])
	row("the same: from there until its sha256 is known", "", "%.2f s", digests.median())
}

// leaseWithState takes leases with and without a state, by turns.
func leaseWithState(b *bench) {
	storage := filepath.Join(dir, "storage.json")
	state := logins.State{}
	for i := range 200 {
		state.Cookies = append(state.Cookies, logins.Cookie{Name: "c" + strconv.Itoa(i), Value: strings.Repeat("v", 40),
			Domain: fmt.Sprintf("site-%d.example", i%20), Path: "/", Expires: -1})
	}
	for i := range 20 {
		state.Origins = append(state.Origins, logins.Origin{Origin: fmt.Sprintf("https://site-%d.example", i),
			LocalStorage: json.RawMessage(`[{"name":"token","value":"` + strings.Repeat("t", 500) + `"}]`)})
	}
	check(os.WriteFile(storage, state.Export(), 0o600))
	os.Setenv("XDG_STATE_HOME", filepath.Join(dir, "xdg"))
	defer os.Unsetenv("XDG_STATE_HOME")
	output(bin+"bpool", "state", "import", storage, "--name", "many")
	socket, url := b.sharing(8)
	leased := func(args ...string) func() float64 {
		return func() float64 {
			spare(url, 8)
			var id string
			took := ms(func() {
				id = output(bin+"bpool", append([]string{"lease", "--socket", socket, "-f", "lease.id"}, args...)...)
			})
			output(bin+"bpool", "release", "--socket", socket, id)
			return took
		}
	}
	m := medians(20, leased(), leased("--state", "many"))
	row("bpool lease with a spare, median of 20: without, with a state", "", "%.1f, %.1f ms", m[0], m[1])
	row("the same: added by 200 cookies, 20 origins", "≤ 15 ms", "%.1f ms", m[1]-m[0])
}

// proxied loads pages in sessions that differ by their proxies' password.
func proxied(b *bench) {
	site := b.serve(site)
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL = r.In.URL }}
	proxy := b.serve(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/secret/") && r.Header.Get("Proxy-Authorization") == "" {
			w.Header().Set("Proxy-Authenticate", "Basic realm=x")
			w.WriteHeader(http.StatusProxyAuthRequired)
			return
		}
		forward.ServeHTTP(w, r)
	})
	_, at := b.bproxy("--isolate")
	var urls []string
	for i, user := range []string{"", "user:word@"} {
		name := "proxied-" + strconv.Itoa(i)
		output(bin+"bproxy", "session", "new", name, "--proxy", strings.Replace(proxy, "//", "//"+user, 1),
			"--proxy-bypass", "<-loopback>", "--port", portOf(at))
		urls = append(urls, sessionURL(at, name))
	}
	pages := b.openPages(urls...)
	var took [2]series
	for i := range 200 {
		// Which of them is first changes: what the other has left to do for its page delays the next.
		for turn := range 2 {
			k := (i + turn) % 2
			_, us := pages[k].call("Page.navigate", map[string]string{
				"url": site + []string{"/open/", "/secret/"}[k] + strconv.Itoa(i)})
			took[k].add(us / 1000)
		}
	}
	without, with := took[0].median(), took[1].median()
	row("page load through a proxy, median of 200: without, with password", "", "%.2f, %.2f ms", without, with)
	row("the same: with a password ÷ without", "≤ 1.05", "%.2f", with/without)
}

// hibernated hibernates sessions with a login and a page, and wakes some.
func hibernated(b *bench) {
	site := b.serve(site)
	pid, at := b.bproxy("--isolate", "--hibernate", "1s", "--max-sessions", "300")
	visit := func(name string) {
		c := dial(sessionURL(at, name))
		defer c.CloseNow()
		targets, _ := c.call(`"method":"Target.getTargets"`)
		var got struct {
			Result struct{ TargetInfos []struct{ TargetID string } }
		}
		check(json.Unmarshal(targets, &got))
		c.attach(got.Result.TargetInfos[0].TargetID).call("Page.navigate", map[string]string{"url": site + "/" + name})
	}
	asleep := func(n int) func() bool {
		return func() bool {
			list := try(bin+"bproxy", "session", "list", "--port", portOf(at), "-f", "session.hibernated")
			return strings.Count(list, "true") == n
		}
	}
	const first, n = 10, 200
	for i := range first {
		visit("first-" + strconv.Itoa(i))
	}
	within(time.Minute, asleep(first))
	time.Sleep(3 * time.Second)
	before, own := treePSS(pid), pss(pid)
	for i := range n {
		visit("agent-" + strconv.Itoa(i))
	}
	within(5*time.Minute, asleep(first+n))
	time.Sleep(3 * time.Second)
	row("200 hibernated sessions: memory of everything added by each, Pss", "≤ 0.2 MiB", "%.2f MiB",
		(treePSS(pid)-before)/n)
	row("the same: of it bproxy", "", "%.3f MiB", (pss(pid)-own)/n)
	agent := 0
	woken := medians(20, func() float64 {
		agent++
		return greet("ws://" + at + "/session/agent-" + strconv.Itoa(agent-1) + "/devtools/browser")
	})[0]
	row("the same: to wake one with its tab, median of 20", "≤ 500 ms", "%.0f ms", woken)
}
