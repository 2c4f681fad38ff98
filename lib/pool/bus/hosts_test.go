package bus

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"
)

// Hosts finds all of them within its time: 50, or with LONG=1 a thousand.
func TestHosts(t *testing.T) {
	t.Parallel()
	n := 50
	if os.Getenv("LONG") != "" {
		n = 1000
	}
	config := t.TempDir() + "/conf"
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	url := startServer(t, nil, config)
	connect := func(name string) *NATS {
		b, err := Connect(Keys{Servers: []string{url}, Name: name}, slog.New(slog.DiscardHandler), nil)
		if err == nil {
			err = b.Await(t.Context(), time.Minute)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	began := time.Now()
	var all sync.WaitGroup
	var connections [1000]*NATS
	for at := range 50 {
		all.Go(func() {
			for i := at; i < n; i += 50 {
				b := connect(fmt.Sprint("host", i))
				connections[i] = b
				_, err := b.Announce(Service{Host: fmt.Sprint("host", i), Region: "r", Version: "1.0.0",
					URL: "https://h", Pools: []string{"A", "B"}, Load: func(pool string) Load {
						return Load{Pools: []PoolLoad{{Name: pool, Total: 50, Free: i}}}
					}})
				if err == nil {
					err = b.conn.Flush() // the server has the subscriptions
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	started := time.Since(began)
	defer func() {
		for _, b := range connections[:n] {
			b.Close()
		}
	}()
	client := connect("client")
	defer client.Close()
	for range 3 {
		began = time.Now()
		found, err := client.Hosts(t.Context(), time.Second, 300*time.Millisecond)
		took := time.Since(began)
		names, size := map[string]bool{}, 0
		for _, h := range found {
			names[h.Host] = true
			size += len(h.Pools)
		}
		t.Logf("%d of %d hosts in %v, of which 300 ms are silence; all were there after %v", len(names), n, took,
			started)
		if err != nil || len(names) != n || len(found) != n || size != 2*n {
			t.Errorf("%d hosts, %d pools, %v", len(found), size, err)
		}
	}
}
