package pool_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"btools/lib/launch/options"
	"btools/lib/pool"
	"btools/lib/pool/config"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/sibling"
)

// patience is how long a test waits before it says that something hangs: a busy
// machine is slow.
const patience = time.Minute

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// A Firefox that is stopped because a client's session cannot be ended is
// replaced. Nobody requested the stop, but the browser did not fail either.
func TestStoppedBrowserIsReplaced(t *testing.T) {
	t.Parallel()
	firefox := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow() // in the middle of session.end
		if _, b, err := c.Read(r.Context()); err == nil && strings.Contains(string(b), "session.new") {
			c.Write(r.Context(), websocket.MessageText, []byte(`{"id":1,"result":{"sessionId":"s"}}`))
			c.Read(r.Context())
		}
	}))
	defer firefox.Close()
	var launches atomic.Int32
	cfg, err := config.Load("", []string{config.Prefix + "_A_INSTANCES=1", config.Prefix + "_A_IS_DEFAULT=1",
		config.Prefix + "BROWSER=firefox", config.Prefix + "HEALTH_INTERVAL=1h", config.Prefix + "RESTART=never"})
	if err != nil {
		t.Fatal(err)
	}
	v := pool.New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	v.Launch = func(context.Context, string, settings.Settings, options.Options,
		func() []slog.Attr) (*sibling.Browser, error) {
		launches.Add(1)
		rec := record.New()
		rec.MustSet("instance", map[string]any{"protocol": record.BiDi,
			"ws_url": "ws://" + strings.TrimPrefix(firefox.URL, "http://") + "/session"})
		return sibling.Foreign(rec)
	}
	ready, err := v.Start(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Stop()
	<-ready
	l := take(t, v, "")
	st, err := v.Status("")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, strings.Replace(st.Pools[0].Instances[0].Endpoint, "http", "ws", 1)+"/session",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":1,"method":"session.new","params":{}}`)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Read(ctx); err != nil {
		t.Fatal(err)
	}
	v.Release(l.id)
	until(t, "another browser is launched", func() bool { return launches.Load() == 2 })
	until(t, "the instance is healthy, and the restart is counted", func() bool {
		st, _ := v.Status("")
		i := st.Pools[0].Instances[0]
		return i.Status == pool.Healthy && i.Restarts == 1
	})
}
