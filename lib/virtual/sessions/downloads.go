package sessions

import (
	"context"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/guard"
)

// DownloadsPath is the path of a session's downloads, below its own.
const DownloadsPath = "downloads"

// ParseDownloads returns the GUID in a path below a session's, "" for the list
// of its downloads; false: the path means something else.
func ParseDownloads(rest string) (guid string, ok bool) {
	if rest == DownloadsPath || rest == DownloadsPath+"/" {
		return "", true
	}
	guid, ok = strings.CutPrefix(rest, DownloadsPath+"/")
	return guid, ok && !strings.Contains(guid, "/")
}

// openDownloads makes the directory of a session.
func (g *Registry) openDownloads(k Key, settings *Settings) error {
	if g.OpenDownloads == nil {
		return nil
	}
	var err error
	settings.files, err = g.OpenDownloads(k.Name, *settings, func(event string, f downloads.File) {
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
	if files := all[0].Owner().(*place).settings.files; files != nil {
		return files, nil
	}
	return nil, control.Errorf(guard.NotFound, "the downloads of the session %q go where its browser puts them",
		clip(name))
}

// serveDownloads answers a request for a session's downloads. It creates no
// session.
func (g *Registry) serveDownloads(w http.ResponseWriter, r *http.Request, name, guid string) {
	files, err := g.Downloads(name)
	if err != nil {
		(&guard.Refusal{Status: http.StatusNotFound, Error: control.ErrorOf(err)}).WriteResponse(w)
		return
	}
	ServeDownloads(w, r, files, guid)
}

// ServeDownloads answers a request for the list of a session's downloads, or
// for one of them.
func ServeDownloads(w http.ResponseWriter, r *http.Request, files *downloads.Files, guid string) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest, "%s must be requested with GET, not %s",
			r.URL.Path, r.Method).WriteResponse(w)
		return
	case r.ContentLength != 0:
		guard.Refuse(http.StatusRequestEntityTooLarge, control.BadRequest, "the request has no body").WriteResponse(w)
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if guid == "" {
		writeJSON(w, files.List())
		return
	}
	file, about, err := files.Open(guid)
	if err != nil {
		no := guard.Refuse(http.StatusNotFound, guard.NotFound, "the session has no complete download %q", clip(guid))
		if !errors.Is(err, fs.ErrNotExist) {
			no = guard.Refuse(http.StatusInternalServerError, control.Failed, "cannot read the download: %v", err)
		}
		no.WriteResponse(w)
		return
	}
	defer file.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream") // whatever it is, no browser shows it
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": about.Name}))
	h.Set("Content-Security-Policy", "sandbox; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	http.ServeContent(w, r, "", about.StartedAt.Time, file)
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
