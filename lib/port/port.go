// Package port hands out free TCP ports and reserves them in the shared
// state, so that no two takers get the same one while either still starts.
package port

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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

// ErrDescriptors says that the system chose fewer ports than were asked for,
// because each is held open until all are found.
var ErrDescriptors = errors.New("too many open files")

// Take finds and reserves N distinct ports. The ports are looked for without
// the state's lock: those that somebody else reserves meanwhile are replaced.
func Take(ctx context.Context, s *state.Store, r Request) ([]int, error) {
	if r.Host == "" {
		r.Host = "127.0.0.1"
	}
	f, err := s.Read()
	if err != nil {
		return nil, err
	}
	var got []int
	for taken := reserved(f); ; {
		var release func()
		if got, release, err = r.find(ctx, got, taken); err != nil {
			return nil, err
		}
		err = s.Update(ctx, func(f *state.File) error {
			taken = reserved(f)
			got = slices.DeleteFunc(got, func(p int) bool { return taken[p] })
			if len(got) < r.N || r.Reserve <= 0 {
				return nil
			}
			until := record.Time{Time: time.Now().Add(r.Reserve)}
			for _, p := range got {
				f.Ports = append(f.Ports, state.Port{Host: r.Host, Port: p, Until: until})
			}
			return nil
		})
		release()
		if err != nil || len(got) == r.N {
			return got, err
		}
	}
}

// reserved are the ports that nobody else may get now.
func reserved(f *state.File) map[int]bool {
	all := make(map[int]bool, len(f.Ports))
	for _, p := range f.Ports {
		if p.Reserved(time.Now()) {
			all[p.Port] = true
		}
	}
	return all
}

// find finds ports that are not taken, besides those that it has got. Release closes
// what holds them.
func (r Request) find(ctx context.Context, got []int, taken map[int]bool) (all []int, release func(), err error) {
	for _, p := range got {
		taken[p] = true
	}
	if r.Low > 0 {
		got, err = r.findInRange(ctx, got, taken)
		return got, func() {}, err
	}
	// The listeners stay open until all are found: the system then gives a
	// new port each time.
	var open []net.Listener
	closeAll := func() {
		for _, l := range open {
			l.Close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	for tries := 0; len(got) < r.N; tries++ {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if tries > 2*r.N+len(taken)+1000 {
			return nil, nil, fmt.Errorf("%w on %s: %d asked for, %d found", ErrExhausted, r.Host, r.N, len(got))
		}
		l, err := net.Listen("tcp", net.JoinHostPort(r.Host, "0"))
		if err != nil {
			return nil, nil, r.explain(err, len(open))
		}
		open = append(open, l)
		p := l.Addr().(*net.TCPAddr).Port
		free, err := isFreeOther(r.Host, p)
		if err != nil {
			return nil, nil, r.explain(err, len(open))
		}
		if free && !taken[p] {
			got = append(got, p)
		}
	}
	return got, closeAll, nil
}

func (r Request) findInRange(ctx context.Context, got []int, taken map[int]bool) ([]int, error) {
	for p := r.Low; p <= r.Hi && len(got) < r.N; p++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if taken[p] {
			continue
		}
		free, err := isFree(r.Host, p)
		if err != nil {
			return nil, r.explain(err, 0)
		}
		if free {
			got = append(got, p)
		}
	}
	if len(got) < r.N {
		return nil, fmt.Errorf("%w in %d-%d on %s: %d asked for, %d free", ErrExhausted, r.Low, r.Hi, r.Host, r.N,
			len(got))
	}
	return got, nil
}

// explain says why no further port could be looked for, of those that are open
// already.
func (r Request) explain(err error, open int) error {
	switch {
	case isTooMany(err):
		return fmt.Errorf("cannot look for %d ports at once: %w", r.N, ErrDescriptors)
	case open > 0:
		return fmt.Errorf("%w on %s: %v", ErrExhausted, r.Host, err)
	}
	return fmt.Errorf("cannot listen on %s: %w", r.Host, err)
}

// isFree reports whether one can listen on the port. The error is that the process
// has too many open files to tell.
func isFree(host string, port int) (bool, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		if !isTooMany(err) {
			err = nil
		}
		return false, err
	}
	l.Close()
	return isFreeOther(host, port)
}

// isFreeOther asks for the port on the loopback's other family too: Chrome
// falls back to [::1] silently, and clients that resolve localhost may try
// that first. A machine without IPv6 has nobody there.
func isFreeOther(host string, port int) (bool, error) {
	other := "::1"
	switch host {
	case "127.0.0.1", "localhost":
	case "::1":
		other = "127.0.0.1"
	default:
		return true, nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort(other, strconv.Itoa(port)))
	switch {
	case err == nil:
		l.Close()
	case isTooMany(err):
		return false, err
	}
	return err == nil || !inUse(err), nil
}
