package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

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
	case "lease":
		return control.Later(func() (any, error) {
			g.asked <- string(params)
			<-g.grant
			return json.RawMessage(`{"lease":{"id":"lease_1","pool":"A","instance":"0"},` +
				`"instance":{"host":"127.0.0.1","port":9,"http_url":"http://127.0.0.1:9"}}`), nil
		}), nil
	case "held":
		return control.Later(func() (any, error) { <-ctx.Done(); return nil, context.Cause(ctx) }), nil
	case "release":
		g.released <- string(params)
		return json.RawMessage(`{"released":["lease_1"]}`), nil
	}
	return nil, control.Errorf(control.UnknownMethod, "no %s", method)
}

// A lease that is granted after its session has ended, or after nobody wants
// it any more, is released.
func TestLeaseThatComesLate(t *testing.T) {
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
	defer func() {
		stop()
		l.Close()
		<-served
	}()
	b := Served(func(ctx context.Context) (*control.Client, error) { return control.Dial(ctx, sock) })
	defer b.close()
	c := New(Options{Browsers: b})
	s := c.NewSession(func(json.RawMessage, bool, []byte) {})
	got := make(chan error, 1)
	go func() {
		_, err := s.browsers.take(t.Context(), which{})
		got <- err
	}()
	<-g.asked
	if held := s.browsers.leave(); len(held) != 0 {
		t.Errorf("%d leases are held", len(held))
	}
	close(g.grant)
	if p := <-g.released; p != `{"lease":"lease_1"}` {
		t.Errorf("released %s", p)
	}
	if err := <-got; !errors.Is(err, errEnded) {
		t.Errorf("the call is told %v", err)
	}
	s.Close()
}
