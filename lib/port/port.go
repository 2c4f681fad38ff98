// Package port hands out free TCP ports and reserves them in the shared
// state, so that no two takers get the same one while either still starts.
package port

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"btools/lib/record"
	"btools/lib/state"
)

// Request says which ports are wanted.
type Request struct {
	N       int           // how many, at least 1
	Host    string        // an IP address or localhost; "" is 127.0.0.1
	Low, Hi int           // the range; 0, 0: the system chooses
	Reserve time.Duration // how long nobody else gets them
}

// ErrExhausted says that the range has not as many free ports.
var ErrExhausted = errors.New("no free port left")

// Take finds and reserves N distinct ports.
func Take(ctx context.Context, s *state.Store, r Request) ([]int, error) {
	if r.Host == "" {
		r.Host = "127.0.0.1"
	}
	var got []int
	err := s.Update(ctx, func(f *state.File) error {
		taken := make(map[int]bool, len(f.Ports))
		for _, p := range f.Ports {
			taken[p.Port] = true
		}
		var err error
		if got, err = r.find(taken); err != nil {
			return err
		}
		until := record.Time{Time: time.Now().Add(r.Reserve)}
		for _, p := range got {
			if r.Reserve > 0 {
				f.Ports = append(f.Ports, state.Port{Host: r.Host, Port: p, Until: until})
			}
		}
		return nil
	})
	return got, err
}

func (r Request) find(taken map[int]bool) ([]int, error) {
	var got []int
	if r.Low > 0 {
		for p := r.Low; p <= r.Hi && len(got) < r.N; p++ {
			if !taken[p] && free(r.Host, p) {
				got = append(got, p)
			}
		}
		if len(got) < r.N {
			return nil, fmt.Errorf("%w in %d-%d on %s: %d asked for, %d free", ErrExhausted, r.Low, r.Hi, r.Host, r.N,
				len(got))
		}
		return got, nil
	}
	// The listeners stay open until all are found: the system then gives a
	// new port each time.
	var open []net.Listener
	defer func() {
		for _, l := range open {
			l.Close()
		}
	}()
	for tries := 0; len(got) < r.N; tries++ {
		if tries > 2*r.N+len(taken)+1000 {
			return nil, fmt.Errorf("%w on %s: %d asked for, %d found", ErrExhausted, r.Host, r.N, len(got))
		}
		l, err := net.Listen("tcp", net.JoinHostPort(r.Host, "0"))
		if err != nil {
			if len(open) > 0 {
				return nil, fmt.Errorf("%w on %s: %v", ErrExhausted, r.Host, err)
			}
			return nil, fmt.Errorf("cannot listen on %s: %w", r.Host, err)
		}
		open = append(open, l)
		p := l.Addr().(*net.TCPAddr).Port
		if !taken[p] && freeOther(r.Host, p) {
			got = append(got, p)
		}
	}
	return got, nil
}

func free(host string, port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	l.Close()
	return freeOther(host, port)
}

// freeOther asks for the port on the loopback's other family too: Chrome
// falls back to [::1] silently, and clients that resolve localhost may try
// that first. A machine without IPv6 has nobody there.
func freeOther(host string, port int) bool {
	other := "::1"
	switch host {
	case "127.0.0.1", "localhost":
	case "::1":
		other = "127.0.0.1"
	default:
		return true
	}
	l, err := net.Listen("tcp", net.JoinHostPort(other, strconv.Itoa(port)))
	if err != nil {
		return !inUse(err)
	}
	l.Close()
	return true
}
