//go:build !linux

package guard

// networkService returns 0: the owner of a connection is not known here.
func networkService(int) int { return 0 }
