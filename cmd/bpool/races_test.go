//go:build linux

package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// Who disconnects once the answer is there keeps the lease.
func TestLeaseOfAClientThatDisconnects(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	cmdtest.WriteFile(t, w.Dir+"/tokens", "ci "+ciToken+" trust\n")
	p := w.WebPool([]string{"--token-file", w.Dir + "/tokens"}, "_A_IS_DEFAULT=1", "_A_LAUNCH=false",
		"_A_INSTANCES=200")
	for range 200 {
		c, err := net.Dial("tcp", strings.TrimPrefix(p.HTTP, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /lease HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\n"+
			"Content-Length: 2\r\n\r\n{}", ciToken)
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		c.Close()
	}
	_, b := webClient{t, p.HTTP, ciToken}.do("/leases", "")
	if n := strings.Count(b, `"lease_`); n != 200 {
		t.Errorf("%d of 200 leases are left", n)
	}
}

// startLeasing starts a service that can be upgraded, of one session, with a client by HTTP.
func startLeasing(w *cmdtest.World) (*upgradable, webClient) {
	w.T.Helper()
	cmdtest.WriteFile(w.T, w.Dir+"/tokens", "ci "+ciToken+"\n")
	u := startUpgradable(w, []string{"--http", "0", "--token-file", w.Dir + "/tokens"}, "_A_INSTANCES=1",
		"_A_IS_DEFAULT=1", "_A_ISOLATION=context", "BROWSER=chrome-headless-shell")
	return u, webClient{w.T, u.http, ciToken}
}

// A client that leaves its connection open after the lease has ended holds no process.
func TestUpgradeWithAClientThatDoesNotClose(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	u, ci := startLeasing(w)
	l := ci.lease("{}")
	c, err := net.Dial("tcp", strings.TrimPrefix(u.http, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		l.Instance.WSURL[strings.Index(l.Instance.WSURL, "/lease/"):])
	if line, _ := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, " 101 ") {
		t.Fatal(line)
	}
	u.upgrade()
	if code, b := ci.do("/release", `{"lease":"`+l.Lease.ID+`"}`); code != 200 {
		t.Fatal(code, b)
	}
	u.awaitEnd(u.pids[0])
}

// A client that makes one request after the other on a connection is told to close it, and no request fails.
func TestUpgradeWithKeptConnections(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	cmdtest.WriteFile(t, w.Dir+"/tokens", "ci "+ciToken+" trust\n")
	u := startUpgradable(w, []string{"--http", "0", "--token-file", w.Dir + "/tokens"}, "_A_INSTANCES=1",
		"_A_IS_DEFAULT=1", "_A_LAUNCH=false")
	var stop atomic.Bool
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			var c net.Conn
			var answers *bufio.Reader
			for n := 0; !stop.Load(); n++ {
				if c == nil {
					c, _ = net.Dial("tcp", strings.TrimPrefix(u.http, "http://"))
					answers = bufio.NewReader(c)
				}
				fmt.Fprintf(c, "GET /leases HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", ciToken)
				a, err := http.ReadResponse(answers, nil)
				if err != nil || a.StatusCode != 200 {
					t.Errorf("request %d: %v %v", n, a, err)
					return
				}
				io.Copy(io.Discard, a.Body)
				if a.Close {
					c.Close()
					c = nil
				}
				time.Sleep(10 * time.Millisecond) // the connection is idle
			}
		})
	}
	for range 5 {
		u.upgrade()
	}
	stop.Store(true)
	running.Wait()
	u.awaitEnd(u.pids[:5]...)
}

// While the successor is being listed, which may take long, the service answers for the leases of before.
func TestUpgradeWhileTheStateFileIsLocked(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	u := startUpgradable(w, nil, "_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_LAUNCH=false")
	lease := strings.TrimSpace(w.Run("bpool", "lease", "--ttl", "1h", "-f", "lease.id").Out)
	u.upgrade()
	lock, err := os.OpenFile(w.Dir+"/state/state.lock", os.O_RDWR, 0)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	upgraded := make(chan struct{})
	go func() {
		defer close(upgraded)
		w.Run("bpool", "upgrade").Exits(t, 0, "the service has the pid")
	}()
	for range 30 { // at most until the lock is waited for no longer
		if r := w.Run("bpool", "renew", lease); r.Code != 0 {
			t.Error(r.Err)
		}
	}
	lock.Close()
	<-upgraded
	u.next()
	w.Run("bpool", "release", lease)
	u.awaitEnd(u.pids[:2]...)
}

// A process whose successor has just begun to serve finds a lease of the process before it.
func TestUpgradeFindsLeasesOfAllProcesses(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	u, ci := startLeasing(w)
	l := ci.lease("{}")
	path := l.Instance.HTTPURL[strings.Index(l.Instance.HTTPURL, "/lease/"):] + "/json/version"
	u.upgrade()
	for answered := false; !answered; {
		c, err := net.Dial("tcp", strings.TrimPrefix(u.http, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		answers := bufio.NewReader(c)
		ask := func() (status int) {
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
			a, err := http.ReadResponse(answers, nil)
			if err != nil {
				return 0
			}
			io.Copy(io.Discard, a.Body)
			return a.StatusCode
		}
		if code := ask(); code != 200 {
			t.Fatal(code)
		}
		u.upgrade()
		code := ask() // of the process that the connection is to, unless it was slow and has ended
		if answered = code != 0; answered && code != 200 {
			t.Errorf("after the upgrade: %d", code)
		}
		c.Close()
	}
	ci.do("/release", `{"lease":"`+l.Lease.ID+`"}`)
	u.awaitEnd(u.pids[:len(u.pids)-1]...)
}
