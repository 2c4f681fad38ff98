//go:build linux

package main_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/websocket"
)

// A lease that a host keeps, and does not use, stays while a person has control of its session, over its time to live
// and although another host waits for the instance.
func TestMCPLeaseUnderAPerson(t *testing.T) {
	t.Parallel()
	site := cmdtest.LoginSite(t)
	w := cmdtest.New(t)
	const ttl = 2 * time.Second
	p := w.Shared("_A_INSTANCES=1", "_A_AFFINITY_IDLE=100ms", "_A_LEASE_TTL="+ttl.String())
	ann, bob := w.Builtin("--pool"), w.Builtin("--pool")
	ann.MustTool("browser_navigate", `{"url":"%s/login"}`, site)
	ann.AwaitTitle("logged in")
	lease := p.Status().Pools[0].Instances[0].Lease
	var a api.Attached
	conn, early, err := control.Take(t.Context(), p.Socket, string(api.Attach), api.AttachRequest{Lease: lease,
		Who: "Anna"}, &a)
	if err != nil || !a.Lock {
		t.Fatal(a, err)
	}
	person := websocket.New(conn, true, early)
	defer person.Close(websocket.Normal, "")
	ask := func(command string) {
		t.Helper()
		if err := person.Write([]byte(command)); err != nil {
			t.Fatal(err)
		}
		for answered := false; !answered; {
			m, err := person.Next()
			if err != nil {
				t.Fatal(err)
			}
			b, _ := m.Bytes()
			var got struct {
				ID    int
				Error json.RawMessage
			}
			json.Unmarshal(b, &got)
			if answered = got.ID > 0; got.Error != nil {
				t.Fatalf("%s: %s", command, b)
			}
		}
	}
	ask(`{"id":1,"method":"Btools.take","params":{"holder":"a-person-of-the-test"}}`)
	taken := time.Now()
	got := make(chan string, 1)
	go func() { got <- bob.Tool("browser_navigate", `{"url":"`+site+`"}`).Line }()
	cmdtest.Until(t, "it is past the time to live of the lease", func() bool {
		now := p.Status()
		if i := now.Pools[0].Instances[0]; i.Lease != lease || i.Control == nil {
			t.Fatalf("after %v: %+v", time.Since(taken), i)
		}
		return now.Summary.Waiting == 1 && time.Since(taken) > 2*ttl
	})
	ask(`{"id":2,"method":"Btools.give"}`)
	if line := <-got; !strings.Contains(line, "nobody") {
		t.Errorf("afterwards another host gets %s", line)
	}
}
