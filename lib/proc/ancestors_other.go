//go:build !linux

package proc

// Ancestors are not known here.
func Ancestors(int) []Ancestor { return nil }
