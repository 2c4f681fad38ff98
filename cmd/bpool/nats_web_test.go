//go:build linux

package main_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/websocket"
)

// A gateway leases browsers of hosts to clients on other machines, too: each token what it may.
func TestWebOfGateway(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	client, _ := hosts(w, s, 1, "_A_INSTANCES=1")
	cmdtest.Until(t, "the host is found", func() bool { return free(client) == 1 })
	file := w.Dir + "/clients"
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ofA := "a " + trustToken + " pools=A max=1 trust\n"
	write(ofA + "b " + otherToken + " pools=B\n" + "c " + adminToken + "\n")
	on := w.With("BTOOLS_STATE=" + w.Dir + "/gateway.json")
	g := on.ServePool([]string{"--nats", s.url(), "--socket", w.Dir + "/gateway.sock", "--http", "0", "--token-file",
		file}, "HOSTS_TOKEN="+ciToken, "NATS_NAME=gateway")
	g.W = on.With("BTOOLS_POOL_SOCKET=" + g.Socket)
	a, b, c := webClient{t, g.HTTP, trustToken}, webClient{t, g.HTTP, otherToken}, webClient{t, g.HTTP, adminToken}

	if code, text := b.do("/lease", `{"pool":"A"}`); code != 403 ||
		!strings.Contains(text, "not lease from the pool A") {
		t.Errorf("a token for another pool: %d %s", code, text)
	}
	if code, text := c.do("/lease", `{"pool":"A"}`); code != 403 || !strings.Contains(text, "whole browser") {
		t.Errorf("a whole browser without trust: %d %s", code, text)
	}
	cmdtest.Until(t, "its lease has ended", func() bool { return free(client) == 1 })
	lease := func() (l cmdtest.Leased) {
		t.Helper()
		code, text := a.do("/lease", `{"keep":"k"}`)
		if err := json.Unmarshal([]byte(text), &l); err != nil || code != 200 ||
			!strings.HasPrefix(l.Instance.HTTPURL, g.HTTP+"/lease/"+l.Lease.ID+".") {
			t.Fatalf("%d %s %v", code, text, err)
		}
		return l
	}
	l := lease()
	get := func(url string, want int) {
		t.Helper()
		if code, text := cmdtest.Get(t, "GET", url); code != want {
			t.Errorf("%s answers %d %s", url, code, text)
		}
	}
	get(l.Instance.HTTPURL+"/json/version", 200)
	get(g.HTTP+"/lease/"+l.Lease.ID+".wrong/json/version", 404)
	if _, text := a.do("/leases", ""); !strings.Contains(text, l.Lease.ID) {
		t.Errorf("the leases of the token: %s", text)
	}
	if _, text := b.do("/leases", ""); strings.Contains(text, l.Lease.ID) {
		t.Errorf("another one sees them: %s", text)
	}
	if code, text := a.do("/lease", `{"timeout":"100ms"}`); code == 200 {
		t.Errorf("more than max: %s", text)
	}
	if code, _ := b.do("/release", `{"lease":"`+l.Lease.ID+`"}`); code == 200 {
		if _, text := a.do("/leases", ""); !strings.Contains(text, l.Lease.ID) {
			t.Error("another token has ended the lease")
		}
	}
	a.do("/release", `{"lease":"`+l.Lease.ID+`"}`)
	get(l.Instance.HTTPURL+"/json/version", 410)

	conn := cmdtest.Dial(t, strings.Replace(g.HTTP, "http", "ws", 1)+"/connect?pool=A&token="+trustToken)
	if got := conn.Ask("Browser.getVersion", "{}"); !strings.Contains(got, `"id":1`) { // a fake browser's echo
		t.Errorf("the WebSocket says %s", got)
	}
	conn.Conn.Close(websocket.Normal, "")
	cmdtest.Until(t, "the lease of the WebSocket has ended", func() bool { return free(client) == 1 })

	lease()
	write("c " + adminToken + "\n")
	cmdtest.Until(t, "the lease of a token that was removed has ended", func() bool { return free(client) == 1 })
}
