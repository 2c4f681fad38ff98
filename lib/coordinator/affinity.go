package coordinator

import (
	"context"
	"sync"
	"time"
)

// kept is the instance of a pool that a session keeps between its calls.
type kept struct {
	mu    sync.Mutex // held while an instance is leased or asked about
	at    *place     // nil: none
	calls int        // that use it now
	idle  *time.Timer
}

// take is a browser for a call: one of its own, or, with AFFINITY=session, the
// one that the session keeps, unless the call names another one.
func (s *Session) take(ctx context.Context, pool, instance string) (*place, error) {
	b, ok := s.c.Browsers.(*pooled)
	if !ok || instance != "" {
		return s.c.Browsers.acquire(ctx, pool, instance)
	}
	b.mu.Lock()
	known := b.pools != nil
	b.mu.Unlock()
	if !known {
		if _, err := b.look(ctx); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	info := b.pools[pool]
	b.mu.Unlock()
	if info.Affinity != "session" {
		return b.acquire(ctx, pool, "")
	}
	s.mu.Lock()
	k := s.kept[info.Name]
	if k == nil {
		k = &kept{}
		s.kept[info.Name] = k
	}
	s.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at != nil && k.calls == 0 {
		died, ours := k.at.again(ctx)
		if k.at.died = died; !ours {
			k.drop() // somebody has ended the lease
		}
	}
	if k.at == nil {
		at, err := b.acquire(ctx, info.Name, "")
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
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.calls--; k.calls == 0 {
			k.idle = time.AfterFunc(time.Duration(info.LeaseTTL)*time.Millisecond, func() {
				k.mu.Lock()
				defer k.mu.Unlock()
				if k.calls == 0 {
					k.drop()
				}
			})
		}
	}
	return &at, nil
}

// drop gives the instance back.
func (k *kept) drop() {
	if k.at != nil {
		k.at.release()
		k.at = nil
	}
}
