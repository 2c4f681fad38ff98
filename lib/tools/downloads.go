package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"btools/lib/downloads"
	"btools/lib/jsonrpc"
)

const (
	downloadsPause   = 100 * time.Millisecond // between two looks at them
	maxDownloadsList = 4 << 20                // bytes
)

func manageDownloads(ctx context.Context, r *reply, a struct {
	Action, Name, Filename string
	Timeout                *float64
}) error {
	s := r.server
	switch a.Action {
	case "wait":
		most := s.patience(a.Timeout)
		all, err := s.awaitDownloads(ctx, most)
		if err == nil {
			r.showDownloads(all)
		}
		return err
	case "save":
		return r.saveDownload(ctx, a.Name, a.Filename)
	}
	all, err := s.downloads(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		r.say("There are no downloads.")
	}
	r.showDownloads(all)
	return nil
}

func (r *output) showDownloads(all []downloads.File) {
	for _, d := range all {
		state := "complete"
		switch d.State {
		case downloads.InProgress:
			state = "in progress"
		case downloads.Failed:
			state = "failed: " + d.Why
		}
		line := fmt.Sprintf("- %s: %s, %d bytes, from %s", oneLine(d.Name), state, d.Bytes, address(d.URL))
		if d.Path != "" {
			line += ", at " + d.Path
		}
		r.say("%s", line)
	}
}

// errWhole is the error of a browser whose downloads are not known to us.
var errWhole = errors.New("this browser is not a session of its own: its downloads go where it puts them")

// getDownloads requests the list of the session's downloads, "", or one of them.
func (s *Server) getDownloads(ctx context.Context, guid string) (io.ReadCloser, error) {
	address := s.HTTPURL + "/downloads"
	if guid != "" {
		address += "/" + guid
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot read the downloads: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxDownloadsList))
	switch code := jsonrpc.GetString(body, "error", "code"); {
	case guid == "" && code == "session_not_found": // it begins with the first use of the browser
		return io.NopCloser(strings.NewReader("[]")), nil
	case guid == "" && resp.StatusCode == http.StatusNotFound:
		return nil, errWhole
	}
	if why := jsonrpc.GetString(body, "error", "message"); why != "" {
		return nil, fmt.Errorf("cannot read the downloads: %s", why)
	}
	return nil, fmt.Errorf("cannot read the downloads: the browser answers %s", resp.Status)
}

// downloads are the session's downloads, the oldest first.
func (s *Server) downloads(ctx context.Context) (all []downloads.File, err error) {
	body, err := s.getDownloads(ctx, "")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxDownloadsList)).Decode(&all); err != nil {
		return nil, fmt.Errorf("cannot read the downloads: %w", err)
	}
	return all, nil
}

// hasDownloaded reports whether a file is a complete download of the session.
func (s *Server) hasDownloaded(ctx context.Context, path string) bool {
	all, _ := s.downloads(ctx)
	return slices.ContainsFunc(all, func(d downloads.File) bool {
		real, err := filepath.EvalSymlinks(d.Path)
		return d.Path != "" && err == nil && real == path
	})
}

// awaitDownloads waits until no download is in progress and some have ended that it
// has not returned before.
func (s *Server) awaitDownloads(ctx context.Context, most time.Duration) (fresh []downloads.File, err error) {
	for end := time.Now().Add(most); ; {
		all, err := s.downloads(ctx)
		if err != nil {
			return nil, err
		}
		running := slices.IndexFunc(all, func(d downloads.File) bool { return d.State == downloads.InProgress })
		if running < 0 {
			if fresh := s.freshDownloads(all); len(fresh) > 0 {
				return fresh, nil
			}
		}
		switch left := time.Until(end); {
		case left > 0:
		case running >= 0:
			d := all[running]
			return nil, fmt.Errorf("%s is still in progress after %v: it has %d bytes so far", oneLine(d.Name), most,
				d.Bytes)
		case len(all) > 0:
			return nil, fmt.Errorf("no other download has begun within %v: the action list shows the earlier ones",
				most)
		default:
			return nil, fmt.Errorf("no download has begun within %v", most)
		}
		select {
		case <-time.After(downloadsPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// freshDownloads are those that it has not returned before.
func (s *Server) freshDownloads(all []downloads.File) (fresh []downloads.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range all {
		if !s.awaited[d.GUID] {
			s.awaited[d.GUID] = true
			fresh = append(fresh, d)
		}
	}
	return fresh
}

// saveDownload copies a download, the latest one if it has no name, to a file. If
// that has no name, no other file is overwritten: the name is the server's choice.
func (r *reply) saveDownload(ctx context.Context, name, filename string) error {
	all, err := r.server.downloads(ctx)
	if err != nil {
		return err
	}
	d, err := chosen(all, name)
	if err != nil {
		return err
	}
	path, err := r.server.writable(ctx, cmp.Or(filename, d.Name))
	if err != nil {
		return err
	}
	body, err := r.server.getDownloads(ctx, d.GUID)
	if err != nil {
		return err
	}
	defer body.Close()
	err = r.server.saveAs(path, 0o644, body, func(file string) (err error) {
		if filename != "" {
			return os.Rename(file, path)
		}
		path, err = downloads.Deliver(file, filepath.Dir(path), d.Name, false)
		return err
	})
	return r.says(err, "%s, %d bytes, saved as %s", oneLine(d.Name), d.Bytes, path)
}

// chosen is the latest complete download, or that with a name.
func chosen(all []downloads.File, name string) (downloads.File, error) {
	for _, d := range slices.Backward(all) {
		switch {
		case name != "" && d.Name != name:
		case d.State == downloads.Complete:
			return d, nil
		case name != "" && d.State == downloads.InProgress:
			return d, fmt.Errorf("%s is still in progress: the action wait waits for it", name)
		case name != "":
			return d, fmt.Errorf("%s has failed: %s", name, d.Why)
		}
	}
	if name == "" {
		return downloads.File{}, errors.New("there is no complete download: the action wait waits for one")
	}
	return downloads.File{}, fmt.Errorf("there is no download %q: the action list shows them", name)
}
