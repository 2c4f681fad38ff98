//go:build linux

package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/websocket"
)

// A lease is frozen for its move: its clients are disconnected if it is late, nobody uses it, and what is saved can be
// read. Thawed, it goes on. What stays is named with its reason.
func TestFreeze(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(t, tokens, "ci "+ciToken+" trust\nother "+otherToken+"\n")
	p := w.WebPool([]string{"--token-file", tokens}, "BROWSER=chrome-headless-shell", "_A_ISOLATION=context",
		"_A_INSTANCES=2", "_A_IS_DEFAULT=1", "_B_INSTANCES=1", "_B_BROWSER="+cmdtest.Bin+"/fakebrowser")
	ci, other := webClient{t, p.HTTP, ciToken}, webClient{t, p.HTTP, otherToken}
	site := cmdtest.LoginSite(t)
	a := ci.lease(`{"pool": "A"}`)
	id := `{"lease": "` + a.Lease.ID + `"`
	hold := `{"leases": ["` + a.Lease.ID + `"]}`
	c := cmdtest.FirstPage(t, a.Instance.HTTPURL)
	c.Open(site + "/login")
	c.AwaitTitle("logged in")
	c.Open(site + "/inbox")
	asserts := func(what string, client webClient, path, body string, code int, part string) {
		t.Helper()
		if got, b := client.do(path, body); got != code || !strings.Contains(b, part) {
			t.Errorf("%s: %d %s", what, got, b)
		}
	}
	asserts("in use", ci, "/freeze", id+"}", 503, "it is in use")
	asserts("of another", other, "/freeze", id+"}", 404, "lease_not_found")
	asserts("not drained", ci, "/hold", hold, 200, `"draining":"no"`)
	at := strings.TrimPrefix(a.Instance.HTTPURL, p.HTTP)
	asserts("not frozen", ci, at+"/session", "", 400, "not frozen")
	if r := w.Run("bpool", "drain", "--move"); r.Code != 0 || !strings.Contains(r.Err, "leases move to other hosts") {
		t.Errorf("drain: %+v", r)
	}
	asserts("drained, in use", ci, "/hold", hold, 200, `"draining":"move"`)
	w.Run("bpool", "drain", "--move", "--timeout", "1ms").Exits(t, 0, "")
	asserts("late", ci, "/hold", hold, 200, `"move":["`+a.Lease.ID)
	asserts("late", ci, "/freeze", id+"}", 200, `"frozen":true`)
	awaitRestart(t, c)
	asserts("frozen", ci, at+"/json/list", "", 503, "moved to another host")
	asserts("frozen", ci, at+"/session", "", 200, "s3cret-cookie")
	asserts("moving", ci, "/hold", hold, 200, `"gone":[]}`)
	asserts("no offer", ci, "/lease", `{"pool": "A", "session": {}}`, 400, "offer")
	asserts("thawed", ci, "/freeze", id+`, "off": true, "why": "none has room"}`, 200, `"frozen":false`)
	cmdtest.FirstPage(t, a.Instance.HTTPURL).AwaitTitle("shows ann, s3cret-token, s3cret-key")
	w.Run("bpool", "drain", "--off").Exits(t, 0, "")
	b := ci.lease(`{"pool": "B"}`)
	p.Lease("A")
	w.Run("bpool", "drain", "--move").Exits(t, 0, "")
	if got := w.Run("bpool", "status").Out; !strings.Contains(got, `"stays":"it has a browser to itself"`) ||
		!strings.Contains(got, `"stays":"its client uses it without a gateway"`) ||
		!strings.Contains(got, `"stays":"none has room"`) {
		t.Errorf("why leases stay: %s", got)
	}
	w.Run("bpool", "drain", "--move", "--timeout", "1ms").Exits(t, 0, "")
	asserts("late again", ci, "/freeze", id+"}", 200, `"frozen":true`)
	w.Run("bpool", "release", a.Lease.ID).Exits(t, 0, "")
	asserts("moved", ci, "/release", `{"lease": "`+b.Lease.ID+`", "moved": true}`, 200, b.Lease.ID)
	cmdtest.Until(t, "both ends are logged", func() bool {
		return strings.Count(p.Errs.String(), "a lease has ended") == 2
	})
	if n := strings.Count(p.Errs.String(), "has moved to another host"); n != 1 {
		t.Errorf("%d leases have moved, the other one was released: %s", n, p.Errs.String())
	}
	w.Run("bpool", "drain", "--timeout", "1s").Exits(t, 64, "--wait and --move")
	w.Run("bpool", "drain", "--move", "--off").Exits(t, 64, "exclude")
}

// awaitRestart waits until a client is disconnected so that it connects again.
func awaitRestart(t *testing.T, c *cmdtest.Wire) {
	t.Helper()
	var closed *websocket.CloseError
	for err := error(nil); !errors.As(err, &closed); {
		if _, err = c.Conn.Next(); err != nil && !errors.As(err, &closed) {
			t.Fatal(err)
		}
	}
	if closed.Code != websocket.ServiceRestart {
		t.Errorf("a client is disconnected with %d", closed.Code)
	}
}

// A host is drained by NATS. Errors say what there is in its place, and which right is missing.
func TestDrainHost(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	passwords := []string{"BTOOLS_VM1_PASSWORD=one", "BTOOLS_CI_PASSWORD=two", "BTOOLS_OPS_PASSWORD=three"}
	s := startNATSWith(t, passwords, "-c", cmdtest.Root+"/scripts/nats/users.conf")
	tokens := w.Dir + "/tokens"
	cmdtest.WriteFile(t, tokens, "ci "+ciToken+" trust\n")
	user := func(name, password string) []string {
		cmdtest.WriteFile(t, w.Dir+"/"+name, password+"\n")
		return []string{"PW_MCP_PROXY_NATS_USER=" + name, "PW_MCP_PROXY_NATS_PASSWORD_FILE=" + w.Dir + "/" + name,
			"BTOOLS_POOL_NATS=" + s.url(), "PW_MCP_PROXY_HOSTS_TOKEN=" + ciToken}
	}
	host := w.With(user("vm1", "one")...)
	host.With("BTOOLS_STATE="+w.Dir+"/host.json", "PW_MCP_PROXY_HOSTS_TOKEN=").WebPool([]string{"--token-file", tokens,
		"--nats", s.url(), "--socket", w.Dir + "/host"}, "_A_INSTANCES=1", "LAUNCH=false")
	ci, ops := w.With(user("ci", "two")...), w.With(user("ops", "three")...)
	cmdtest.Until(t, "the host is found", func() bool { return free(ci) == 1 })
	held := hold(ci, "A")
	drain := func(on *cmdtest.World, code int, part string, args ...string) {
		t.Helper()
		r := on.Run("bpool", append([]string{"drain", "--host"}, args...)...)
		if r.Code != code || !strings.Contains(r.Err, part) || code == 69 && strings.Count(r.Err, "bpool: ") != 1 {
			t.Errorf("drain %v: %+v", args, r)
		}
	}
	drain(ci, 69, "only admins may drain hosts: look at NATS_USER ci", "vm1")
	drain(ops, 69, `there is no host "vm2": there are local/vm1`, "vm2")
	drain(ops, 69, "no pool is named", "vm1", "B")
	drain(ops, 75, "no other host grants leases of A", "vm1", "--move")
	drain(ops, 64, "exclude", "vm1", "--socket", w.Dir+"/host")
	drain(ops, 75, "1 lease (bpool", "vm1", "--wait", "--timeout", "100ms")
	cmdtest.Until(t, "hosts says so", func() bool { return listHosts(ops)[0].Host.State == "draining" })
	held.cmd.Process.Signal(syscall.SIGTERM)
	held.ends(0, "")
	drain(ops, 0, "", "local/vm1", "--wait")
	drain(ops, 0, "leases are granted again", "vm1", "--off")
	cmdtest.Until(t, "it is up again", func() bool { return free(ci) == 1 })
}

// moved is a session that moves, with two tabs.
type moved struct {
	t *testing.T
	cmdtest.Leased
	site string
	n    int
}

func (s *moved) at() string { return s.Instance.HTTPURL }

// movingSite serves long pages.
func movingSite(t *testing.T) string {
	return cmdtest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<div style="height:9000px">`)
	})
}

// begin gives the session a login, tabs, storage and scroll positions, and returns a connection to a tab.
func (s *moved) begin(pad int) *cmdtest.Wire {
	t := s.t
	t.Helper()
	cmdtest.Get(t, "PUT", s.at()+"/json/new?"+url.QueryEscape(s.site+"/second"))
	first := cmdtest.FirstPage(t, s.at())
	for _, p := range s.pages() {
		c := cmdtest.Dial(t, p.WS)
		if p.URL == "about:blank" {
			c.Conn.Close(1000, "")
			c = first
			c.Open(s.site + "/first")
		}
		cmdtest.Until(t, "the page is there", func() bool {
			return strings.Contains(c.Ask("Runtime.evaluate",
				`{"expression":"document.scrollingElement?.scrollHeight > 5000"}`), "true")
		})
		c.Ask("Runtime.evaluate", fmt.Sprintf(`{"expression":"document.cookie = 'sid=%d; Max-Age=3600';`+
			`localStorage.n = %d; localStorage.pad = 'x'.repeat(%d); sessionStorage.s = location.pathname + %d;`+
			`scrollTo({ top: 1234, behavior: 'instant' })"}`, s.n, s.n, pad, s.n))
		if c != first {
			c.Conn.Close(1000, "")
		}
	}
	return first
}

type movedPage struct {
	URL string
	WS  string `json:"webSocketDebuggerUrl"`
}

// pages returns the tabs, for which the session wakes.
func (s *moved) pages() (all []movedPage) {
	s.t.Helper()
	defer cmdtest.Dial(s.t, s.Instance.WSURL).Conn.Close(1000, "")
	_, list := cmdtest.Get(s.t, "GET", s.at()+"/json/list")
	if err := json.Unmarshal([]byte(list), &all); err != nil {
		s.t.Fatalf("%s: %v", list, err)
	}
	return all
}

// check asserts that the session is as it was.
func (s *moved) check(pad int) {
	t := s.t
	t.Helper()
	var paths []string
	for _, p := range s.pages() {
		c := cmdtest.Dial(t, p.WS)
		got := c.Ask("Runtime.evaluate", `{"expression":"[location.pathname, document.cookie, localStorage.n, `+
			`localStorage.pad.length, sessionStorage.s, scrollY].join()"}`)
		path := strings.TrimPrefix(p.URL, s.site)
		paths = append(paths, path)
		want := fmt.Sprintf("%s,sid=%d,%d,%d,%s%d,1234", path, s.n, s.n, pad, path, s.n)
		if !strings.Contains(got, want) {
			t.Errorf("session %d has %s, want %s", s.n, got, want)
		}
		c.Conn.Close(1000, "")
	}
	if slices.Sort(paths); !slices.Equal(paths, []string{"/first", "/second"}) {
		t.Errorf("session %d has the tabs %v", s.n, paths)
	}
}

// moveHosts starts three hosts with sessions, and leases by a gateway that sleep at the first one.
func moveHosts(w *cmdtest.World, s *natsServer, leases, pad int) (client, g *cmdtest.World, all []*cmdtest.Pool,
	sessions []*moved) {
	t := w.T
	t.Helper()
	client, all = hosts(w, s, 3, "BROWSER=chrome-headless-shell", "_A_IS_DEFAULT=1", "_A_ISOLATION=context",
		fmt.Sprintf("_A_INSTANCES=%d", leases), "_A_HIBERNATE=200ms")
	cmdtest.Until(t, "three hosts are found", func() bool { return free(client) == 3*leases })
	site := movingSite(t)
	for _, host := range []string{"host1", "host2"} {
		client.Run("bpool", "drain", "--host", host).Exits(t, 0, "")
	}
	service := gatewayOf(w, s)
	for n := range leases {
		m := &moved{t, service.Lease("A"), site, n}
		m.begin(pad).Conn.Close(1000, "")
		sessions = append(sessions, m)
	}
	for _, host := range []string{"host1", "host2"} {
		client.Run("bpool", "drain", "--off", "--host", host).Exits(t, 0, "")
	}
	cmdtest.Until(t, "all sessions sleep", func() bool {
		return strings.Count(statusOf(all[0]), `"hibernated":true`) == leases
	})
	return client, service.W, all, sessions
}

// statusOf returns the status of a host.
func statusOf(p *cmdtest.Pool) string { return p.W.Run("bpool", "status", "--socket", p.Socket).Out }

// leasesOf returns the number of leases of hosts.
func leasesOf(all []*cmdtest.Pool) (n int) {
	for _, p := range all {
		n += strings.Count(statusOf(p), `"lease":"`)
	}
	return n
}

// A host that is drained loses no session: those that sleep move at once, one that is in use after --timeout. Their
// clients have them at the same address, with logins, tabs, storage and scroll positions. With LONG=1, 50 sleeping
// sessions of 160 KB move.
func TestMove(t *testing.T) {
	t.Parallel()
	leases, pad := 3, 1000
	if cmdtest.IsLong {
		leases, pad = 51, 160_000
	}
	w := cmdtest.New(t)
	client, g, all, sessions := moveHosts(w, startNATS(t), leases, pad)
	used := cmdtest.FirstPage(t, sessions[0].at())
	used.Ask("Runtime.evaluate", `{"expression":"scrollTo({ top: 1234, behavior: 'instant' })"}`)
	began := time.Now()
	client.Run("bpool", "drain", "--host", "host0", "--move").Exits(t, 0, "leases move")
	cmdtest.Until(t, "those that sleep have moved", func() bool { return leasesOf(all[:1]) == 1 })
	t.Logf("%d sessions have moved after %v", leases-1, time.Since(began))
	if took := time.Since(began); cmdtest.IsLong && took > 5*time.Second {
		t.Errorf("%d sessions moved in %v", leases-1, took)
	}
	if n := leasesOf(all); n != leases {
		t.Errorf("there are %d leases of %d sessions", n, leases)
	}
	if got := statusOf(all[0]); !strings.Contains(got, `"stays":"it is in use"`) {
		t.Errorf("one is in use: %s", got)
	}
	client.Run("bpool", "drain", "--host", "host0", "--move", "--wait", "--timeout", "100ms").Exits(t, 0, "")
	awaitRestart(t, used)
	began = time.Now()
	for _, s := range sessions {
		s.check(pad)
	}
	t.Logf("they have been asked within %v", time.Since(began))
	got := g.Run("bpool", "status").Out
	if strings.Count(got, `"lease":"`) != leases || strings.Contains(got, `"host":"host0"`) {
		t.Errorf("the gateway's leases: %s", got)
	}
	g.Run("bpool", "release", "--all").Exits(t, 0, "")
	if n := leasesOf(all); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// A session that is awake moves when nobody has been connected for 5 s; so does one of a host's process that has a
// successor. One of a gateway's process that has a successor stays.
func TestMoveAfterUpgrade(t *testing.T) {
	t.Parallel()
	if !cmdtest.IsLong {
		t.Skip("LONG=1 runs it")
	}
	w := cmdtest.New(t)
	s := startNATS(t)
	client, all := hosts(w, s, 2, "BROWSER=chrome-headless-shell", "_A_IS_DEFAULT=1", "_A_ISOLATION=context",
		"_A_INSTANCES=2")
	for k, p := range all {
		all[k].W = p.W.With("BTOOLS_POOL_SOCKET=" + p.Socket)
		t.Cleanup(func() { stopService(t, fmt.Sprintf("%s/host%d.json", w.Dir, k)) })
	}
	cmdtest.Until(t, "two hosts are found", func() bool { return free(client) == 4 })
	client.Run("bpool", "drain", "--host", "host1").Exits(t, 0, "")
	g := gatewayOf(w, s)
	t.Cleanup(func() { stopService(t, w.Dir+"/gateway.json") })
	m := &moved{t, g.Lease("A"), movingSite(t), 0}
	m.begin(10).Conn.Close(1000, "")
	began := time.Now()
	all[0].W.Run("bpool", "upgrade").Exits(t, 0, "")
	client.Run("bpool", "drain", "--off", "--host", "host1").Exits(t, 0, "")
	cmdtest.Until(t, "two hosts are found", func() bool { return len(listHosts(client)) == 2 })
	client.Run("bpool", "drain", "--host", "host0", "--move", "--wait").Exits(t, 0, "waiting for 1 lease (A/")
	if took := time.Since(began); took < 5*time.Second {
		t.Errorf("it has moved after %v", took)
	}
	m.check(10)
	g.W.Run("bpool", "upgrade").Exits(t, 0, "")
	client.Run("bpool", "drain", "--off", "--host", "host0").Exits(t, 0, "")
	client.Run("bpool", "drain", "--host", "host1", "--move").Exits(t, 0, "")
	cmdtest.Until(t, "it is said why the lease stays", func() bool {
		return strings.Contains(statusOf(all[1]), `"stays":"its gateway is stopping, or was upgraded"`)
	})
	m.check(10)
}

// Whoever is killed at whichever step of a move: never are there two copies of the session that can be used. It is at
// the new host, still at the old one, or it is lost with its host or gateway. With LONG=1 all are killed at all steps.
func TestKilledInAMove(t *testing.T) {
	t.Parallel()
	const here, there, lost = "from", "to", ""
	for _, c := range []struct {
		step, victim, where string
		isLong              bool
	}{
		{"POST /lease ", "to", here, false},
		{"POST /release ", "from", there, false},
		{"POST /freeze ", "from", lost, true},
		{"POST /freeze ", "to", here, true},
		{"POST /freeze ", "gateway", lost, true},
		{"POST /freeze ", "nats", here, true},
		{"/session HTTP", "from", lost, true},
		{"/session HTTP", "to", here, true},
		{"/session HTTP", "gateway", lost, true},
		{"/session HTTP", "nats", here, true},
		{"POST /lease ", "from", there, true},
		{"POST /lease ", "gateway", lost, true},
		{"POST /lease ", "nats", there, true},
		{"POST /release ", "to", lost, true},
		{"POST /release ", "gateway", lost, true},
		{"POST /release ", "nats", there, true},
	} {
		if c.isLong && !cmdtest.IsLong {
			continue
		}
		t.Run(strings.TrimSpace(strings.Trim(c.step, "POSTH /"))+" "+c.victim, func(t *testing.T) {
			if !c.isLong {
				t.Parallel()
			}
			w := cmdtest.New(t)
			s := startNATS(t)
			client := w.With("BTOOLS_POOL_NATS="+s.url(), "PW_MCP_PROXY_HOSTS_TOKEN="+ciToken)
			all := map[string]*farHost{}
			start := func(name string) *farHost {
				h := newFarHost(w, s, name, "BROWSER=chrome-headless-shell", "_A_IS_DEFAULT=1", "_A_ISOLATION=context",
					"_A_INSTANCES=1", "_A_HIBERNATE=200ms")
				all[name] = h
				cmdtest.Until(t, "the host is found", func() bool { return free(client) == 1 })
				return h
			}
			from := start("from")
			held := hold(client, "A")
			m := &moved{t, held.lease(), movingSite(t), 0}
			m.begin(1000).Conn.Close(1000, "")
			cmdtest.Until(t, "the session sleeps", func() bool {
				return strings.Contains(statusOf(from.Pool), `"hibernated":true`)
			})
			to := start("to")
			killed := make(chan struct{})
			var once sync.Once
			see := func(b []byte) {
				if bytes.Contains(b, []byte(c.step)) {
					once.Do(func() {
						defer close(killed)
						switch c.victim {
						case "gateway":
							held.cmd.Process.Kill()
						case "nats":
							s.cmd.Process.Kill()
						default:
							all[c.victim].Cmd.Process.Kill()
							all[c.victim].Cmd.Wait()
						}
					})
				}
			}
			for _, h := range []*farHost{from, to} {
				h.web.mu.Lock()
				h.web.seen = see
				h.web.mu.Unlock()
			}
			from.W.Run("bpool", "drain", "--move", "--socket", from.Socket).Exits(t, 0, "")
			select {
			case <-killed:
			case <-time.After(cmdtest.Patience):
				t.Fatal("the step does not come")
			}
			usable := func() (where []string) {
				for name, h := range all {
					if name == c.victim {
						continue
					}
					st := statusOf(h.Pool)
					if strings.Contains(st, `"lease":"`) && !strings.Contains(st, `"stays":"it is being moved"`) {
						where = append(where, name)
					}
				}
				if len(where) > 1 {
					t.Errorf("the session can be used at %v", where)
				}
				return where
			}
			cmdtest.Until(t, "the session is at "+c.where, func() bool {
				where := strings.Join(usable(), "")
				return where == c.where && (c.where != lost || held.hasEnded())
			})
			if c.where != lost {
				m.check(1000)
			}
			usable()
		})
	}
}
