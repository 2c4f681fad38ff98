//go:build linux

package cmd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btools/lib/jsonrpc"
)

// members is a site whose pages show who has logged in, as its server, its first
// script and its database know.
func members(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		if r.URL.Path == "/login" {
			http.SetCookie(w, &http.Cookie{Name: "sid", Value: "s3cret-cookie", HttpOnly: true, MaxAge: 3600})
			io.WriteString(w, `<script>
				localStorage.setItem('token', 's3cret-token')
				const r = indexedDB.open('keys', 2)
				r.onupgradeneeded = () => r.result.createObjectStore('keys')
				r.onsuccess = () => {
					const t = r.result.transaction('keys', 'readwrite')
					t.objectStore('keys').add({at: new Date(), key: 's3cret-key'}, 'own')
					t.oncomplete = () => { document.title = 'logged in' }
				}
			</script>`)
			return
		}
		who := "nobody"
		if c, err := r.Cookie("sid"); err == nil && c.Value == "s3cret-cookie" {
			who = "ann"
		}
		fmt.Fprintf(w, `<script>
			const token = localStorage.getItem('token')
			const show = (key) => { document.title = 'shows %s, ' + token + ', ' + key }
			indexedDB.databases().then((all) => {
				if (!all.length) return show('nothing')
				indexedDB.open('keys').onsuccess = (e) => {
					const keys = e.target.result.transaction('keys').objectStore('keys')
					keys.get('own').onsuccess = (e) => show(e.target.result.key)
				}
			})
		</script>`, who)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestStatePlaywright(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
	p := w.proxy("--isolate", "--trace", w.dir+"/traces")
	c := p.client("state-playwright.mjs", members(t))
	c.leaves()
	for _, r := range []result{w.run("bproxy", "state", "list"), w.run("bproxy", "state", "show", "login"),
		w.run("bproxy", "session", "list"), w.run("bproxy", "status"), {out: p.errs.String()}} {
		if strings.Contains(r.out+r.err, "s3cret") {
			t.Errorf("a value of the state is shown:\n%s%s", r.out, r.err)
		}
	}
	if st, err := os.Stat(w.dir + "/xdg/btools/states/login.json"); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	p.stop()
	w.clean()
}

// shows returns what a page of members shows in a new page.
func shows(t *testing.T, ws, site string) string {
	t.Helper()
	c := dial(t, ws)
	target := jsonrpc.GetString(resultOf(t, c.ask("Target.createTarget", `{"url":"about:blank"}`)), "targetId")
	page := dial(t, ws[:strings.Index(ws, "/devtools/")]+"/devtools/page/"+target)
	page.ask("Page.navigate", `{"url":"`+site+`"}`)
	got := page.ask("Runtime.evaluate", `{"awaitPromise":true,"expression":"new Promise((done) => {`+
		`const look = () => (document.title ? done(document.title) : setTimeout(look, 10)); look() })"}`)
	return jsonrpc.GetString(resultOf(t, got), "result", "value")
}

func TestPoolStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := members(t)
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
	write(t, w.dir+"/base.json", `{"origins":[{"origin":"`+site+`","localStorage":[{"name":"token","value":"base"}]}]}`)
	w.run("bpool", "state", "import", w.dir+"/base.json").wants(t, 0, "")
	p := w.shared("_A_INSTANCES=2", "_A_STATE=base", "_B_INSTANCES=1", "_B_START=lazy", "_B_ISOLATION=process")
	a := p.lease()
	if got := shows(t, a.Instance.WSURL, site); got != "shows nobody, base, nothing" {
		t.Errorf("a lease of the pool's state shows %q", got)
	}
	if got := shows(t, a.Instance.WSURL, site+"/login"); got != "logged in" {
		t.Fatalf("got %v, want %v", got, "logged in")
	}
	w.run("bpool", "state", "save", "ann", "--from", a.Lease.ID).wants(t, 0, "")
	b := p.lease("--state", "ann")
	if got := shows(t, b.Instance.WSURL, site); got != "shows ann, s3cret-token, s3cret-key" {
		t.Errorf("a lease with a state shows %q", got)
	}
	c := dial(t, b.Instance.WSURL)
	c.ask("Browser.close", "{}") // the lease gets another session
	until(t, "a new session with the state", func() bool {
		code, _ := get(t, "GET", b.Instance.HTTPURL+"/json/version")
		return code == 200
	})
	if got := shows(t, b.Instance.WSURL, site); got != "shows ann, s3cret-token, s3cret-key" {
		t.Errorf("the lease's next session shows %q", got)
	}
	w.run("bpool", "release", a.Lease.ID).wants(t, 0, "")
	w.run("bpool", "state", "save", "ann", "--from", a.Lease.ID).wants(t, 69, "there is no lease")
	w.run("bpool", "lease", "--state", "nobody").wants(t, 69, `there is no state "nobody"`)
	w.run("bpool", "lease", "B", "--state", "ann").wants(t, 64, "has a browser to itself")
	status := w.run("bpool", "status")
	if !strings.Contains(status.out, `"login":{"name":"ann"}`) || strings.Contains(status.out, "s3cret") {
		t.Errorf("the status is %s", status.out)
	}
	p.stop()
	w.clean()
}

func TestMCPStates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site := members(t)
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
	write(t, w.dir+"/ann.json", `{"cookies":[{"name":"sid","value":"s3cret-cookie","url":"`+site+`"}],
		"origins":[{"origin":"`+site+`","localStorage":[{"name":"token","value":"s3cret-token"}]}]}`)
	w.run("bproxy", "state", "import", w.dir+"/ann.json").wants(t, 0, "")
	for args, want := range map[string]string{"--shared": "none with --shared",
		"--profile p": "the place of the profile", "--browser firefox": "based on Chromium"} {
		w.run("bmcp", append([]string{"--state", "ann"}, strings.Fields(args)...)...).wants(t, 64, want)
	}
	w.run("bmcp", "--state", "nobody").wants(t, 69, `there is no state "nobody"`)
	clients, err := filepath.Abs("../scripts/clients/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	w.shared("_A_INSTANCES=1")
	for _, kind := range []string{"--browser=chromium", "--pool"} {
		m := w.startMCP([]string{"HOME=" + w.dir}, kind, "--state", "ann", "--mcp", clients+"/playwright-mcp")
		m.greet("{}")
		m.lists("browser_navigate")
		m.tool("browser_navigate", `{"url":"`+site+`"}`)
		const want = "shows ann, s3cret-token, nothing"
		until(t, kind+" "+want, func() bool {
			return strings.Contains(m.tool("browser_evaluate", `{"function":"() => document.title"}`).line, want)
		})
		m.end()
	}
}

func TestStateCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := w.dir + "/xdg/btools/states"
	w.env = append(w.env, "XDG_STATE_HOME="+w.dir+"/xdg")
	w.run("bproxy", "state", "list").wants(t, 0, "")
	w.run("bproxy", "state", "show", "x").wants(t, 69, `there is no state "x"`)
	w.run("bproxy", "state", "show", "../x").wants(t, 64, "not the name of a state")
	w.run("bproxy", "state", "save", "x").wants(t, 64, "save needs --from")
	w.run("bproxy", "state", "save", "x", "--from", "y").wants(t, 69, "no bproxy --isolate is running")
	w.run("bproxy", "--state", "x").wants(t, 64, "--state needs --isolate")
	w.run("bproxy", "--isolate", "--state", "x").wants(t, 69, `there is no state "x"`)
	write(t, w.dir+"/ann.json", `{"cookies":[{"name":"a","value":"s3cret","domain":".a.test","path":"/",
		"expires":1893456000,"httpOnly":true,"secure":true,"sameSite":"Lax"}],"origins":[{"origin":"https://a.test",
		"localStorage":[{"name":"n","value":"s3cret"}]}],"credentials":[{"id":"s3cret"}]}`)
	r := w.run("bproxy", "state", "import", w.dir+"/ann.json")
	r.wants(t, 0, "not in the state: credentials")
	fields := "state.name,state.cookie_count,state.earliest_expiry,state.origins"
	if list := w.run("bproxy", "state", "list", "-f", fields); list.out !=
		"ann\t1\t2030-01-01T00:00:00.000Z\t[\"https://a.test\"]\n" {
		t.Errorf("the list is %q", list.out)
	}
	if show := w.run("bproxy", "state", "show", "ann"); strings.Contains(show.out, "s3cret") ||
		!strings.Contains(show.out, `"item_count":1`) {
		t.Errorf("the state is shown as %s", show.out)
	}
	var state struct{ Cookies, Origins []json.RawMessage }
	if out := w.run("bproxy", "state", "export", "ann").out; json.Unmarshal([]byte(out), &state) != nil ||
		len(state.Cookies) != 1 || len(state.Origins) != 1 || !strings.Contains(out, "s3cret") {
		t.Errorf("the state is exported as %s", out)
	}
	for text, want := range map[string]string{
		`{"cookies":[{"name":"a","value":77123,"domain":"a"}]}`: "cookies.value is not a string",
		`{"cookies":["s3cret"`:                        "not valid JSON at byte",
		`{"cookies":[{"name":"a","value":"s3cret"}]}`: "cookies[0]: it has no domain",
		`{"origins":[{"origin":"s3cret"}]}`:           "origins[0]: origin is not an origin",
	} {
		write(t, w.dir+"/bad.json", text)
		r := w.run("bproxy", "state", "import", w.dir+"/bad.json")
		r.wants(t, 65, want)
		if strings.Contains(r.err, "s3cret") || strings.Contains(r.err, "77123") {
			t.Errorf("the error has a value in it: %s", r.err)
		}
	}
	write(t, dir+"/newer.json", `{"version":2,"state":"s3cret"}`)
	write(t, dir+"/damaged.json", `{"version":1,"state":{"cook`)
	write(t, dir+"/ann.json.new", `{"version":1`)
	w.run("bproxy", "--isolate", "--state", "newer").wants(t, 65, "of a newer btools")
	w.run("bproxy", "--isolate", "--state", "damaged").wants(t, 65, "is damaged")
	w.run("bproxy", "state", "list").wants(t, 0, "is damaged")
	if _, err := os.Stat(dir + "/ann.json.new"); err == nil {
		t.Error("a file of a writer that was killed is still there")
	}
	w.run("bproxy", "state", "delete", "damaged").wants(t, 0, "")
	w.run("bproxy", "state", "delete", "damaged").wants(t, 69, "there is no state")
	if os.Geteuid() == 0 {
		os.Chown(dir+"/ann.json", 65534, 65534)
		w.run("bproxy", "state", "export", "ann").wants(t, 69, "belongs to another user")
	}
	w.clean()
}

// A disk that fills up during a save leaves the old state.
func TestStateFullDisk(t *testing.T) {
	w := newWorld(t)
	full, fill := w.smallDisk()
	w.env = append(w.env, "XDG_STATE_HOME="+full)
	write(t, w.dir+"/s.json", `{"origins":[{"origin":"https://a.test","localStorage":[{"name":"old","value":""}]}]}`)
	w.run("bproxy", "state", "import", w.dir+"/s.json").wants(t, 0, "")
	before := w.run("bproxy", "state", "export", "s").out
	fill(16 << 10)
	write(t, w.dir+"/s.json", `{"origins":[{"origin":"https://a.test","localStorage":[{"name":"new","value":"`+
		strings.Repeat("x", 64<<10)+`"}]}]}`)
	w.run("bproxy", "state", "import", w.dir+"/s.json").wants(t, 1, "no space left on device")
	if after := w.run("bproxy", "state", "export", "s").out; after != before || before == "" {
		t.Errorf("the state is %q, and was %q", after, before)
	}
	if files, err := os.ReadDir(full + "/btools/states"); err != nil || len(files) != 2 { // with the lock
		t.Errorf("the directory has %v, %v", files, err)
	}
}
