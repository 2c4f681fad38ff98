package coordinator

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"btools/lib/blobs"
	"btools/lib/jsonrpc"
	"btools/lib/results"
)

// shrinking is a result that is being made smaller.
type shrinking struct {
	*archive
	session  *Session
	scope    results.Scope
	limit    int
	links    bool
	promised bool // its structured content has a schema: hosts refuse a result without it

	content []json.RawMessage
	stored  []json.RawMessage // what is kept
	text    int               // bytes of text that are shown
	changed bool
}

// do returns the result, unchanged if it is small.
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
	if total > sh.limit {
		whole = strings.Join(texts, "\n")
	} else {
		sh.text = total
	}
	first := true
	for item := range jsonrpc.Elements(content) {
		switch kind := jsonrpc.GetString(item, "type"); {
		case kind == "text" && whole != "":
			if first {
				sh.addText(ctx, whole)
			}
			first = false
		case !sh.isData(kind, item) || !sh.addData(ctx, kind, item):
			sh.content = append(sh.content, item)
		}
	}
	if structured := jsonrpc.Get(result, "structuredContent"); len(structured) > sh.limit && !sh.promised {
		if key, err := sh.results.Put(sh.scope, string(structured)); err == nil {
			result = jsonrpc.Delete(result, "structuredContent")
			sh.addNote("structuredContent is left out", sh.storedText(key, "application/json", len(structured)),
				fmt.Sprintf(`browser_result {"cache_key":%q}`, key))
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
	beginning := results.Head(whole, min(sh.limit, maxBeginning))
	shown, total := utf8.RuneCountInString(beginning), utf8.RuneCountInString(whole)
	cut := fmt.Sprintf("Cut: these are the first %d of %d characters", shown, total)
	key, err := sh.results.Put(sh.scope, whole)
	if err == nil {
		sh.addContent(closed(beginning))
		sh.addNote(cut, sh.storedText(key, "text/plain", len(whole)),
			fmt.Sprintf(`browser_result {"cache_key":%q,"offset":%d}`, key, shown))
		return
	}
	b, err := sh.blobs.Put(ctx, []byte(whole), "txt")
	if err != nil {
		sh.addContent(whole)
		sh.addContent("[Whole, because it cannot be kept: " + err.Error() + "]")
		return
	}
	sh.session.blobs.add(b.Name)
	sh.addContent(closed(beginning))
	sh.addNote(cut, storedBlob(b), fmt.Sprintf(`browser_get_blob {"uri":%q,"offset":%d}`, b.URI(), len(beginning)))
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
		return len(jsonrpc.Get(item, "data")) > maxImage
	case "audio":
		return len(jsonrpc.Get(item, "data")) > sh.limit
	case "resource":
		return jsonrpc.Get(item, "resource", "blob") != nil ||
			len(jsonrpc.Get(item, "resource", "text")) > sh.limit
	}
	return false
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
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return false
	}
	if encoded == "" {
		data = []byte(jsonrpc.GetString(at, "text"))
		if ext == "bin" {
			ext = "txt"
		}
	}
	b, err := sh.blobs.Put(ctx, data, ext)
	if err != nil {
		sh.addContent("[Inline, because it cannot be kept: " + err.Error() + "]")
		return false
	}
	sh.session.blobs.add(b.Name)
	if sh.links {
		sh.content = append(sh.content, link(b))
	}
	sh.addNote("Kept as a blob", storedBlob(b), fmt.Sprintf(`browser_get_blob {"uri":%q}`, b.URI()))
	return true
}

// link is a blob as an item of content.
func link(b blobs.Blob) json.RawMessage {
	return jsonrpc.Set(blobResource(b), "type", json.RawMessage(`"resource_link"`))
}

// addContent adds an item of text that the result did not have.
func (sh *shrinking) addContent(text string) {
	sh.text, sh.changed = sh.text+len(text), true
	item := jsonrpc.Set(nil, "text", jsonrpc.Quote(text))
	sh.content = append(sh.content, jsonrpc.Set(item, "type", json.RawMessage(`"text"`)))
}

// addNote says where the rest of a result is.
func (sh *shrinking) addNote(what string, at stored, call string) {
	b, _ := json.Marshal(at)
	sh.stored = append(sh.stored, b)
	sh.addContent(fmt.Sprintf("[%s. More: %s. %s]", what, call, at))
}
