package command

import (
	"errors"
	"fmt"
	"os"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/har"
)

// HAR writes the archive of a trace to standard output.
func HAR(c *cli.Context) error {
	if len(c.Args()) != 1 {
		return c.UsageError("expected one trace, the FILE of --trace")
	}
	path := c.Args()[0]
	f, err := os.Open(path)
	if err != nil {
		return &exit.Error{Code: exit.Data, Err: fmt.Errorf("cannot read the trace: %w", err)}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("cannot read the trace: %w", err)
	}
	switch {
	case info.IsDir():
		return exit.Errorf(exit.Data, "cannot read the trace %s: it is a directory", path)
	case !info.Mode().IsRegular():
		return exit.Errorf(exit.Data, "cannot read the trace %s: it is read twice, which only a regular file can be",
			path)
	}
	sum, err := har.Convert(f, info.Size(), har.Creator{Name: "bproxy", Version: cli.Release()}, c.Stdout)
	if sum.Damaged > 0 {
		c.Log.Warn(fmt.Sprintf("%d damaged or cut-off %s of the trace skipped", sum.Damaged,
			map[bool]string{true: "line", false: "lines"}[sum.Damaged == 1]))
	}
	if errors.Is(err, har.ErrNoNetwork) {
		return &exit.Error{Code: exit.Data, Err: fmt.Errorf("cannot convert %s: %w", path, err),
			Hint: "the client must have enabled the Network domain, as Playwright and Puppeteer do; BiDi has none"}
	}
	return err
}
