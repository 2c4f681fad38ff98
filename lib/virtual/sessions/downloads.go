package sessions

import (
	"context"
	"errors"
	"time"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/guard"
)

// openDownloads makes the directory of a session.
func (g *Registry) openDownloads(k Key, wanted *Wanted) error {
	if g.OpenDownloads == nil {
		return nil
	}
	var err error
	wanted.files, err = g.OpenDownloads(k.Name, wanted.Settings, func(event string, f downloads.File) {
		g.addEvent(Event{Event: event, Session: k.Name, Why: f.Why, Download: &f})
	})
	return err
}

// Downloads returns the downloads of a session; the error says why it has none.
func (g *Registry) Downloads(name string) (*downloads.Files, error) {
	all := g.Named(name, false)
	if len(all) == 0 {
		return nil, errNone(name)
	}
	if files := all[0].Owner().(*place).wanted.files; files != nil {
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
