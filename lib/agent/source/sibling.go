package source

import (
	"context"
	"errors"
	"sync"
	"time"

	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/wait"
)

// sibling is another program of this project, which bmcp starts when it is needed
// and again after it has ended.
type server struct {
	wait.Starter[*sibling.Browser]
	ctx   context.Context
	stop  context.CancelFunc
	store *state.Store
	work  sync.WaitGroup
}

func newSibling(store *state.Store, run func(context.Context) (*sibling.Browser, error)) *server {
	v := &server{store: store}
	v.ctx, v.stop = context.WithCancel(context.Background())
	v.Start = func() (*sibling.Browser, error) {
		b, err := run(v.ctx)
		if err == nil {
			v.work.Go(func() { v.sweepAfter(b) })
		}
		return b, err
	}
	v.Gone = func(b *sibling.Browser) error {
		if wait.Closed(b.Ended()) {
			return errors.New("it has ended")
		}
		return nil
	}
	return v
}

func (v *server) close() {
	why := errors.New("bmcp is stopping")
	v.Refuse(why)
	v.stop()
	if b := v.Close(why); b != nil {
		b.Stop()
	}
	v.work.Wait()
}

// settle gives a program that has not answered time to end: that may not have been noticed yet.
func (v *server) settle(ctx context.Context) {
	b := v.Running()
	if b == nil {
		return
	}
	select {
	case <-b.Ended():
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// sweepAfter cleans up after a program that was killed. Its browsers may have
// ended, and their supervisors with them, before it counted as dead: nobody
// else may be left to do it.
func (v *server) sweepAfter(b *sibling.Browser) {
	<-b.Ended()
	v.store.Update(context.WithoutCancel(v.ctx), func(*state.File) error { return nil })
}
