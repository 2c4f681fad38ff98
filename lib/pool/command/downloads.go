package command

import (
	"context"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/downloads"
	downloadscommand "btools/lib/downloads/command"
	"btools/lib/fleet"
)

// downloads answers with the downloads of a lease.
func (h *handler) downloads(ctx context.Context, p api.DownloadsRequest) ([]downloads.File, error) {
	if h.lent.Has(p.Lease) {
		return h.lent.Downloads(ctx, p, h.service.Dir)
	}
	files, err := h.service.Downloads(ctx, p.Lease)
	switch {
	case err != nil:
		return nil, err
	case p.Wait:
		return fleet.AwaitDownloads(ctx, files, p.TimeoutMS)
	}
	return files.List(), nil
}

// Downloads prints the downloads of a lease.
func Downloads(c *cli.Context) error {
	return downloadscommand.Print(c, "lease", func(lease string) (control.Caller, api.Of, error) {
		return running(c), api.Of{Lease: lease}, nil
	})
}
