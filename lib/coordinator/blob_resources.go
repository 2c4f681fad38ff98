package coordinator

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"btools/lib/blobs"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

const (
	// maxRead is how many bytes of a blob resources/read returns.
	maxRead = 32 << 20
	// maxListed is how many blobs a host's resources/list has.
	maxListed = 100
)

// blobTemplate is what resources/templates/list says of blobs.
const blobTemplate = `{"uriTemplate":"blob://{sha256}.{ext}","name":"blob",` +
	`"description":"Data of a result, kept for 24 hours"}`

// given are the names of the blobs that a host was given, the last ones.
type given struct {
	mu    sync.Mutex
	names []string
}

func (g *given) add(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.names = slices.DeleteFunc(g.names, func(other string) bool { return other == name })
	g.names = append(g.names, name)
	g.names = g.names[max(0, len(g.names)-maxListed):]
}

// listBlobs returns the blobs of the host that are still there. Who knows the
// address of a blob may read it: hosts that share a session are not shown those
// of others.
func (s *Session) listBlobs() (all []json.RawMessage) {
	if s.requests.table.Shared {
		return nil
	}
	s.blobs.mu.Lock()
	names := slices.Clone(s.blobs.names)
	s.blobs.mu.Unlock()
	for _, name := range names {
		if f, b, err := s.c.large.blobs.Open(blobs.Scheme + name); err == nil {
			f.Close()
			all = append(all, blobResource(b))
		}
	}
	return all
}

// blobResource is a blob as resources/list has it.
func blobResource(b blobs.Blob) json.RawMessage {
	r := jsonrpc.Set(nil, "size", strconv.AppendInt(nil, b.Size, 10))
	r = jsonrpc.Set(r, "mimeType", jsonrpc.Quote(b.MIMEType()))
	r = jsonrpc.Set(r, "name", jsonrpc.Quote(b.Name[:12]+b.Name[strings.IndexByte(b.Name, '.'):]))
	return jsonrpc.Set(r, "uri", jsonrpc.Quote(b.URI()))
}

// readBlob answers resources/read of a blob.
func (s *Session) readBlob(req *request) {
	uri := req.env.URI
	f, b, err := s.c.large.blobs.Open(uri)
	if err == nil {
		defer f.Close()
		if b.Size > maxRead {
			err = jsonrpc.Errorf(jsonrpc.InvalidParams, "the blob has %d bytes, more than are read at once: "+
				"browser_get_blob reads parts", b.Size)
		}
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(f)
	}
	if errors.Is(err, blobs.ErrNotFound) {
		err = jsonrpc.Errorf(req.env.Era.Code(mcp.LegacyNotFound), "%v", err)
	}
	if err != nil {
		req.fail(err)
		return
	}
	contents := jsonrpc.Set(nil, "uri", jsonrpc.Quote(uri))
	contents = jsonrpc.Set(contents, "mimeType", jsonrpc.Quote(b.MIMEType()))
	if blobs.IsText(b.MIMEType()) && utf8.Valid(data) {
		contents = jsonrpc.Set(contents, "text", jsonrpc.Quote(string(data)))
	} else {
		contents = jsonrpc.Set(contents, "blob", jsonrpc.Quote(base64.StdEncoding.EncodeToString(data)))
	}
	req.result(jsonrpc.Set(nil, "contents", jsonrpc.Array([]json.RawMessage{contents})))
}
