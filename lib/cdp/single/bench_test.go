package single

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
	"btools/lib/websocket"
)

// BenchmarkEvaluate is Runtime.evaluate on as many connections at once, each
// with a page of its own: directly, and over one WebSocket.
func BenchmarkEvaluate(b *testing.B) {
	url, _ := chrometest.StartShell(b)
	shared := New(func(ctx context.Context) (*websocket.Conn, error) { return websocket.Dial(ctx, url) })
	b.Cleanup(shared.Close)
	for _, x := range []struct {
		name string
		dial func(ctx context.Context) (*websocket.Conn, error)
	}{
		{"direct", func(ctx context.Context) (*websocket.Conn, error) { return websocket.Dial(ctx, url) }},
		{"shared", func(ctx context.Context) (*websocket.Conn, error) { return shared.Dial(ctx, "") }},
	} {
		for _, clients := range []int{1, 20} {
			b.Run(fmt.Sprintf("%s/%d", x.name, clients), func(b *testing.B) { evaluate(b, x.dial, clients) })
		}
	}
}

func evaluate(b *testing.B, dial func(ctx context.Context) (*websocket.Conn, error), clients int) {
	type tab struct {
		*peer
		session string
	}
	tabs := make(chan tab, clients)
	for range clients {
		conn, err := dial(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close(websocket.Normal, "")
		p := &peer{t: b, conn: conn}
		_, session := p.newTab(p.newContext())
		tabs <- tab{p, session}
	}
	b.SetParallelism(clients)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p := <-tabs // more goroutines than clients wait their turn
			p.call(p.session, "Runtime.evaluate", `{"expression":"1"}`)
			tabs <- p
		}
	})
}

// BenchmarkBesideFrames is how long a short message takes to its connection behind a frame
// of 450 kB for another one, as the page of bproxy view may get them.
func BenchmarkBesideFrames(b *testing.B) {
	p := newOnPipe(b, maxAnswer)
	frames, c := p.connect(), p.connect()
	go func() {
		for err := error(nil); err == nil; {
			_, err = frames.Next()
		}
	}()
	both := fmt.Appendf(nil, `{"method":"Page.screencastFrame","params":{"data":"%s"},"sessionId":%q}%c`+
		`{"method":"Page.loadEventFired","sessionId":%q}%c`,
		strings.Repeat("x", 450_000), frames.session, 0, c.session, 0)
	b.ReportAllocs()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		go p.answers.Write(both)
		p.next(c)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
}
