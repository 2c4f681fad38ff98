package pool

import "time"

// SetUptime gives the service another clock that counts the machine's sleep.
func (v *Service) SetUptime(now func() time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.uptime = now
}
