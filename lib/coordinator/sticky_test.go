package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"btools/lib/agent/source"
	"btools/lib/control"
)

// grants is a bpool whose lease is granted when the test says so.
type grants struct {
	asked, released chan string
	grant           chan struct{}
}

func (g *grants) handle(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case "status":
		return json.RawMessage(`{"pools":[{"name":"A","is_default":true,"affinity":"session","lease_ttl_ms":3600000,` +
			`"instances":[{"id":"0","http_url":"http://127.0.0.1:9"}]}]}`), nil
	case "hold":
		return control.Later(func() (any, error) {
			g.asked <- string(params)
			<-g.grant
			return json.RawMessage(`{"lease":{"id":"lease_1","pool":"A","instance":"0"},` +
				`"instance":{"host":"127.0.0.1","port":9,"http_url":"http://127.0.0.1:9"}}`), nil
		}), nil
	case "watch":
		return control.Later(func() (any, error) { <-ctx.Done(); return nil, context.Cause(ctx) }), nil
	case "rest":
		return control.Later(func() (any, error) {
			g.asked <- "rest"
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}), nil
	case "release":
		g.released <- string(params)
		return json.RawMessage(`[{"lease":{"id":"lease_1"}}]`), nil
	}
	return nil, control.Errorf(control.UnknownMethod, "no %s", method)
}

// newGrants starts such a bpool, and a session that leases from it.
func newGrants(t *testing.T) (*grants, *Host) {
	t.Helper()
	sock := filepath.Join(t.TempDir(), "late.sock")
	l, err := control.Listen(t.Context(), sock)
	if err != nil {
		t.Fatal(err)
	}
	g := &grants{asked: make(chan string), released: make(chan string, 1), grant: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		control.Serve(ctx, l, g.handle)
	}()
	b := source.Served(func(ctx context.Context) (*control.Client, error) { return control.Dial(ctx, sock) }, "")
	t.Cleanup(func() {
		b.Close()
		stop()
		l.Close()
		<-served
	})
	c := New(Options{Source: b})
	return g, c.NewHost(func(json.RawMessage, bool, []byte) {}, false)
}

// A bpool that does not answer does not hold up the end of a session.
func TestEndOfSessionWhoseLeaseRests(t *testing.T) {
	g, s := newGrants(t)
	close(g.grant)
	go func() { <-g.asked }()
	at, err := s.browsers.Take(t.Context(), source.BrowserRef{})
	if err != nil {
		t.Fatal(err)
	}
	at.Release()
	<-g.asked // to let it rest
	closed := make(chan struct{})
	go func() {
		s.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Error("the session has not ended after 5s")
		<-closed
	}
}

// A lease that is granted after its session has ended, or after nobody wants
// it any more, is released.
func TestLeaseThatComesLate(t *testing.T) {
	g, s := newGrants(t)
	got := make(chan error, 1)
	go func() {
		_, err := s.browsers.Take(t.Context(), source.BrowserRef{})
		got <- err
	}()
	<-g.asked
	s.browsers.Leave()
	close(g.grant)
	if p := <-g.released; p != `{"lease":"lease_1"}` {
		t.Errorf("released %s", p)
	}
	if err := <-got; !errors.Is(err, source.ErrEnded) {
		t.Errorf("the call is told %v", err)
	}
	s.Close()
}
