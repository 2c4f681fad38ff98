package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"btools/lib/agent/source"
	"btools/lib/blobs"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/record"
	"btools/lib/results"
)

// Large says what becomes of results that are too large for an agent.
type Large struct {
	// MaxInline is how many bytes of text, or of data that is not an image, a
	// result may have, by default DefaultMaxInline. The rest is kept: text in
	// memory, data on disk.
	MaxInline int
	// OfAll bounds the results of all children, not only those of bmcp's own
	// browser tools.
	OfAll bool
	// Entries is how many results are kept in memory, as of results.Limits.
	Entries int
	// BlobDir is the directory of lib/blobs.
	BlobDir string
}

// Bounds of a result.
const (
	DefaultMaxInline = 50 << 10
	// maxBeginning is how much is shown of a text that is too large.
	maxBeginning = 8 << 10
	// minInBulk is what each command of a bulk call may return of what they may
	// return together.
	minInBulk = 1 << 10
	// maxImage is the size of an image in base64 that a model still takes. A
	// model has to see an image: smaller ones stay in the result.
	maxImage = 4 << 20
	// blobTimeout is how long a result waits for the disk.
	blobTimeout = 30 * time.Second
)

// metaStored are the parts of a result that are kept, in its _meta.
const metaStored = "btools/stored"

// archive keeps what is too large.
type archive struct {
	Large
	results *results.Store
	blobs   *blobs.Store
}

func newArchive(l Large) *archive {
	if l.MaxInline == 0 {
		l.MaxInline = DefaultMaxInline
	}
	return &archive{l, results.New(results.Limits{Entries: l.Entries}), &blobs.Store{Dir: l.BlobDir}}
}

// keepClean deletes old blobs until stopCleaning is called.
func (c *Coordinator) keepClean() {
	var ctx context.Context
	ctx, c.stopCleaning = context.WithCancel(context.Background())
	if c.keeps() && c.Large.BlobDir != "" {
		c.cleaning.Go(func() {
			c.large.blobs.KeepClean(ctx, func(err error) { c.Log.Warn(err.Error()) })
		})
	}
}

// bounds reports whether a child's results are bounded.
func (c *Coordinator) bounds(child *Child) bool { return child.Builtin || c.Large.OfAll }

// keeps reports whether results may be kept.
func (c *Coordinator) keeps() bool {
	return slices.ContainsFunc(c.Children, func(child Child) bool { return c.bounds(&child) })
}

// scope says who may read the results of a call: the host's session, and among
// hosts that have one together, those that know the session_id.
func (s *Session) scope(sessionID string) results.Scope {
	if !s.requests.table.Shared {
		sessionID = ""
	}
	return results.Scope{Host: s.name, Part: sessionID}
}

// isLarge reports whether the result of a call may be too large.
func (req *request) isLarge(result json.RawMessage) bool {
	p, _ := req.Child()
	return req.Method == "tools/call" && p != nil && req.host.c.bounds(p.child) &&
		(len(result) > req.host.c.large.MaxInline || bytes.Contains(result, []byte(`"blob":`)))
}

// bounded is the result of a call with as much of it as an agent takes.
func (req *request) bounded(result json.RawMessage) json.RawMessage {
	id, _ := source.SessionIn(req.env.Args) // or the call has failed
	result, _ = req.host.shrink(req.env.Name, req.env.Audience, id, result, req.host.c.large.MaxInline)
	return result
}

// shrink returns a tool's result with at most so many bytes of text, about, and
// the number of these.
func (s *Session) shrink(tool string, to mcp.Audience, sessionID string, result json.RawMessage, limit int) (
	json.RawMessage, int) {
	sh := &shrinking{archive: s.c.large, session: s, scope: s.scope(sessionID), limit: limit, links: s.takesLinks()}
	if r, ok := s.tools(to).route(tool); ok {
		sh.promised = jsonrpc.Get(r.tool, "outputSchema") != nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, blobTimeout)
	defer cancel()
	return sh.do(ctx, result), sh.text
}

// takesLinks reports whether the host knows links to resources in results.
func (s *Session) takesLinks() bool {
	params := s.hostParams()
	return params == nil || jsonrpc.GetString(params, "protocolVersion") >= "2025-06-18"
}

// stored says where a part of a result is kept.
type stored struct {
	Key     string      `json:"cache_key,omitempty"`
	URI     string      `json:"uri,omitempty"`
	SizeKB  float64     `json:"_size_kb"`
	Type    string      `json:"_mime_type"`
	Expires record.Time `json:"_expires_at"`
}

// String is what an agent is told of it.
func (s stored) String() string {
	expires, _ := s.Expires.MarshalJSON()
	return fmt.Sprintf("_size_kb: %g, _mime_type: %s, _expires_at: %s", s.SizeKB, s.Type,
		strings.Trim(string(expires), `"`))
}

func (k *archive) storedText(key, mimeType string, size int) stored {
	expires := record.Time{Time: time.Now().Add(k.results.TTL())}
	return stored{Key: key, SizeKB: kilobytes(int64(size)), Type: mimeType, Expires: expires}
}

func storedBlob(b blobs.Blob) stored {
	return stored{URI: b.URI(), SizeKB: kilobytes(b.Size), Type: b.MIMEType(), Expires: record.Time{Time: b.Expires}}
}

// kilobytes is a size in units of 1,024 bytes, with one decimal.
func kilobytes(size int64) float64 { return float64((size*10+512)/1024) / 10 }
