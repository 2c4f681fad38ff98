// Package command prints and saves downloads, for bproxy and bpool.
package command

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/control"
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

// Download is the member "download" of a record.
type Download struct {
	downloads.File
	Session string `json:"session,omitempty"` // of bproxy
	Lease   string `json:"lease,omitempty"`   // of bpool
	Saved   string `json:"saved,omitempty"`   // the path of the copy of --save
}

// Records are those that the command prints.
var Records = &cli.Records{Columns: []cli.Column{
	{Head: "NAME", Field: "download.name"}, {Head: "STATE", Field: "download.state"},
	{Head: "WHY", Field: "download.why"}, {Head: "BYTES", Field: "download.bytes"},
	{Head: "URL", Field: "download.url"}, {Head: "PATH", Field: "download.path"},
}, Members: map[string]any{"download": Download{}}}

// Print prints the downloads of the session or lease that the argument names, and saves copies of the complete ones for
// --save. Find returns its program, and what that calls it; kind is "session" or "lease".
func Print(c *cli.Context, kind string, find func(name string) (control.Caller, api.Of, error)) error {
	switch {
	case c.Arg() == "":
		return c.UsageError("expected one %s", kind)
	case c.IsSet("timeout") && !c.Bool("wait"):
		return c.UsageError("--timeout needs --wait")
	case c.Duration("timeout") <= 0:
		return c.UsageError("--timeout must be positive, such as 5m")
	}
	program, of, err := find(c.Arg())
	if err != nil {
		return err
	}
	all, err := api.Downloads.Ask(context.Background(), program, api.DownloadsRequest{Of: of, Wait: c.Bool("wait"),
		TimeoutMS: c.Duration("timeout").Milliseconds()})
	if err != nil {
		return err
	}
	for _, f := range all {
		d := Download{File: f, Lease: of.Lease}
		if of.Session != "" {
			d.Session = c.Arg()
		}
		if c.IsSet("save") && f.State == downloads.Complete {
			dir, err := filepath.Abs(c.String("save"))
			if err == nil {
				d.Saved, err = downloads.Deliver(f.Path, dir, f.Name, false)
			}
			if err != nil {
				return fmt.Errorf("cannot save %s: %w", f.Name, err)
			}
		}
		if err := c.Out.Write(record.Of("download", d)); err != nil {
			return err
		}
	}
	return c.Out.Close()
}
