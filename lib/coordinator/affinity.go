package coordinator

import (
	"context"
	"time"
)

// kept is the instance of a pool that a session keeps between its calls.
type kept struct {
	mu    chan struct{} // has an element while an instance is leased or asked about
	at    *place        // nil: none
	calls int           // that use it now
	idle  *time.Timer
}

// take is a browser for a call: one of its own, or, with AFFINITY=session, the
// one that the session keeps, unless the call names another one.
func (s *Session) take(ctx context.Context, pool, instance string) (*place, error) {
	b, ok := s.c.Browsers.(*pooled)
	if !ok {
		return s.c.Browsers.acquire(ctx, pool, instance, s.name)
	}
	info, err := b.info(ctx, pool)
	if err != nil {
		return nil, err
	}
	if info.Affinity != "session" {
		return b.acquire(ctx, pool, instance, s.name)
	}
	s.mu.Lock()
	k := s.kept[info.Name]
	if k == nil {
		k = &kept{mu: make(chan struct{}, 1)}
		s.kept[info.Name] = k
	}
	s.mu.Unlock()
	select {
	case k.mu <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if instance != "" && (k.at == nil || !info.means(instance, k.at.Instance)) {
		k.unlock()
		return b.acquire(ctx, pool, instance, s.name)
	}
	defer k.unlock()
	if k.at != nil && k.calls == 0 {
		died, ours := k.at.again(s.ctx)
		if k.at.died = died; !ours {
			k.drop() // somebody has ended the lease
		}
	}
	if k.at == nil {
		at, err := b.acquire(ctx, info.Name, "", s.name)
		if err != nil {
			return nil, err
		}
		k.at = at
	}
	if k.idle != nil {
		k.idle.Stop()
	}
	k.calls++
	at := *k.at
	at.release = func() {
		k.lock()
		defer k.unlock()
		if k.calls--; k.calls == 0 {
			k.idle = time.AfterFunc(time.Duration(info.LeaseTTL)*time.Millisecond, func() {
				k.lock()
				defer k.unlock()
				if k.calls == 0 {
					k.drop()
				}
			})
		}
	}
	return &at, nil
}

func (k *kept) lock()   { k.mu <- struct{}{} }
func (k *kept) unlock() { <-k.mu }

// drop gives the instance back.
func (k *kept) drop() {
	if k.at != nil {
		k.at.release()
		k.at = nil
	}
}
