package front

import (
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"strings"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/guard"
)

// DownloadsPath is the path of the downloads, below a browser's address.
const DownloadsPath = "/downloads/"

// ParseDownloads returns the GUID in a path below a browser's address, "" for the list of
// its downloads; false: the path means something else.
func ParseDownloads(path string) (guid string, ok bool) {
	if path+"/" == DownloadsPath {
		return "", true
	}
	guid, ok = strings.CutPrefix(path, DownloadsPath)
	return guid, ok && !strings.Contains(guid, "/")
}

// ServeDownloads answers a request for the list of downloads, or for one of them.
func ServeDownloads(w http.ResponseWriter, r *http.Request, files *downloads.Files, guid string) error {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest, "%s must be requested with GET, not %s",
			r.URL.Path, r.Method)
	case r.ContentLength != 0:
		return guard.Refuse(http.StatusRequestEntityTooLarge, control.BadRequest, "the request has no body")
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if guid == "" {
		WriteJSON(w, files.List())
		return nil
	}
	file, about, err := files.Open(guid)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return control.Errorf(guard.NotFound, "the session has no complete download %q", guid[:min(len(guid), 64)])
	case err != nil:
		return guard.Refuse(http.StatusInternalServerError, control.Failed, "cannot read the download: %v", err)
	}
	defer file.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream") // whatever it is, no browser shows it
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": about.Name}))
	h.Set("Content-Security-Policy", "sandbox; frame-ancestors 'none'")
	h.Set("Cache-Control", "no-store")
	http.ServeContent(w, r, "", about.StartedAt.Time, file)
	return nil
}
