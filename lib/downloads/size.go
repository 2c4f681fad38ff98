package downloads

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseSize parses a size such as 512MiB, and returns it in bytes.
func ParseSize(v string) (int64, error) {
	for i, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if digits, ok := strings.CutSuffix(v, unit); ok {
			if n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 20); err == nil {
				return int64(n) << (10 * (i + 1)), nil
			}
		}
	}
	if v == "0" {
		return 0, nil
	}
	return 0, fmt.Errorf("must be a whole number with a unit, such as 512MiB or 2GiB, or 0")
}
