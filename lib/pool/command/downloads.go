package command

import (
	"context"
	"fmt"
	"path/filepath"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/record"
	"btools/lib/virtual/sessions"
)

// downloadsParams names a lease.
type downloadsParams struct {
	Lease     string `json:"lease"`
	Wait      bool   `json:"wait,omitempty"` // until there is a download and none is in progress
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
}

// downloads answers with the downloads of a lease.
func (h *handler) downloads(ctx context.Context, p downloadsParams) (any, error) {
	return control.Later(func() (any, error) {
		files, err := h.service.Downloads(ctx, p.Lease)
		switch {
		case err != nil:
			return nil, err
		case p.Wait:
			return sessions.AwaitDownloads(ctx, files, p.TimeoutMS)
		}
		return files.List(), nil
	}), nil
}

// download is the member "download" of a record.
type download struct {
	downloads.File
	Lease string `json:"lease"`
	Saved string `json:"saved,omitempty"` // the path of the copy of --save
}

// Downloads prints the downloads of a lease.
func Downloads(c *cli.Context) error {
	out, err := c.Output([]cli.Column{
		{Head: "NAME", Field: "download.name"}, {Head: "STATE", Field: "download.state"},
		{Head: "WHY", Field: "download.why"}, {Head: "BYTES", Field: "download.bytes"},
		{Head: "URL", Field: "download.url"}, {Head: "PATH", Field: "download.path"},
	}, cli.Schema(map[string]any{"download": download{}}), nil)
	if err != nil {
		return err
	}
	switch {
	case len(c.Args()) != 1:
		return c.UsageError("expected one lease")
	case c.IsSet("timeout") && !c.Bool("wait"):
		return c.UsageError("--timeout needs --wait")
	case c.Duration("timeout") <= 0:
		return c.UsageError("--timeout must be positive, such as 5m")
	}
	p := downloadsParams{Lease: c.Args()[0], Wait: c.Bool("wait"), TimeoutMS: c.Duration("timeout").Milliseconds()}
	var all []downloads.File
	bound := answerTimeout
	if p.Wait {
		bound += c.Duration("timeout")
	}
	if err := callWithin(c, bound, "downloads", p, &all); err != nil {
		return err
	}
	for _, f := range all {
		d := download{File: f, Lease: p.Lease}
		if c.IsSet("save") && f.State == downloads.Complete {
			dir, err := filepath.Abs(c.String("save"))
			if err == nil {
				d.Saved, err = downloads.Deliver(f.Path, dir, f.Name, false)
			}
			if err != nil {
				return fmt.Errorf("cannot save %s: %w", f.Name, err)
			}
		}
		r := record.New()
		r.MustSet("download", d)
		if err := out.Write(r); err != nil {
			return err
		}
	}
	return out.Close()
}
