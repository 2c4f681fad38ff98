// Package command prints and saves downloads, for bproxy and bpool.
package command

import (
	"fmt"
	"path/filepath"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/control/api"
	"btools/lib/downloads"
	"btools/lib/record"
)

// Flags returns the flags of the command.
func Flags() []ucli.Flag {
	return []ucli.Flag{
		&ucli.BoolFlag{Name: "wait", Usage: "wait until there is a download and none is in progress"},
		&ucli.DurationFlag{Name: "timeout", Value: 5 * time.Minute, Usage: "wait at most `DURATION`"},
		&ucli.StringFlag{Name: "save", Usage: "copy the complete files to `DIR`"}}
}

// Records returns those that the command prints; sample is an empty member "download".
func Records(sample any) *cli.Records {
	return &cli.Records{Columns: []cli.Column{
		{Head: "NAME", Field: "download.name"}, {Head: "STATE", Field: "download.state"},
		{Head: "WHY", Field: "download.why"}, {Head: "BYTES", Field: "download.bytes"},
		{Head: "URL", Field: "download.url"}, {Head: "PATH", Field: "download.path"},
	}, Members: map[string]any{"download": sample}}
}

// Print asks for the downloads of the session or lease that the one argument
// names, prints them, and saves copies of the complete ones for --save. member
// returns the member "download" of a record; saved is the path of a copy. kind
// is "session" or "lease".
func Print[T any](c *cli.Context, kind string, ask func(name string, r api.DownloadsRequest) ([]downloads.File, error),
	member func(f downloads.File, name, saved string) T) error {
	switch {
	case c.Arg() == "":
		return c.UsageError("expected one %s", kind)
	case c.IsSet("timeout") && !c.Bool("wait"):
		return c.UsageError("--timeout needs --wait")
	case c.Duration("timeout") <= 0:
		return c.UsageError("--timeout must be positive, such as 5m")
	}
	name := c.Arg()
	all, err := ask(name, api.DownloadsRequest{Wait: c.Bool("wait"),
		TimeoutMS: c.Duration("timeout").Milliseconds()})
	if err != nil {
		return err
	}
	for _, f := range all {
		saved := ""
		if c.IsSet("save") && f.State == downloads.Complete {
			dir, err := filepath.Abs(c.String("save"))
			if err == nil {
				saved, err = downloads.Deliver(f.Path, dir, f.Name, false)
			}
			if err != nil {
				return fmt.Errorf("cannot save %s: %w", f.Name, err)
			}
		}
		if err := c.Out.Write(record.Of("download", member(f, name, saved))); err != nil {
			return err
		}
	}
	return c.Out.Close()
}
