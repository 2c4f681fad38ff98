//go:build !linux

package proc

// Ancestors are not known here.
func Ancestors(int) []Ancestor { return nil }

// IsSuspended is not known here.
func IsSuspended(int) bool { return false }
