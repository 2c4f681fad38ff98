package websocket

import (
	"io"
	"net"
	"testing"
	"time"
)

// pair is two ends of a TCP connection.
func pair(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// BenchmarkRelay sends frames of a server by way of a relay to a client: to
// one that relays messages, and beside it to one that copies bytes, which the
// kernel splices.
func BenchmarkRelay(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"200B", 200}, {"16KiB", 16 << 10}, {"4MiB", 4 << 20}} {
		frame := append(appendHead(nil, head{final: true, opcode: opText, size: int64(size.bytes)}),
			make([]byte, size.bytes)...)
		for _, way := range []struct {
			name string
			run  func(to, from net.Conn)
		}{{"splice", func(to, from net.Conn) { io.Copy(to, from) }}, {"relay", relayAll}} {
			b.Run(size.name+"/"+way.name, func(b *testing.B) {
				chrome, up := pair(b)
				client, down := pair(b)
				done := make(chan struct{})
				go func() {
					defer close(done)
					way.run(down, up)
				}()
				go func() {
					for range b.N {
						chrome.Write(frame)
					}
				}()
				b.SetBytes(int64(size.bytes))
				b.ReportAllocs()
				b.ResetTimer()
				into := make([]byte, 256<<10)
				for left := int64(b.N) * int64(len(frame)); left > 0; {
					n, err := client.Read(into)
					if err != nil {
						b.Fatal(err)
					}
					left -= int64(n)
				}
				b.StopTimer()
				chrome.Close()
				<-done
			})
		}
	}
}

// relayAll relays messages until there are no more.
func relayAll(to, from net.Conn) {
	chrome, client := New(from, true, nil), New(to, false, nil)
	client.Stall = 30 * time.Second
	for {
		m, err := chrome.Next()
		if err != nil || client.Relay(m) != nil {
			return
		}
	}
}

// BenchmarkRoundTrip sends a command of a client to a server and its answer
// back, one at a time.
func BenchmarkRoundTrip(b *testing.B) {
	for _, way := range []string{"splice", "relay"} {
		b.Run(way, func(b *testing.B) {
			a, up := pair(b)
			d, down := pair(b)
			chrome, client := New(a, false, nil), New(d, true, nil)
			if way == "splice" {
				go io.Copy(down, up)
				go io.Copy(up, down)
			} else {
				toChrome, toClient := New(up, true, nil), New(down, false, nil)
				relay := func(to, from *Conn) {
					for {
						m, err := from.Next()
						if err != nil {
							return
						}
						if _, err := m.Peek(MaxPeek); err != nil || to.Relay(m) != nil {
							return
						}
					}
				}
				go relay(toChrome, toClient)
				go relay(toClient, toChrome)
			}
			go func() {
				for {
					m, err := chrome.Next()
					if err != nil || chrome.Relay(m) != nil {
						return
					}
				}
			}()
			command := make([]byte, 200)
			b.ReportAllocs()
			for b.Loop() {
				if err := client.Write(command); err != nil {
					b.Fatal(err)
				}
				if _, err := client.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMask(b *testing.B) {
	for _, n := range []int{50, 200, 1000, 128 << 10} {
		b.Run("", func(b *testing.B) {
			buf := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				mask(buf, 0x12345678)
			}
		})
	}
}
