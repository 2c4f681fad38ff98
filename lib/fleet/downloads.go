package fleet

import (
	"context"
	"errors"
	"time"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/guard"
)

// DownloadsOf returns the downloads of a session; the error says why it has none.
func (f *Fleet) DownloadsOf(name string) (*downloads.Files, error) {
	e, err := f.find(name)
	if err != nil {
		return nil, err
	}
	if files := e.Files(); files != nil {
		return files, nil
	}
	return nil, control.Errorf(guard.NotFound, "the downloads of the session %q go where its browser puts them",
		clip(name))
}

// AwaitDownloads waits until a session has downloads and none is in progress; 0
// is no timeout.
func AwaitDownloads(ctx context.Context, files *downloads.Files, timeoutMS int64) ([]downloads.File, error) {
	if timeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(timeoutMS)*time.Millisecond)
		defer cancel()
	}
	all, err := files.Wait(ctx)
	switch {
	case errors.Is(err, downloads.ErrClosed):
		return nil, control.Errorf(control.SessionNotFound, "the session has ended")
	case err != nil && len(all) == 0:
		return nil, control.Errorf(control.TryAgain, "no download has begun in time")
	case err != nil:
		return nil, control.Errorf(control.TryAgain, "a download is still in progress")
	}
	return all, nil
}
