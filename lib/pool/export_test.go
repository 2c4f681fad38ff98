package pool

import "time"

// SetUptime replaces the clock that runs while the machine sleeps.
func (v *Service) SetUptime(now func() time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.uptime = now
}

// Done is closed when the lease has ended or does not exist.
func (v *Service) Done(id string) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.leases[id]; l != nil {
		return l.ctx.Done()
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}
