package command

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"btools/lib/cli"
	"btools/lib/coordinator"
	"btools/lib/results"
)

// Bounds of --max-inline.
const (
	minInline = 1 << 10
	maxInline = 64 << 20
)

// largeOf is what becomes of large results.
func largeOf(c *cli.Context) (coordinator.Large, error) {
	l := coordinator.Large{OfAll: c.IsSet("max-inline"), Entries: c.Int("max-results")}
	if text := c.String("max-inline"); l.OfAll {
		var err error
		if l.MaxInline, err = parseSize(text); err != nil {
			return l, c.UsageError("--max-inline: %v", err)
		}
		if l.MaxInline < minInline || l.MaxInline > maxInline {
			return l, c.UsageError("--max-inline is 1KiB to 64MiB, not %s", text)
		}
	}
	if l.Entries < 1 || l.Entries > results.MaxEntries {
		return l, c.UsageError("--max-results is 1 to %d, not %d", results.MaxEntries, l.Entries)
	}
	if dir := cacheDir(c.Getenv, c.Home()); dir != "" {
		l.BlobDir = filepath.Join(dir, "blobs")
	}
	return l, nil
}

// units are those of sizes.
var units = []struct {
	name  string
	bytes int
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"kB", 1000}, {"KB", 1000}, {"MB", 1000_000}, {"K", 1 << 10}, {"k", 1 << 10},
	{"M", 1 << 20}, {"B", 1}, {"", 1}}

// parseSize reads a number of bytes, with or without a unit.
func parseSize(text string) (int, error) {
	for _, unit := range units {
		number, ok := strings.CutSuffix(text, unit.name)
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 31); err == nil {
			return int(n) * unit.bytes, nil
		}
		break
	}
	return 0, fmt.Errorf("%q is not a size such as 50KiB", text)
}
