package pool

// Retire ends the service once its leases have ended: it grants none any more, and stops the browsers that
// are not leased. The channel is closed when those have ended.
func (v *Service) Retire() (stopped <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closing = true
	var ending []<-chan struct{}
	for _, p := range v.pools {
		p.leases.Fail(errStopping)
		slots := p.slots
		p.slots = nil // those with a lease are shown with it
		for _, s := range slots {
			s.retireLocked()
			switch {
			case s.proxy != nil && s.lease == nil:
				ending = append(ending, s.gone)
			case s.group != nil && s.group.leases == 0:
				ending = append(ending, s.group.gone)
			}
		}
	}
	done := make(chan struct{})
	v.running.Go(func() {
		defer close(done)
		for _, gone := range ending {
			<-gone
		}
	})
	return done
}
