package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/lazy"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/wait"
)

// grant is a lease of bpool, and the connection that holds it.
type grant struct {
	pool     *bpool
	c        *control.Client
	id       string
	virtual  bool            // each lease of the instance has a browser of its own
	notices  *notices        // nil: the browser's process tells of its end, or nobody does
	ctx      context.Context // until the lease is released
	unfollow context.CancelFunc

	calling  sync.Mutex // of the connection: a session may end while the lease is put to rest
	released bool       // the connection is another lease's
}

// lease leases an instance, for one call or, with keep, for several.
func (s *bpool) lease(ctx context.Context, pool, instance, who string, keep bool) (*Lease, error) {
	params := api.HoldRequest{Of: api.Of{Pool: pool, Instance: instance}, Bound: true, Keep: who,
		Holder: fmt.Sprintf("%s (bmcp %d)", api.Called(who), os.Getpid()), Settings: settings.WithState(s.state)}
	rec := &record.Record{}
	c, err := s.call(ctx, string(api.Hold), params, rec)
	if err != nil {
		return nil, s.advised(err)
	}
	var l record.Lease
	var i record.Instance
	rec.Get("lease", &l)
	rec.Get("instance", &i)
	b, several := s.known(ctx, l) // with what is configured
	g := &grant{pool: s, c: c, id: l.ID, virtual: b.Virtual}
	g.ctx, g.unfollow = context.WithCancel(s.ctx)
	p := &Lease{Browser: b, several: several && !keep, fresh: b.Isolated && !keep, kept: l.Kept, granted: g,
		Release: g.release, Lapse: g.lapse,
		replaced: fmt.Sprintf("the browser of instance %s of pool %s was replaced", l.Instance, l.Pool)}
	p.Pool, p.Instance, p.Lease = l.Pool, l.Instance, l.ID
	p.HTTPURL, p.WSURL, p.Port = i.HTTPURL, i.WSURL, i.Port
	if i.Protocol == record.BiDi {
		p.HTTPURL, p.WSURL, p.Port = "", "", 0 // only the builtin child speaks it to a browser that runs
		p.BiDi = i.WSURL
	}
	if i.HTTPURL != "" && (keep || i.PID == 0) { // else its process tells of its end, or there is none
		g.notices = s.follow(g.ctx, l.ID)
	}
	p.notices = g.notices
	p.Died, p.ID = g.living(ctx, i)
	return p, nil
}

func (g *grant) of() api.Of { return api.Of{Lease: g.id} }

// renewed returns the instance of the lease, which it renews.
func (g *grant) renewed(ctx context.Context) (i record.Instance, err error) {
	rec, err := api.Renew.Ask(ctx, g.c, api.RenewRequest{Of: g.of()})
	if err == nil {
		rec.Get("instance", &i)
	}
	return i, err
}

// living returns a channel that is closed when the browser of an instance dies, and the browser's ID. If the browser
// has ended, which bpool may not have noticed yet, it waits for the next one.
func (g *grant) living(ctx context.Context, i record.Instance) (died <-chan struct{}, id string) {
	again(ctx, noticed, func() bool {
		switch died = nil; {
		case i.PID != 0:
			died = g.pool.watch(i.PID)
		case g.notices != nil: // it is launched when somebody connects
			died = g.notices.next()
		}
		if id = i.ID; g.virtual && id != "" {
			id += "/" + g.id // it is another one with the next lease
		}
		if died == nil || !wait.Closed(died) {
			return true
		}
		now, err := g.renewed(ctx)
		if err == nil {
			i = now
		}
		return err != nil
	})
	return died, id
}

// renew reports whether the lease still holds, and returns what living does.
func (g *grant) renew(ctx context.Context) (died <-chan struct{}, id string, ours bool) {
	g.calling.Lock()
	defer g.calling.Unlock()
	i, err := g.renewed(ctx)
	if err != nil {
		return nil, "", false
	}
	died, id = g.living(ctx, i)
	return died, id, true
}

// restBound is how long bpool may take to note what becomes of a lease.
const restBound = 10 * time.Second

// rest tells bpool that the lease is not used until it is renewed, if that is so.
func (g *grant) rest(ctx context.Context, isSo func() bool) {
	ctx, cancel := context.WithTimeout(ctx, restBound)
	defer cancel()
	g.calling.Lock()
	defer g.calling.Unlock()
	if !g.released && isSo() {
		api.Rest.Ask(ctx, g.c, g.of())
	}
}

func (g *grant) release() {
	g.unfollow()
	g.calling.Lock()
	defer g.calling.Unlock()
	g.released = true
	ctx, cancel := context.WithTimeout(context.Background(), restBound)
	defer cancel()
	if _, err := api.Release.Ask(ctx, g.c, g.of()); err != nil {
		g.c.Close() // which releases it too
		return
	}
	g.pool.put(g.c)
}

func (g *grant) lapse() <-chan struct{} {
	if g.notices != nil {
		return g.notices.over
	}
	return g.pool.follow(g.ctx, g.id).over
}

// advised adds the socket of bmcp's own service, which commands do not find, to the commands in the hint of an error.
func (s *bpool) advised(err error) error {
	var e *control.Error
	if s.own == nil || !errors.As(err, &e) {
		return err
	}
	p := s.own.Running()
	if p == nil {
		return err
	}
	own := *e
	own.Hint = poolCommand().ReplaceAllString(e.Hint, "$0 --socket "+p.socket)
	return &own
}

var poolCommand = lazy.Regexp(`bpool (status|restart) \S+`)

// known returns the instance of a lease as the last status describes it, and whether there are others.
func (s *bpool) known(ctx context.Context, l record.Lease) (_ Browser, several bool) {
	for try := 0; ; try++ {
		s.src.mu.Lock()
		info := s.pools[l.Pool]
		all := 0
		for name, p := range s.pools {
			if name != "" { // the default one has a name, too
				all += len(p.Instances)
			}
		}
		s.src.mu.Unlock()
		if i := info.FindLeased(l); i != nil {
			return browserOf(&info, i), all > 1
		}
		if try > 0 {
			return Browser{}, all > 1
		}
		s.look(ctx) // what can't be had is not known
	}
}

// notices is the news of bpool for the holder of a lease: that its browser is gone, and why.
type notices struct {
	book *book
	over chan struct{} // closed when the lease was ended

	// Under the lock of the book:
	line    string // the last unread one
	more    wait.Broadcast
	yielded bool // to another request, as it was not used
}

// ending returns why the lease was ended although it was held; "" if unknown.
func (n *notices) ending() string {
	if n == nil {
		return ""
	}
	select {
	case <-n.over:
	case <-time.After(noticeDelay):
	}
	n.book.mu.Lock()
	defer n.book.mu.Unlock()
	if !n.yielded {
		return ""
	}
	return ", as it was not used and another one waited"
}

// next returns a channel that is closed when there is more news.
func (n *notices) next() <-chan struct{} {
	n.book.mu.Lock()
	defer n.book.mu.Unlock()
	return n.more.Next()
}

// await waits until there is unread news, which follows a change at once.
func (n *notices) await() {
	n.book.mu.Lock()
	line, more := n.line, n.more.Next()
	n.book.mu.Unlock()
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
	n.book.mu.Lock()
	defer n.book.mu.Unlock()
	line := n.line
	n.line = ""
	return line
}

// follow reads the news of a lease, until it has ended or the context ends.
func (s *bpool) follow(ctx context.Context, lease string) *notices {
	n := &notices{book: &s.src.book, over: make(chan struct{})}
	s.do(func() {
		n.listen(ctx, s, lease)
		if ctx.Err() == nil { // the lease has ended, or the service with it
			close(n.over)
		}
	})
	return n
}

// listen reads what there is to tell until the lease has ended.
func (n *notices) listen(ctx context.Context, s *bpool, lease string) {
	c, err := s.find(ctx)
	if err != nil {
		return
	}
	defer c.Close()
	for r, ended := (api.WatchRequest{Of: api.Of{Lease: lease}}), false; !ended; {
		got, err := api.Watch.Ask(ctx, c, r)
		if err != nil {
			return
		}
		r.After, ended = int64(got.Last), got.Ended != ""
		n.book.mu.Lock()
		n.yielded = got.Yielded
		if len(got.Lines) > 0 {
			n.line = got.Lines[len(got.Lines)-1]
			n.more.Wake()
		}
		n.book.mu.Unlock()
	}
}
