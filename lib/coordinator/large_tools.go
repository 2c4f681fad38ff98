package coordinator

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"btools/lib/agent/source"
	"btools/lib/blobs"
	"btools/lib/jsonrpc"
	"btools/lib/results"
)

// The tools that read what is kept of results. They may be run in bulk.
const (
	resultTool = "browser_result"
	blobTool   = "browser_get_blob"
)

// Readers are the names of these tools.
func Readers() []string { return []string{resultTool, blobTool} }

// ListReaders returns them as tools/list has them for hosts that have one browser each.
func ListReaders() (all []json.RawMessage) {
	s := &Server{}
	for _, t := range []ownTool{s.resultRow(schemaFile(resultTool)), s.blobRow(schemaFile(blobTool))} {
		t.Read(schemas)
		all = append(all, t.Listed)
	}
	return all
}

func (s *Server) resultRow(input json.RawMessage) ownTool {
	return ownTool{Name: resultTool, Title: "Rest of a result", About: "Read or search a result that was cut",
		Input: input, Do: s.showResult}
}

func (s *Server) blobRow(input json.RawMessage) ownTool {
	return ownTool{Name: blobTool, Title: "Blob", About: "Read the data at a blob:// address", Input: input,
		Do: s.getBlob}
}

// Bounds of browser_get_blob's limit, in bytes.
const (
	defaultBlobPart = 1 << 20
	maxBlobPart     = 8 << 20
)

// errTooBig is the error for arguments that are as the schema says and cannot be
// read.
var errTooBig = errors.New("offset, limit or context is too large a number")

// showTimeout is how long a search in a result may take.
const showTimeout = 10 * time.Second

// showResult is browser_result.
func (s *Server) showResult(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	var p struct {
		results.Request
		Key string `json:"cache_key"`
	}
	if err := json.Unmarshal(args, &p); err != nil {
		return nil, errTooBig
	}
	id, err := source.SessionIn(args)
	if err != nil {
		return nil, err
	}
	text, ok := s.archive.Texts.Get(req.host.scope(id), p.Key)
	if !ok {
		return nil, fmt.Errorf("there is no result with cache_key %s (any more): call the tool again. "+
			"A result is kept for %v after its last use", jsonrpc.Clip([]byte(p.Key)), s.archive.Texts.TTL())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, showTimeout,
		fmt.Errorf("the search took longer than %v: make pattern or query simpler", showTimeout))
	defer cancel()
	f, ok := results.FormOf(req.m.Params)
	p.All = ok && f.Text == 0
	page, err := results.Show(ctx, text, p.Request)
	if err != nil {
		return nil, err
	}
	if f.Value {
		return mcp.NewToolResultText(page.Text), nil
	}
	note := fmt.Sprintf("[Characters %d to %d of %d", page.Offset, page.End, page.Total)
	if p.Pattern != "" || p.Query != "" || p.Flatten {
		note += " that were found"
	}
	if page.End < page.Total {
		note += fmt.Sprintf(". Next: offset %d", page.End)
	}
	return &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent(page.Text),
		mcp.NewTextContent(note + "]")}}, nil
}

// getBlob is browser_get_blob.
func (s *Server) getBlob(_ context.Context, req *request, args json.RawMessage) (any, error) {
	var p struct {
		URI    string `json:"uri"`
		Offset int64  `json:"offset"`
		Limit  *int64 `json:"limit"`
	}
	if err := json.Unmarshal(args, &p); err != nil {
		return nil, errTooBig
	}
	f, b, err := s.archive.Blobs.Open(p.URI)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	form, ok := results.FormOf(req.m.Params)
	limit := int64(defaultBlobPart)
	switch isText := blobs.IsText(b.MIMEType()); {
	case p.Limit != nil:
		limit = *p.Limit
	case ok && isText && form.Text > 0:
		limit = int64(form.Text)
	case ok && !isText && form.Data > 0:
		limit = int64(form.Data)
	case ok:
		limit = max(1, b.Size)
	}
	imageType := ""
	if p.Offset == 0 && p.Limit == nil && b.Size <= results.MaxImage/4*3 && strings.HasPrefix(b.MIMEType(), "image/") {
		imageType = imageTypeOf(f, b)
	}
	whole := imageType != ""
	switch {
	case whole:
		limit = b.Size
	case p.Offset < 0 || p.Offset > b.Size:
		return nil, fmt.Errorf("offset is 0 to %d, the number of bytes, not %d", b.Size, p.Offset)
	case limit < 1 || limit > maxBlobPart && p.Limit != nil:
		return nil, fmt.Errorf("limit is 1 to %d bytes, not %d", maxBlobPart, limit)
	}
	data := make([]byte, min(limit, b.Size-p.Offset))
	if _, err := io.ReadFull(io.NewSectionReader(f, p.Offset, int64(len(data))), data); err != nil {
		return nil, fmt.Errorf("cannot read the blob: %w", err)
	}
	var content mcp.Content
	switch text := wholeRunes(data); {
	case whole:
		content = mcp.NewImageContent(base64.StdEncoding.EncodeToString(data), imageType)
	case blobs.IsText(b.MIMEType()) && text != nil:
		data = text
		content = mcp.NewTextContent(string(data))
	default:
		content = mcp.NewEmbeddedResource(mcp.BlobResourceContents{URI: b.URI(), MIMEType: b.MIMEType(),
			Blob: base64.StdEncoding.EncodeToString(data)})
	}
	if form.Value {
		return &mcp.CallToolResult{Content: []mcp.Content{content}}, nil
	}
	end := p.Offset + int64(len(data))
	note := fmt.Sprintf("[Bytes %d to %d of %d", p.Offset, end, b.Size)
	if end < b.Size {
		note += fmt.Sprintf(". Next: offset %d", end)
	}
	note += fmt.Sprintf(". %s]", results.BlobStored(b))
	return &mcp.CallToolResult{Content: []mcp.Content{content, mcp.NewTextContent(note)}}, nil
}

// imageTypeOf returns the MIME type of a blob that is an image that models take, or "".
func imageTypeOf(f io.ReaderAt, b blobs.Blob) string {
	data := make([]byte, b.Size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, b.Size), data); err != nil {
		return ""
	}
	return blobs.ImageType(data)
}

// wholeRunes is a part of a text without the beginning of a character at its end;
// nil if it is not text.
func wholeRunes(data []byte) []byte {
	for cut := range min(utf8.UTFMax, len(data)) {
		if part := data[:len(data)-cut]; utf8.Valid(part) && len(part) > 0 {
			return part
		}
	}
	return nil
}

// bounded is the result of a command. The results of a call share what one may
// have.
func (b *bulkRun) bounded(ctx context.Context, command bulkCommand, result json.RawMessage) json.RawMessage {
	to := b.req.env.Audience
	r, ok := b.tools(to).Route(command.Tool)
	if !ok {
		return result
	}
	f, image, ok := b.req.form(r.Child)
	if !ok {
		return result
	}
	if f.Text > 0 {
		f.Text = max(minInBulk, f.Text-b.shown)
	}
	if f.Data > 0 {
		f.Data = max(minInBulk, f.Data-b.shown)
	}
	result, shown := b.shrink(command.Tool, to, b.asked.Session, result, f, image)
	b.shown += shown
	return result
}
