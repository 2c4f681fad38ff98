// Package wait has what goroutines wait for, such as a closed channel.
package wait

// Closed reports whether a channel is closed on which nothing is sent.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
