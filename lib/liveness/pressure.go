package liveness

import (
	"os"
	"strconv"
	"strings"
)

// Load is the pressure on this machine; zero where the system does not tell, as
// only Linux does.
func Load() Pressure {
	return Pressure{CPU: some("/proc/pressure/cpu"), Memory: some("/proc/pressure/memory")}
}

func some(path string) float64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return parse(string(b))
}

// parse reads the first average of the line "some" of a file in /proc/pressure.
func parse(file string) float64 {
	for line := range strings.Lines(file) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "some" {
			continue
		}
		p, err := strconv.ParseFloat(strings.TrimPrefix(words[1], "avg10="), 64)
		if err == nil && p > 0 && p <= 100 {
			return p
		}
	}
	return 0
}
