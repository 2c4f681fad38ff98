package pool

import "time"

// SetUptime gives the service another clock that counts the machine's sleep.
func (v *Service) SetUptime(now func() time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.uptime = now
}

// Done is closed when the lease has ended, or if there is none.
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
