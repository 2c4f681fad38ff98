//go:build linux

package main_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/wait"
	"btools/lib/websocket"
)

// attach connects a person to the session of a lease.
func attach(t *testing.T, p *cmdtest.Pool, lease string) *cmdtest.Wire {
	t.Helper()
	var a api.Attached
	conn, early, err := control.Take(t.Context(), p.Socket, string(api.Attach), api.AttachRequest{Lease: lease,
		Who: "Anna"}, &a)
	if err != nil || !a.Lock {
		t.Fatal(a, err)
	}
	ws := websocket.New(conn, true, early)
	t.Cleanup(func() { ws.Close(websocket.Normal, "") })
	return &cmdtest.Wire{T: t, Conn: ws}
}

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
	person := attach(t, p, lease)
	person.Ask("Btools.take", `{"holder":"a-person-of-the-test"}`)
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
	person.Ask("Btools.give", `{}`)
	if line := <-got; !strings.Contains(line, "nobody") {
		t.Errorf("afterwards another host gets %s", line)
	}
}

// What an agent's click does while persons take control and give it back is what its result says: it has clicked once,
// or not at all.
func TestMCPClicksUnderAPerson(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Shared("_A_INSTANCES=1")
	agent := w.Builtin("--pool")
	agent.MustTool("browser_navigate", `{"url":%q}`,
		"data:text/html,<title>0</title><button onclick=document.title++>buy</button>")
	agent.AwaitTitle("0")
	person := attach(t, p, p.Status().Pools[0].Instances[0].Lease)
	over, handovers := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; !wait.Closed(over); n++ {
			person.Ask("Btools.take", `{"holder":"a-person-of-the-test"}`)
			person.Ask("Btools.give", `{}`)
		}
		handovers <- n
	}()
	clicked, refused := 0, 0
	for range 10 {
		switch r := agent.Tool("browser_click", `{"target":"button"}`).Tool(t); {
		case !r.IsError:
			clicked++
		case strings.Contains(r.Text(), "a person has control of this session"):
			refused++
		default:
			t.Errorf("a click failed: %s", r.Text())
		}
	}
	close(over)
	t.Logf("%d hand-overs, %d clicks, %d refused", <-handovers, clicked, refused)
	agent.AwaitTitle(fmt.Sprint(clicked))
}
