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
func (h *handler) downloads(ctx context.Context, p api.DownloadsRequest) (any, error) {
	return control.Later(func() (any, error) {
		files, err := h.service.Downloads(ctx, p.Lease)
		switch {
		case err != nil:
			return nil, err
		case p.Wait:
			return fleet.AwaitDownloads(ctx, files, p.TimeoutMS)
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

// DownloadRecords are the records of downloads.
var DownloadRecords = downloadscommand.Records(download{})

// Downloads prints the downloads of a lease.
func Downloads(c *cli.Context) error {
	return downloadscommand.Print(c, "lease", func(lease string, r api.DownloadsRequest) ([]downloads.File, error) {
		r.Lease = lease
		return ask(c, api.Downloads, r)
	}, func(f downloads.File, lease, saved string) download { return download{f, lease, saved} })
}
