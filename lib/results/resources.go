package results

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"btools/lib/blobs"
	"btools/lib/jsonrpc"
)

// maxRead is how many bytes of a blob resources/read returns.
const maxRead = 32 << 20

// BlobTemplate is what resources/templates/list says of blobs.
const BlobTemplate = `{"uriTemplate":"blob://{sha256}.{ext}","name":"blob",` +
	`"description":"Data of a result, kept for 24 hours"}`

// blobResource is a blob as resources/list has it.
func blobResource(b blobs.Blob) json.RawMessage {
	r := jsonrpc.Set(nil, "size", strconv.AppendInt(nil, b.Size, 10))
	r = jsonrpc.Set(r, "mimeType", jsonrpc.Quote(b.MIMEType()))
	r = jsonrpc.Set(r, "name", jsonrpc.Quote(b.Name[:12]+b.Name[strings.IndexByte(b.Name, '.'):]))
	return jsonrpc.Set(r, "uri", jsonrpc.Quote(b.URI()))
}

// Read returns the contents of a blob as resources/read has them. The error is
// blobs.ErrNotFound, one for the agent, or that of the disk.
func (a *Archive) Read(uri string) (json.RawMessage, error) {
	f, b, err := a.Blobs.Open(uri)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if b.Size > maxRead {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "the blob has %d bytes, more than are read at once: "+
			"browser_get_blob reads parts", b.Size)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	contents := jsonrpc.Set(nil, "uri", jsonrpc.Quote(uri))
	contents = jsonrpc.Set(contents, "mimeType", jsonrpc.Quote(b.MIMEType()))
	if blobs.IsText(b.MIMEType()) && utf8.Valid(data) {
		return jsonrpc.Set(contents, "text", jsonrpc.Quote(string(data))), nil
	}
	return jsonrpc.Set(contents, "blob", jsonrpc.Quote(base64.StdEncoding.EncodeToString(data))), nil
}
