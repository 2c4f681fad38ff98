package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/record"
	"btools/lib/wait"
)

// grant leases an instance, for one call or, with keep, for several.
func (s *pool) grant(ctx context.Context, pool, instance, who string, keep bool) (*Lease, error) {
	params := map[string]any{"hold": true, "keep": who, "holder": fmt.Sprintf("bmcp (%d)", os.Getpid())}
	for name, value := range map[string]string{"pool": pool, "instance": instance, "state": s.state} {
		if value != "" {
			params[name] = value
		}
	}
	rec := &record.Record{}
	c, err := s.call(ctx, "lease", params, rec)
	if err != nil {
		return nil, s.advised(err)
	}
	var l record.Lease
	var i record.Instance
	rec.Get("lease", &l)
	rec.Get("instance", &i)
	b, several := s.known(ctx, l.Pool, l.Instance)
	at := b // with what is configured
	at.Pool, at.Instance, at.Lease = l.Pool, l.Instance, l.ID
	id := func(browser string) string { // that is another one with the next lease
		if b.Virtual && browser != "" {
			browser += "/" + l.ID
		}
		return browser
	}
	at.ID, at.HTTPURL, at.WSURL, at.Port = id(i.ID), i.HTTPURL, i.WSURL, i.Port
	if i.Protocol == record.BiDi {
		at.HTTPURL, at.WSURL, at.Port = "", "", 0 // only the builtin child speaks it to a browser that runs
		at.BiDi = i.WSURL
	}
	follow, unfollow := context.WithCancel(s.ctx)
	p := &Lease{Browser: at, several: several && !keep, fresh: b.Isolated && !keep, kept: l.Kept}
	p.Lapse = func() <-chan struct{} {
		if p.notices != nil {
			return p.notices.over
		}
		return s.follow(follow, l.ID).over
	}
	if i.HTTPURL != "" && (keep || i.PID == 0) { // else its process tells of its end, or there is none
		p.notices = s.follow(follow, l.ID)
	}
	died := func(pid int) <-chan struct{} {
		switch {
		case pid != 0:
			return s.watch(pid)
		case p.notices != nil: // it is launched when somebody connects
			return p.notices.next()
		}
		return nil
	}
	renew := func(ctx context.Context) (i record.Instance, err error) {
		rec := &record.Record{}
		err = c.Call(ctx, "renew", map[string]string{"lease": l.ID}, rec)
		rec.Get("instance", &i)
		return i, err
	}
	// Bpool may not have noticed yet that the browser has ended: what runs next is waited
	// for.
	living := func(ctx context.Context, i record.Instance) (record.Instance, <-chan struct{}) {
		for end := time.Now().Add(noticed); ; {
			d := died(i.PID)
			if d == nil || !wait.Closed(d) || time.Now().After(end) {
				return i, d
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return i, d
			}
			now, err := renew(ctx)
			if err != nil {
				return i, d
			}
			i = now
		}
	}
	i, p.Died = living(ctx, i)
	p.ID = id(i.ID)
	var calling sync.Mutex // a session may end while the lease is put to rest
	released := false
	p.renew = func(ctx context.Context) (<-chan struct{}, string, bool) {
		calling.Lock()
		defer calling.Unlock()
		i, err := renew(ctx)
		if err != nil {
			return nil, "", false
		}
		i, d := living(ctx, i)
		return d, id(i.ID), true
	}
	p.rest = func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		calling.Lock()
		defer calling.Unlock()
		if !released { // then the connection is another lease's
			c.Call(ctx, "rest", map[string]string{"lease": l.ID}, nil) // an older bpool never takes it back
		}
	}
	p.Release = func() {
		unfollow()
		calling.Lock()
		defer calling.Unlock()
		released = true
		release, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Call(release, "release", map[string]string{"lease": l.ID}, nil); err != nil {
			c.Close() // which releases it too
			return
		}
		s.put(c)
	}
	return p, nil
}

// advised gives the commands in the hint of an error what they need for bmcp's own
// service, which they do not find.
func (s *pool) advised(err error) error {
	var e *control.Error
	if s.own == nil || !errors.As(err, &e) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := *e
	own.Hint = poolCommand.ReplaceAllString(e.Hint, "$0 --socket "+s.sock)
	return &own
}

var poolCommand = regexp.MustCompile(`bpool (status|restart) \S+`)

// known returns what is known of an instance, and whether there are others.
func (s *pool) known(ctx context.Context, pool, instance string) (_ Browser, several bool) {
	for try := 0; ; try++ {
		s.mu.Lock()
		info := s.pools[pool]
		all := 0
		for name, p := range s.pools {
			if name != "" { // the default one has a name, too
				all += len(p.Instances)
			}
		}
		s.mu.Unlock()
		if i := info.instance(instance); i != nil {
			return browserOf(&info, i), all > 1
		}
		if try > 0 {
			return Browser{}, all > 1
		}
		s.look(ctx) // what can't be had is not known
	}
}

// notices are what bpool tells the holder of a lease about its browser: that it is
// gone, and why.
type notices struct {
	mu   sync.Mutex
	line string        // the last one that is not read
	more chan struct{} // closed at the next one
	over chan struct{} // closed when the lease was ended

	yielded bool // to another request, as it was not used
}

// ending says why a lease was ended that still had its holder, if that is known.
func (n *notices) ending() string {
	if n == nil {
		return ""
	}
	select {
	case <-n.over:
	case <-time.After(noticeDelay):
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.yielded {
		return ""
	}
	return ", as it was not used and another one waited"
}

// next returns a channel that is closed when there is more news.
func (n *notices) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.more
}

// await waits until there is unread news, which follows a change at once.
func (n *notices) await() {
	n.mu.Lock()
	line, more := n.line, n.more
	n.mu.Unlock()
	if line != "" {
		return
	}
	select {
	case <-more:
	case <-time.After(noticeDelay):
	}
}

// noticeDelay is how long after a change its news may arrive.
const noticeDelay = 500 * time.Millisecond

// read returns the last news, once.
func (n *notices) read() string {
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	line := n.line
	n.line = ""
	return line
}

// follow reads the news of a lease, until it has ended or the context ends.
func (s *pool) follow(ctx context.Context, lease string) *notices {
	n := &notices{more: make(chan struct{}), over: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return n
	}
	s.work.Go(func() {
		c, err := s.find(ctx)
		if err != nil {
			if ctx.Err() == nil {
				close(n.over) // the lease ends with the service
			}
			return
		}
		defer c.Close()
		for after, ended := 0, false; !ended; {
			var got struct {
				Ended   string   `json:"ended"`
				Yielded bool     `json:"yielded"`
				Lines   []string `json:"lines"`
				Last    int      `json:"last"`
			}
			if c.Call(ctx, "held", map[string]any{"lease": lease, "after": after}, &got) != nil {
				if ctx.Err() == nil { // the service is gone
					close(n.over)
				}
				return
			}
			after, ended = got.Last, got.Ended != ""
			n.tell(got.Lines)
			n.mu.Lock()
			n.yielded = got.Yielded
			n.mu.Unlock()
		}
		close(n.over)
	})
	return n
}

func (n *notices) tell(lines []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(lines) > 0 {
		n.line = lines[len(lines)-1]
		close(n.more)
		n.more = make(chan struct{})
	}
}
