package bus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"
)

// A request that is on its way when the only one who listens stops is answered, or has nobody: it does not wait.
func TestStop(t *testing.T) {
	t.Parallel()
	url := startServer(t, nil, "/dev/null")
	connect := func() *NATS {
		n, err := Connect(Keys{Servers: []string{url}, Name: "n"}, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		return n
	}
	host, gateway := connect(), connect()
	var asked sync.WaitGroup
	for range 100 {
		stop, err := host.Subscribe("subject", FreeGroup, func(m *Message) { m.Answer(Offer{Code: None}) })
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			asked.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var o Offer
				if err := gateway.Request(ctx, "subject", Ask{}, &o); err != nil && !errors.Is(err, ErrNobody) {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		stop()
	}
	asked.Wait()
}
