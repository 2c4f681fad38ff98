package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"btools/lib/agent/source"
	"btools/lib/blobs"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
	"btools/lib/results"
)

// Large says what becomes of results that are too large for an agent.
type Large struct {
	// MaxInline is how many bytes of text, or of data that is not an image, a
	// result may have, by default 50 KiB. The rest is kept: text in
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

const (
	defaultMaxInline = 50 << 10
	// minInBulk is what each command of a bulk call may return of what they may
	// return together.
	minInBulk = 1 << 10
)

// keepClean deletes old blobs until stopCleaning is called.
func (s *Server) keepClean() {
	var ctx context.Context
	ctx, s.stopCleaning = context.WithCancel(context.Background())
	if s.keeps() && s.Large.BlobDir != "" {
		s.cleaning.Go(func() {
			s.archive.Blobs.KeepClean(ctx, func(err error) { s.Log.Warn(err.Error()) })
		})
	}
}

// bounds reports whether a child's results are bounded.
func (s *Server) bounds(child *child.Spec) bool { return child.Builtin || s.Large.OfAll }

// keeps reports whether results may be kept.
func (s *Server) keeps() bool {
	return slices.ContainsFunc(s.Children, func(child child.Spec) bool { return s.bounds(&child) })
}

// scope says who may read the results of a call: the host, and among
// hosts that have one together, those that know the session_id.
func (h *Host) scope(sessionID string) results.Scope {
	if !h.table.Shared {
		sessionID = ""
	}
	return results.Scope{Host: h.name, Part: sessionID}
}

// form returns how much of a result of a child's tool the agent takes, false if all of it: as it says, or as the
// server bounds the child.
func (req *request) form(of *child.Spec) (f results.Form, image int, ok bool) {
	if f, ok = results.FormOf(req.m.Params); ok {
		return f, 0, req.host.server.keeps()
	}
	most := req.host.server.Large.MaxInline
	if !req.host.server.bounds(of) { // but for images, where there is a tool that reads blobs
		return results.Form{}, results.MaxImage, req.host.server.keeps()
	}
	return results.Form{Text: most, Data: most}, results.MaxImage, true
}

// isLarge reports whether the result of a call may be too large.
func (a *answer) isLarge() bool {
	p, _ := a.Child()
	if a.Method != "tools/call" || p == nil {
		return false
	}
	f, image, ok := a.form(p.sup.child)
	return ok && (f.Text > 0 && len(a.result) > f.Text || f.Data > 0 &&
		(len(a.result) > f.Data || bytes.Contains(a.result, []byte(`"blob":`))) ||
		image > 0 && bytes.Contains(a.result, []byte(`"image"`)))
}

// shrunk is the result of a call with as much of it as an agent takes.
func (a *answer) shrunk() json.RawMessage {
	id, _ := source.SessionIn(a.env.Args) // or the call has failed
	p, _ := a.Child()
	f, image, _ := a.form(p.sup.child)
	result, _ := a.host.shrink(a.env.Name, a.env.Audience, id, a.result, f, image)
	return result
}

// shrink returns a tool's result with about as much as its reader takes, and the number of bytes of its text.
func (h *Host) shrink(tool string, to mcp.Audience, sessionID string, result json.RawMessage, f results.Form,
	image int) (json.RawMessage, int) {
	reader := results.Reader{Scope: h.scope(sessionID), Form: f, Image: image, Links: h.takesLinks(),
		Handed: &h.handed}
	if r, ok := h.tools(to).Route(tool); ok {
		reader.Promised = jsonrpc.Get(r.Tool, "outputSchema") != nil
	}
	return h.server.archive.Shrink(h.ctx, result, reader)
}

// takesLinks reports whether the host knows links to resources in results.
func (h *Host) takesLinks() bool {
	params := h.hostParams()
	return params == nil || jsonrpc.GetString(params, "protocolVersion") >= "2025-06-18"
}

// readBlob answers resources/read of a blob.
func (req *request) readBlob() {
	contents, err := req.host.server.archive.Read(req.env.URI)
	if errors.Is(err, blobs.ErrNotFound) {
		err = jsonrpc.Errorf(req.env.Era.Code(mcp.LegacyNotFound), "%v", err)
	}
	if err != nil {
		req.fail(err)
		return
	}
	req.result(jsonrpc.Set(nil, "contents", jsonrpc.Array([]json.RawMessage{contents})))
}

// withDownloads names in the result of a call the files that its browser has downloaded
// meanwhile.
func (a *answer) withDownloads() json.RawMessage {
	if len(a.result) == 0 || a.result[0] != '{' {
		return a.result
	}
	return a.host.handed.WithDownloads(a.host.ctx, a.result, a.lease.HTTPURL)
}
