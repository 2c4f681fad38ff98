package pool

import (
	"context"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/guard"
	"btools/lib/pool/config"
)

// errNoDownloads is the answer for a lease whose browser writes its downloads
// where it does; why may be "".
func errNoDownloads(why string) error {
	e := control.Errorf(guard.NotFound, "the downloads of this lease go where its browser puts them")
	if why != "" {
		e.Message += ": " + why
	}
	return e
}

// Downloads returns the downloads of a lease.
func (v *Service) Downloads(ctx context.Context, lease string) (*downloads.Files, error) {
	l := v.lease(lease)
	switch {
	case l == nil:
		return nil, errLeaseEnded(lease)
	case l.entry == nil:
		return l.ownDownloads()
	}
	if files := l.entry.Files(); files != nil {
		return files, nil
	}
	_, done, err := l.use(ctx) // which opens it
	if err != nil {
		return nil, err
	}
	defer done()
	if files := l.entry.Files(); files != nil {
		return files, nil
	}
	return nil, errNoDownloads(config.WhyNoDownloads(l.slot.set))
}
