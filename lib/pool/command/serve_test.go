package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"btools/lib/control"
	"btools/lib/logins/remote"
	"btools/lib/pool"
	"btools/lib/pool/config"
	"btools/lib/proc"
)

// startService starts a service of slots without browsers on a control socket.
func startService(t *testing.T, vars ...string) (*pool.Service, string) {
	t.Helper()
	env := []string{config.Prefix + "LAUNCH=false"}
	for _, kv := range vars {
		env = append(env, config.Prefix+kv)
	}
	cfg, err := config.Load("", env)
	if err != nil {
		t.Fatal(err)
	}
	v := pool.New(cfg, slog.New(slog.DiscardHandler))
	ready, err := v.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-ready
	path := t.TempDir() + "/s"
	serveAt(t, path, &handler{service: v, states: &remote.Server{}})
	return v, path
}

// serveAt serves a control socket.
func serveAt(t *testing.T, path string, h *handler) {
	t.Helper()
	l, err := control.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() { control.Serve(ctx, l, h.serve()) })
	t.Cleanup(func() {
		h.service.Stop()
		l.Close()
		end()
		served.Wait()
	})
}

// pipeline is a connection that sends several requests at once.
type pipeline struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Scanner
}

func connect(t *testing.T, path string) *pipeline {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &pipeline{t, c, bufio.NewScanner(c)}
}

type reply struct {
	ID     int
	Result struct {
		Lease struct{ ID string }
		Ended string
	}
	Error *control.Error
}

func (l *pipeline) reply() (r reply) {
	l.t.Helper()
	if !l.in.Scan() {
		l.t.Fatal("no answer:", l.in.Err())
	}
	if err := json.Unmarshal(l.in.Bytes(), &r); err != nil {
		l.t.Fatal(err)
	}
	return r
}

// Requests in one write are queued in their order, and each is served before
// the next.
func TestPipelinedRequestsAreServedInTheirOrder(t *testing.T) {
	v, path := startService(t, "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	first := connect(t, path)
	for round := range 50 {
		fmt.Fprintln(first.conn, `{"id":0,"method":"hold"}`)
		held := first.reply()
		var lines strings.Builder
		const requests = 8
		for id := range requests {
			fmt.Fprintf(&lines, `{"id":%d,"method":"hold","params":{"timeout_ms":60000}}`+"\n", id)
		}
		c := connect(t, path)
		if _, err := c.conn.Write([]byte(lines.String())); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(c.conn, `{"id":100,"method":"status"}`)
		if r := c.reply(); r.ID != 100 { // by then all of them are waiting
			t.Fatalf("%+v", r)
		}
		v.Release(held.Result.Lease.ID)
		for id := range requests {
			r := c.reply()
			if r.ID != id || r.Error != nil {
				t.Fatalf("round %d: %d is served as number %d: %v", round, r.ID, id, r.Error)
			}
			v.Release(r.Result.Lease.ID)
		}
		c.conn.Close()
	}
}

// A request beyond the connection's limit is not queued.
func TestOneTooManyLeavesTheLine(t *testing.T) {
	v, path := startService(t, "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	c := connect(t, path)
	for id := range 66 { // one is served, 64 wait
		fmt.Fprintf(c.conn, `{"id":%d,"method":"hold","params":{"timeout_ms":60000}}`+"\n", id)
	}
	if r := c.reply(); r.ID != 0 || r.Error != nil {
		t.Fatalf("%+v", r)
	}
	if r := c.reply(); r.ID != 65 || r.Error == nil || r.Error.Code != control.TryAgain {
		t.Fatalf("%+v", r)
	}
	st, err := v.Status("A")
	if err != nil || st.Summary.Waiting != 64 {
		t.Errorf("%d wait, %v", st.Summary.Waiting, err)
	}
}

// A process whose end the service cannot watch cannot own a lease.
func TestOwnersThatCannotBeWatched(t *testing.T) {
	v, path := startService(t, "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	self := proc.Self()
	elsewhere := self
	boot, _, _ := strings.Cut(self.Boot, "/")
	elsewhere.Boot = boot + "/1"
	before := self
	before.Boot = "another/1"
	other := self
	other.Start++
	c := connect(t, path)
	for owner, want := range map[proc.Identity]string{elsewhere: "in another PID namespace",
		before: "no running process",
		other:  "no running process"} {
		b, _ := json.Marshal(owner)
		fmt.Fprintf(c.conn, `{"id":1,"method":"hold","params":{"owner":%s}}`+"\n", b)
		if r := c.reply(); r.Error == nil || r.Error.Code != control.BadRequest ||
			!strings.Contains(r.Error.Message, want) {
			t.Errorf("%+v: %+v", owner, r)
		}
	}
	if v.Leases() != 0 {
		t.Error("one of them has a lease")
	}
}

// An unconfirmed lease ends with its connection.
func TestALeaseThatIsNotConfirmedEndsWithItsConnection(t *testing.T) {
	v, path := startService(t, "_A_INSTANCES=1", "_A_IS_DEFAULT=1")
	gone := func() {
		t.Helper()
		for end := time.Now().Add(time.Minute); v.Leases() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the lease goes on")
			}
		}
	}
	lease := func(c *pipeline) string {
		t.Helper()
		fmt.Fprintln(c.conn, `{"id":1,"method":"hold","params":{"confirm":true}}`)
		r := c.reply()
		if r.Error != nil {
			t.Fatal(r.Error)
		}
		return r.Result.Lease.ID
	}
	c := connect(t, path)
	lease(c)
	c.conn.Close()
	gone()
	// The client disconnects before it can read the answer.
	c = connect(t, path)
	fmt.Fprintln(c.conn, `{"id":1,"method":"hold","params":{"confirm":true}}`)
	c.conn.Close()
	gone()

	c = connect(t, path)
	id := lease(c)
	confirm := func(c *pipeline, id string) *control.Error {
		t.Helper()
		fmt.Fprintf(c.conn, `{"id":2,"method":"renew","params":{"lease":%q,"confirm":true}}`+"\n", id)
		return c.reply().Error
	}
	if err := confirm(c, id); err != nil {
		t.Fatal(err)
	}
	c.conn.Close()
	c = connect(t, path)
	if err := confirm(c, id); err == nil || err.Code != control.BadRequest {
		t.Error("confirmed twice:", err)
	}
	if err := confirm(c, "lease_1_x"); err == nil || err.Code != control.LeaseNotFound {
		t.Error(err)
	}
	if v.Leases() != 1 {
		t.Fatal("a lease that is confirmed has ended with its connection")
	}
	// A request for the end of the lease is answered, even after the end.
	fmt.Fprintf(c.conn, `{"id":3,"method":"watch","params":{"lease":%q}}`+"\n", id)
	v.Release(id)
	if r := c.reply(); r.Result.Ended != "the lease was released" {
		t.Errorf("%+v", r)
	}
	fmt.Fprintf(c.conn, `{"id":3,"method":"watch","params":{"lease":%q}}`+"\n", id)
	if r := c.reply(); r.Result.Ended != "the lease was released" {
		t.Errorf("%+v", r)
	}
}
