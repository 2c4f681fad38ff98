package pool

import "time"

// Sleep has the machine have slept for a while.
func (v *Service) Sleep(while time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clock.asleep = func() time.Duration { return while }
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
