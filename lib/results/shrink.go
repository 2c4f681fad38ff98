package results

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"btools/lib/blobs"
	"btools/lib/jsonrpc"
	"btools/lib/record"
)

// Archive keeps what is too large for an agent: text in memory, data on disk.
type Archive struct {
	Texts *Store
	Blobs *blobs.Store
}

// Reader is the agent that a result is for.
type Reader struct {
	Scope Scope
	// Form is how much it takes; an image has a bound of its own, which is 0 for that of other data.
	Form
	Image int
	// Links says that its host knows links to resources in results.
	Links bool
	// Promised says that the structured content has a schema: hosts refuse a result
	// without it.
	Promised bool
	// Handed are the blobs and files that its host knows.
	Handed *Handed
}

const (
	// maxBeginning is how much a host is shown of a text that is too large.
	maxBeginning = 8 << 10
	// MaxImage is the size of an image in base64 that a model still takes. A
	// model has to see an image: smaller ones stay in the result.
	MaxImage = 4 << 20
	// MaxImages is how many images a result has at most.
	MaxImages = 20
	// blobTimeout is how long a result waits for the disk.
	blobTimeout = 30 * time.Second
)

// metaStored are the parts of a result that are kept, in its _meta.
const metaStored = "btools/stored"

// Shrink returns a result with at most as many bytes of text as its reader takes, about,
// and the number of these. A small result is unchanged.
func (a *Archive) Shrink(ctx context.Context, result json.RawMessage, to Reader) (json.RawMessage, int) {
	ctx, cancel := context.WithTimeout(ctx, blobTimeout)
	defer cancel()
	sh := &shrinking{Archive: a, Reader: to}
	return sh.do(ctx, result), sh.shown
}

// shrinking is a result that is being made smaller.
type shrinking struct {
	*Archive
	Reader

	content []json.RawMessage
	stored  []json.RawMessage // what is kept
	shown   int               // bytes of text
	images  int               // that are shown
	left    int               // images that are left out
	changed bool
}

func (sh *shrinking) do(ctx context.Context, result json.RawMessage) json.RawMessage {
	content := jsonrpc.Get(result, "content")
	if len(content) == 0 || content[0] != '[' {
		return result
	}
	var texts []string
	total := 0
	for item := range jsonrpc.Elements(content) {
		if jsonrpc.GetString(item, "type") == "text" {
			texts = append(texts, jsonrpc.GetString(item, "text"))
			total += len(texts[len(texts)-1])
		}
	}
	var whole string
	if total > limit(sh.Text) {
		whole = strings.Join(texts, "\n")
	} else {
		sh.shown = total
	}
	first := true
	for item := range jsonrpc.Elements(content) {
		switch kind := jsonrpc.GetString(item, "type"); {
		case kind == "text" && whole != "":
			if first {
				sh.addText(ctx, whole)
			}
			first = false
		case kind == "image" && sh.isModel() && sh.images >= MaxImages:
			sh.left++
		case !sh.isData(kind, item):
			if kind == "image" {
				sh.images++
				item = sh.typed(item)
			}
			sh.content = append(sh.content, item)
		case !sh.addData(ctx, kind, item):
			sh.content = append(sh.content, item)
		}
	}
	if sh.left > 0 {
		sh.addContent(fmt.Sprintf("[Images left out: %d. A result has at most %d]", sh.left, MaxImages))
	}
	if structured := jsonrpc.Get(result, "structuredContent"); len(structured) > limit(sh.Data) && !sh.Promised {
		if key, err := sh.Texts.Put(sh.Scope, string(structured)); err == nil {
			result = jsonrpc.Delete(result, "structuredContent")
			sh.addNote("structuredContent is left out", sh.storedText(key, "application/json", len(structured)),
				sh.more("result", "cache_key", key, 0))
		}
	}
	if !sh.changed {
		return result
	}
	if len(sh.stored) > 0 {
		meta := jsonrpc.Set(jsonrpc.Get(result, "_meta"), metaStored, jsonrpc.Array(sh.stored))
		result = jsonrpc.Set(result, "_meta", meta)
	}
	return jsonrpc.Set(result, "content", jsonrpc.Array(sh.content))
}

// addText adds the beginning of a text and the way to the rest.
func (sh *shrinking) addText(ctx context.Context, whole string) {
	most := sh.Text
	if sh.Command == "" {
		most = min(most, maxBeginning)
	}
	beginning := head(whole, most)
	shown, total := utf8.RuneCountInString(beginning), utf8.RuneCountInString(whole)
	cut := fmt.Sprintf("Cut: these are the first %d of %d characters", shown, total)
	key, err := sh.Texts.Put(sh.Scope, whole)
	if err == nil {
		sh.addContent(closed(beginning))
		sh.addNote(cut, sh.storedText(key, "text/plain", len(whole)),
			sh.more("result", "cache_key", key, shown))
		return
	}
	b, err := sh.Blobs.Put(ctx, []byte(whole), "txt")
	if err != nil {
		sh.addContent(whole)
		sh.addContent("[Whole, because it cannot be kept: " + err.Error() + "]")
		return
	}
	sh.Handed.addBlob(b.Name)
	sh.addContent(closed(beginning))
	sh.addNote(cut, BlobStored(b), sh.more("get_blob", "uri", b.URI(), len(beginning)))
}

// more is the call of a tool that reads what is kept under a key, from an offset on.
func (sh *shrinking) more(tool, argument, key string, offset int) string {
	if sh.Command != "" {
		call := sh.Command + " " + tool + " " + key
		if offset > 0 {
			call += fmt.Sprintf(" offset=%d", offset)
		}
		return call
	}
	call := fmt.Sprintf("browser_%s {%q:%q", tool, argument, key)
	if offset > 0 {
		call += fmt.Sprintf(`,"offset":%d`, offset)
	}
	return call + "}"
}

// closed is the beginning of a text whose last block of code is ended.
func closed(beginning string) string {
	fence := "" // of the block that is open
	for line := range strings.Lines(beginning) {
		ticks := line[:len(line)-len(strings.TrimLeft(line, "`"))]
		switch {
		case fence == "" && len(ticks) >= 3:
			fence = ticks
		case fence != "" && strings.TrimRight(line, "\n") == fence:
			fence = ""
		}
	}
	if fence == "" {
		return beginning
	}
	return strings.TrimSuffix(beginning, "\n") + "\n" + fence
}

// isData reports whether an item of content is data to be kept as a blob: binary
// data is nothing to read, whatever its size.
func (sh *shrinking) isData(kind string, item json.RawMessage) bool {
	switch kind {
	case "image":
		data := jsonrpc.GetString(item, "data")
		return len(data) > limit(cmp.Or(sh.Image, sh.Data)) || sh.isModel() && imageType(data) == ""
	case "audio":
		return len(jsonrpc.Get(item, "data")) > limit(sh.Data)
	case "resource":
		return sh.Data > 0 && jsonrpc.Get(item, "resource", "blob") != nil ||
			len(jsonrpc.Get(item, "resource", "text")) > limit(sh.Data)
	}
	return false
}

// isModel reports whether a model may read the result. A reader that wants all data, such as a file, takes any image.
func (sh *shrinking) isModel() bool { return sh.Image > 0 }

// imageType returns the MIME type of an image in base64 that models take, or "".
func imageType(encoded string) string {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	return blobs.ImageType(data)
}

// typed returns an image with the type that its header says, where a model may read it.
func (sh *shrinking) typed(item json.RawMessage) json.RawMessage {
	is := imageType(jsonrpc.GetString(item, "data"))
	if is == "" || is == jsonrpc.GetString(item, "mimeType") || !sh.isModel() {
		return item
	}
	sh.changed = true
	return jsonrpc.Set(item, "mimeType", jsonrpc.Quote(is))
}

// addData keeps the data of an item as a blob. It reports false if the item is to
// stay, because it is not what it says it is, or because it cannot be kept.
func (sh *shrinking) addData(ctx context.Context, kind string, item json.RawMessage) bool {
	at := item
	encoded := jsonrpc.GetString(item, "data")
	if kind == "resource" {
		at = jsonrpc.Get(item, "resource")
		encoded = jsonrpc.GetString(at, "blob")
	}
	ext := blobs.ExtOf(jsonrpc.GetString(at, "mimeType"))
	isImage := kind == "image" && sh.isModel()
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		if isImage {
			sh.addContent("[An image is left out: its data is not base64]")
		}
		return isImage
	}
	if encoded == "" {
		data = []byte(jsonrpc.GetString(at, "text"))
		if ext == "bin" {
			ext = "txt"
		}
	}
	b, err := sh.Blobs.Put(ctx, data, ext)
	if err != nil && isImage {
		sh.addContent("[An image that models do not take is left out, because it cannot be kept: " + err.Error() + "]")
		return true
	}
	if err != nil {
		sh.addContent("[Inline, because it cannot be kept: " + err.Error() + "]")
		return false
	}
	sh.Handed.addBlob(b.Name)
	if sh.Links {
		sh.content = append(sh.content, link(b))
	}
	sh.addNote("Kept as a blob", BlobStored(b), sh.more("get_blob", "uri", b.URI(), 0))
	return true
}

// link is a blob as an item of content.
func link(b blobs.Blob) json.RawMessage {
	return jsonrpc.Set(blobResource(b), "type", json.RawMessage(`"resource_link"`))
}

// addContent adds an item of text that the result did not have.
func (sh *shrinking) addContent(text string) {
	sh.shown, sh.changed = sh.shown+len(text), true
	item := jsonrpc.Set(nil, "text", jsonrpc.Quote(text))
	sh.content = append(sh.content, jsonrpc.Set(item, "type", json.RawMessage(`"text"`)))
}

// addNote says where the rest of a result is.
func (sh *shrinking) addNote(what string, at stored, call string) {
	b, _ := json.Marshal(at)
	sh.stored = append(sh.stored, b)
	if sh.Command != "" { // the line ends with what is to be run
		sh.addContent(fmt.Sprintf("[%s, kept until %s. The rest, with --max-inline 0 at once: %s]", what,
			at.expires(), call))
		return
	}
	sh.addContent(fmt.Sprintf("[%s. More: %s. %s]", what, call, at))
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
	return fmt.Sprintf("_size_kb: %g, _mime_type: %s, _expires_at: %s", s.SizeKB, s.Type, s.expires())
}

func (s stored) expires() string {
	b, _ := s.Expires.MarshalJSON()
	return strings.Trim(string(b), `"`)
}

func (a *Archive) storedText(key, mimeType string, size int) stored {
	expires := record.Time{Time: time.Now().Add(a.Texts.TTL())}
	return stored{Key: key, SizeKB: kilobytes(int64(size)), Type: mimeType, Expires: expires}
}

// BlobStored is a blob as a part of a result.
func BlobStored(b blobs.Blob) stored {
	return stored{URI: b.URI(), SizeKB: kilobytes(b.Size), Type: b.MIMEType(), Expires: record.Time{Time: b.Expires}}
}

// kilobytes is a size in units of 1,024 bytes, with one decimal.
func kilobytes(size int64) float64 { return float64((size*10+512)/1024) / 10 }
