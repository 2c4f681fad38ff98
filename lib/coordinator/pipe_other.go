//go:build unix && !linux

package coordinator

func setPipeSize(int, int) {}
