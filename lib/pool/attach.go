package pool

import (
	"context"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/virtual"
)

// Attach has a person look at the browser of a lease, which that does not use.
func (v *Service) Attach(ctx context.Context, r api.AttachRequest) (any, error) {
	l := v.lease(r.Lease)
	if l == nil {
		return nil, ErrNoLease(r.Lease)
	}
	if l.entry == nil {
		if rec := l.slot.browser(); rec != nil {
			return virtual.WatchBrowser(l.ctx, rec, "pools with isolation = \"context\" have sessions, which can be")
		}
		return nil, control.Errorf(control.Unavailable, "the lease has no browser")
	}
	if r.Wake {
		_, done, err := l.use(ctx)
		if err != nil {
			return nil, err
		}
		done()
	}
	return l.entry.Attach(r)
}
