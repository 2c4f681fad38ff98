//go:build !linux

package relay

// Program returns what tells the executable of this process from all others; "": it is not known.
func Program() string { return "" }
