package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/record"
)

// metaDownloads are the files that a result names, in its _meta.
const metaDownloads = "btools/downloads"

const (
	downloadsTimeout  = time.Second // for the list of a browser's downloads
	maxDownloadsList  = 4 << 20     // bytes of it
	downloadsPatience = time.Second // for a download, from its begin
	downloadsPause    = 20 * time.Millisecond
)

// told are the downloads that a host has been told of.
type told struct {
	mu    sync.Mutex
	guids map[string]bool
	none  map[string]bool // browsers, by their address, that have no directory of downloads
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

// newDownloads returns the files that a browser has completed since the host
// came, and that it has not been told of. It waits for one that has begun just now.
func (s *Session) newDownloads(l *source.Lease) (files []download) {
	for {
		files, running := s.listDownloads(l)
		if len(files) > 0 || !running {
			return files
		}
		select {
		case <-time.After(downloadsPause):
		case <-s.ctx.Done():
			return nil
		}
	}
}

// listDownloads returns these files, and whether a download has begun just now.
func (s *Session) listDownloads(l *source.Lease) (files []download, running bool) {
	t := &s.downloads
	t.mu.Lock()
	none := t.none[l.HTTPURL]
	t.mu.Unlock()
	if none {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(s.ctx, downloadsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.HTTPURL+"/downloads", nil)
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
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case resp.StatusCode == http.StatusNotFound && jsonrpc.GetString(body, "error", "code") == "not_found":
		if t.none == nil {
			t.none = map[string]bool{}
		}
		t.none[l.HTTPURL] = true // its downloads go where it puts them
		return nil, false
	case err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body, &all) != nil:
		return nil, false
	}
	for _, d := range all {
		if d.State == "in_progress" && time.Since(d.StartedAt.Time) < downloadsPatience {
			running = true
		}
		end := d.StartedAt.Add(time.Duration(d.DurationMS) * time.Millisecond)
		if d.State != "complete" || t.guids[d.GUID] || end.Before(s.came) {
			continue
		}
		if t.guids == nil {
			t.guids = map[string]bool{}
		}
		t.guids[d.GUID] = true
		files = append(files, d)
	}
	return files, running
}

// withDownloads names in the result of a call the files that its browser has downloaded
// meanwhile.
func (req *request) withDownloads(result json.RawMessage) json.RawMessage {
	if len(result) == 0 || result[0] != '{' {
		return result
	}
	files := req.host.newDownloads(req.lease)
	if len(files) == 0 {
		return result
	}
	var lines []string
	for _, d := range files {
		lines = append(lines, fmt.Sprintf("Downloaded %s (%d bytes) to %s", d.Name, d.Bytes, d.Path))
	}
	b, _ := json.Marshal(files) // it never fails
	result = jsonrpc.Set(result, "_meta", jsonrpc.Set(jsonrpc.Get(result, "_meta"), metaDownloads, b))
	if content := jsonrpc.Get(result, "content"); len(content) > 1 && content[0] == '[' {
		result = jsonrpc.Set(result, "content", withText(content, strings.Join(lines, "\n")))
	}
	return result
}
