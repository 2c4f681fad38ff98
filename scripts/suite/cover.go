//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// coverage prints the coverage of each package, from what the tests and the
// programs that they drove have written to a directory.
func coverage(dir string) error {
	c := exec.Command("go", "tool", "covdata", "percent", "-i="+dir)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return fmt.Errorf("cannot read the coverage: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	fmt.Println("\nCoverage:")
	for _, l := range lines {
		name, percent, _ := strings.Cut(strings.TrimSpace(l), "coverage:")
		name = strings.TrimPrefix(strings.TrimSpace(name), "btools/")
		fmt.Printf("  %-40s %s\n", name, strings.TrimSpace(percent))
	}
	return nil
}
