//go:build linux

package main_test

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// sharing is a program whose clients share a browser: a session of bproxy share, or a lease
// of a pool with isolation = "context".
type sharing struct {
	program string
	cmd     *exec.Cmd
	events  *cmdtest.SyncBuffer
	// begin returns the name of a new session and its address.
	begin func() (name, url string)
	pid   func() int // of the browser
	// list returns what the program's list says of a session.
	list    func(name string) sessionFacts
	end     []string // commands, before the name
	restart []string
}

// sessionFacts are what both programs say of a session.
type sessionFacts struct {
	Tabs       int `json:"tab_count"`
	Hibernated bool
	RestoredAt time.Time              `json:"restored_at"`
	KeptAt     time.Time              `json:"kept_at"`
	Login      *struct{ Name string } `json:"state"`
	Crash      *struct {
		EndedAt time.Time `json:"ended_at"`
	}
}

func shareOf(w *cmdtest.World) *sharing {
	p := w.Proxy("share", "--browser", "chrome-headless-shell", "--hibernate", "200ms", "--state", "visitor")
	n := 0
	return &sharing{program: "bproxy", cmd: p.Cmd, events: w.Events("bproxy"),
		begin: func() (name, url string) {
			n++
			name = "s" + strings.Repeat("x", n)
			return name, p.URL + "/session/" + name
		},
		pid: func() int { return p.Do("status").Instance.PID },
		list: func(name string) (f sessionFacts) {
			for line := range strings.Lines(w.Run("bproxy", "session", "list").Out) {
				var r struct {
					Session struct {
						Name string
						sessionFacts
					}
				}
				if json.Unmarshal([]byte(line), &r); r.Session.Name == name {
					return r.Session.sessionFacts
				}
			}
			return f
		},
		end: []string{"session", "end"}, restart: []string{"restart"}}
}

func poolOf(w *cmdtest.World) *sharing {
	p := w.Shared("_A_INSTANCES=4", "_A_STATE=visitor", "_A_HIBERNATE=200ms")
	return &sharing{program: "bpool", cmd: p.Cmd, events: w.Events("bpool"),
		begin: func() (name, url string) {
			l := p.Lease()
			return l.Lease.ID, l.Instance.HTTPURL
		},
		pid: func() int { return p.PID(0) },
		list: func(name string) (f sessionFacts) {
			var st struct {
				Pools []struct {
					Instances []struct {
						Lease string
						State *struct{ Name string } `json:"login"`
						sessionFacts
					}
				}
			}
			json.Unmarshal([]byte(w.Run("bpool", "status").Out), &st)
			for _, i := range st.Pools[0].Instances {
				if i.Lease == name {
					f = i.sessionFacts
					f.Login = i.State
				}
			}
			return f
		},
		end: []string{"release"}, restart: []string{"restart"}}
}

// What bproxy share and a pool with isolation = "context" both have behaves alike: where a
// session begins, who sees it, how it is hibernated and comes back, what a crash costs, its
// downloads, its state, its end, and that nothing stays.
func TestSharingAlike(t *testing.T) {
	t.Parallel()
	for program, start := range map[string]func(*cmdtest.World) *sharing{"bproxy": shareOf, "bpool": poolOf} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			checkSharing(t, start)
		})
	}
}

func checkSharing(t *testing.T, start func(*cmdtest.World) *sharing) {
	var pages cmdtest.Presence
	site, files := pages.LoginSite(t), cmdtest.DownloadSite(t)
	w := cmdtest.New(t)
	changed := w.SaveVisitor(site)
	s := start(w)
	run := func(args ...string) cmdtest.Result { return w.Run(s.program, args...) }
	const visitor, member = "shows nobody, visitor, nothing", "shows ann, s3cret-token, s3cret-key"

	// A new session has a blank page, and starts with the state.
	name, url := s.begin()
	var page map[string]string
	_, list := cmdtest.Get(t, http.MethodGet, url+"/json/list")
	if json.Unmarshal([]byte(strings.Trim(strings.TrimSpace(list), "[]")), &page); page["url"] != "about:blank" {
		t.Errorf("a new session has the pages %s, want a blank one", list)
	}
	c := cmdtest.FirstPage(t, url)
	c.Open(site)
	c.AwaitTitle(visitor)
	if f := s.list(name); f.Login == nil || f.Login.Name != "visitor" || f.Tabs != 1 || f.Hibernated {
		t.Errorf("a session with a client is listed as %+v", f)
	}
	c.Open(site + "/login")
	c.AwaitTitle("logged in")
	c.Open(site + "/inbox")
	c.AwaitTitle(member)

	// Another one sees none of it.
	second, other := s.begin()
	d := cmdtest.FirstPage(t, other)
	d.Open(site)
	d.AwaitTitle(visitor)
	if got := d.Ask("Target.getTargets", "{}"); strings.Contains(got, "/inbox") {
		t.Errorf("another session sees %s", got)
	}

	// Its downloads are its own, and listed in both ways.
	cmdtest.Click(t, "ws"+strings.TrimPrefix(other, "http")+"/devtools/browser/"+second, files, "file")
	w.Downloads(s.program, second, 1)
	guid := strings.TrimSpace(run("downloads", second, "-f", "download.guid").Out)
	if code, body := cmdtest.Get(t, http.MethodGet, other+"/downloads/"+guid); code != 200 || body != "the report" {
		t.Errorf("its file is answered %d %s", code, body)
	}
	if code, _ := cmdtest.Get(t, http.MethodGet, url+"/downloads/"+guid); code != 404 {
		t.Errorf("the file of another session is answered %d", code)
	}
	cmdtest.Until(t, "the events tell of the download", func() bool {
		return strings.Contains(s.events.String(), "downloaded")
	})

	// Without a client it is hibernated; to look at it does not wake it.
	asleep := func() bool { return s.list(name).Hibernated }
	c.Conn.Close(1000, "")
	cmdtest.Until(t, "it is hibernated", asleep)
	cmdtest.Until(t, "its pages are gone", func() bool { return !pages.Has(site + "/inbox") })
	run("downloads", name).Exits(t, 0, "")
	if code, body := cmdtest.Get(t, http.MethodGet, url+"/downloads"); code != 200 || strings.TrimSpace(body) != "[]" {
		t.Errorf("the downloads of a hibernated session: %d %s, want none", code, body)
	}
	if !asleep() {
		t.Error("the list of its downloads has woken it")
	}
	back := func(f *sessionFacts) {
		t.Helper()
		c = cmdtest.FirstPage(t, url)
		c.AwaitTitle(member)
		if got := c.Ask("Runtime.evaluate", `{"expression":"location.href"}`); !strings.Contains(got, site+"/inbox") {
			t.Errorf("the page is at %s, want %s/inbox", got, site)
		}
		if *f = s.list(name); f.Hibernated || f.RestoredAt.IsZero() {
			t.Errorf("a session that has come back is listed as %+v", f)
		}
	}
	var f sessionFacts
	back(&f)

	// A crash disconnects its clients and costs it nothing.
	used := time.Now()
	c.AwaitTitle(member)
	cmdtest.Until(t, "it is kept", func() bool { return s.list(name).KeptAt.After(used) })
	syscall.Kill(s.pid(), syscall.SIGKILL)
	c.AwaitEnd()
	back(&f)
	if f.Crash == nil || f.Crash.EndedAt.Before(used) {
		t.Errorf("the list does not tell of the crash: %+v", f)
	}

	// Its state can be saved, and the one it started with is as it was.
	run("state", "save", "member", "--from", name).Exits(t, 0, "")
	if changed() {
		t.Error("the state with which it started was changed")
	}

	// A client closes the browser: the next one has a new one.
	c.Ask("Browser.close", "{}")
	c.AwaitEnd()
	c = cmdtest.FirstPage(t, url)
	c.Open(site)
	c.AwaitTitle(visitor)

	// Its end disconnects its clients, and leaves no page.
	c.Open(site + "/inbox")
	run(append(s.end, name)...).Exits(t, 0, "")
	c.AwaitEnd()
	cmdtest.Until(t, "its pages are gone", func() bool { return !pages.Has(site + "/inbox") })
	run("downloads", name).Exits(t, 69, name)

	// Killed, the program leaves nothing.
	d.Conn.Close(1000, "")
	cmdtest.Until(t, "the other one is hibernated", func() bool { return s.list(second).Hibernated })
	w.KillHibernated(s.cmd)
}
