package pool

import (
	"context"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/guard"
	"btools/lib/pool/config"
	"btools/lib/settings"
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

// downloadsOfHibernated returns the downloads of a lease that is hibernated;
// false: it is not.
func (v *Service) downloadsOfHibernated(id string) (*downloads.Files, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.leases[id]; l != nil && l.entry != nil && l.isHibernated() {
		return l.entry.Files(), true
	}
	return nil, false
}

// Downloads returns the downloads of a lease.
func (v *Service) Downloads(ctx context.Context, lease string) (*downloads.Files, error) {
	v.mu.Lock()
	l := v.leases[lease]
	v.mu.Unlock()
	if l != nil && l.slot.set.Isolation != settings.Context {
		return v.ownDownloads(l)
	}
	files, ok := v.downloadsOfHibernated(lease)
	if !ok {
		s, done, err := v.useSession(ctx, lease)
		if err != nil {
			return nil, err
		}
		defer done()
		files = s.Downloads()
	}
	if files == nil {
		return nil, errNoDownloads(config.WhyNoDownloads(l.slot.set))
	}
	return files, nil
}
