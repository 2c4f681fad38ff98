package results

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/blobs"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/record"
)

// metaDownloads are the files that a result names, in its _meta.
const metaDownloads = "btools/downloads"

// MetaBegun is a text in the _meta of a result that a child changes when its browser has
// begun a download. It is for us alone: it saves the time of asking for the downloads.
const MetaBegun = "btools/downloads_begun"

const (
	maxListed         = 100         // blobs in a host's resources/list
	downloadsTimeout  = time.Second // for the list of a browser's downloads
	maxDownloadsList  = 4 << 20     // bytes of it
	downloadsPatience = time.Second // for a download, from its begin
	downloadsPause    = 20 * time.Millisecond
	childsWord        = time.Second // for which it is taken: it does not see what workers download
)

// Handed are the blobs and the files that a host knows from results. Its lock is held
// for nothing else.
type Handed struct {
	// Since is when the host came: it is not told of files before that.
	Since time.Time

	mu       sync.Mutex
	blobs    []string        // the names of the last ones
	reported map[string]bool // downloads, by their GUIDs
	without  map[string]bool // browsers, by their address, that have no directory of downloads
	quiet    map[string]word // browsers, by their address, none of whose downloads ran
}

// word is what a child has said of a browser.
type word struct {
	begun string
	at    time.Time
}

func (h *Handed) addBlob(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.blobs = slices.DeleteFunc(h.blobs, func(other string) bool { return other == name })
	h.blobs = append(h.blobs, name)
	h.blobs = h.blobs[max(0, len(h.blobs)-maxListed):]
}

// ListBlobs returns the blobs of the host that are still there, as resources/list has
// them. Whoever knows the address of a blob may read it: hosts that share a session are
// not to be shown those of others.
func (h *Handed) ListBlobs(a *Archive) (all []json.RawMessage) {
	h.mu.Lock()
	names := slices.Clone(h.blobs)
	h.mu.Unlock()
	for _, name := range names {
		if f, b, err := a.Blobs.Open(blobs.Scheme + name); err == nil {
			f.Close()
			all = append(all, blobResource(b))
		}
	}
	return all
}

// download is a file that a browser has downloaded, as bproxy and bpool list it.
type download struct {
	GUID       string      `json:"guid"`
	Name       string      `json:"name"`
	State      string      `json:"state"`
	Bytes      int64       `json:"bytes"`
	SHA256     string      `json:"sha256"`
	StartedAt  record.Time `json:"started_at"`
	DurationMS int64       `json:"duration_ms"`
	Path       string      `json:"path"`
}

// WithDownloads is the result of a call that names the files which the browser at an
// address has completed since the host came, and of which it has not been told. It waits
// for one that has begun just now.
func (h *Handed) WithDownloads(ctx context.Context, result json.RawMessage, url string) json.RawMessage {
	result, begun := Begun(result)
	if begun != "" && h.isQuiet(url, begun) {
		return result
	}
	files, running := h.downloads(ctx, url, begun)
	for len(files) == 0 {
		if !running {
			return result
		}
		select {
		case <-time.After(downloadsPause):
		case <-ctx.Done():
			return result
		}
		files, running = h.downloads(ctx, url, begun)
	}
	var lines []string
	for _, d := range files {
		lines = append(lines, fmt.Sprintf("Downloaded %s (%d bytes) to %s", d.Name, d.Bytes, d.Path))
	}
	b, _ := json.Marshal(files) // it never fails
	result = jsonrpc.Set(result, "_meta", jsonrpc.Set(jsonrpc.Get(result, "_meta"), metaDownloads, b))
	if content := jsonrpc.Get(result, "content"); len(content) > 1 && content[0] == '[' {
		result = jsonrpc.Set(result, "content", mcp.WithText(content, strings.Join(lines, "\n")))
	}
	return result
}

// Begun returns a result without what its child says of downloads in it, and that; "": it says nothing.
func Begun(result json.RawMessage) (_ json.RawMessage, begun string) {
	meta := jsonrpc.Get(result, "_meta")
	if begun = jsonrpc.GetString(meta, MetaBegun); begun == "" {
		return result, ""
	}
	if meta = jsonrpc.Delete(meta, MetaBegun); string(meta) == "{}" {
		return jsonrpc.Delete(result, "_meta"), begun
	}
	return jsonrpc.Set(result, "_meta", meta), begun
}

// isQuiet reports whether the list of a browser's downloads is as it was.
func (h *Handed) isQuiet(url, begun string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, ok := h.quiet[url]
	return ok && last.begun == begun && time.Since(last.at) < childsWord
}

// downloads returns these files, and whether a download has begun just now. Begun is what
// the child has said before.
func (h *Handed) downloads(ctx context.Context, url, begun string) (files []download, running bool) {
	h.mu.Lock()
	without := h.without[url]
	h.mu.Unlock()
	if without {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, downloadsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/downloads", nil)
	if err != nil {
		return nil, false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, false
	}
	defer resp.Body.Close()
	var all []download
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDownloadsList))
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case resp.StatusCode == http.StatusNotFound && jsonrpc.GetString(body, "error", "code") == "not_found":
		if h.without == nil {
			h.without = map[string]bool{}
		}
		h.without[url] = true // its downloads go where it puts them
		return nil, false
	case err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body, &all) != nil:
		return nil, false
	}
	quiet := begun != ""
	for _, d := range all {
		quiet = quiet && d.State != "in_progress"
		if d.State == "in_progress" && time.Since(d.StartedAt.Time) < downloadsPatience {
			running = true
		}
		end := d.StartedAt.Add(time.Duration(d.DurationMS) * time.Millisecond)
		if d.State != "complete" || h.reported[d.GUID] || end.Before(h.Since) {
			continue
		}
		if h.reported == nil {
			h.reported = map[string]bool{}
		}
		h.reported[d.GUID] = true
		files = append(files, d)
	}
	if delete(h.quiet, url); quiet {
		if h.quiet == nil {
			h.quiet = map[string]word{}
		}
		h.quiet[url] = word{begun, time.Now()}
	}
	return files, running
}
