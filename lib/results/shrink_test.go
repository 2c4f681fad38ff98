package results

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"btools/lib/blobs"
	"btools/lib/jsonrpc"
)

func TestClosed(t *testing.T) {
	for text, want := range map[string]string{
		"a\n```yaml\n- b\n":            "a\n```yaml\n- b\n```",
		"````yaml\n- \"```\"\n```\nb":  "````yaml\n- \"```\"\n```\nb\n````",
		"```\na\n```\nb\n":             "```\na\n```\nb\n",
		"``\nno block":                 "``\nno block",
		"```js\na\n```\n```\nb\n```\n": "```js\na\n```\n```\nb\n```\n",
	} {
		if got := closed(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// Structured content that the tool has promised stays: hosts refuse a result
// without it.
func TestPromisedContent(t *testing.T) {
	content := json.RawMessage(`{"content":[],"structuredContent":{"x":"` + strings.Repeat("y", 3000) + `"}}`)
	for _, promised := range []bool{true, false} {
		sh := newShrinking(t.TempDir())
		sh.Promised = promised
		got := sh.do(t.Context(), content)
		if has := jsonrpc.Get(got, "structuredContent") != nil; has != promised || promised && string(got) !=
			string(content) {
			t.Errorf("promised %v: %.300s", promised, got)
		}
	}
}

// An image gets the type that its header says, and of too many the number is told.
func TestImages(t *testing.T) {
	const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
	image := `{"type":"image","mimeType":"image/jpeg","data":"` + pixel + `"}`
	got := string(newShrinking(t.TempDir()).do(t.Context(), json.RawMessage(`{"content":[`+
		strings.Repeat(image+",", 29)+image+`]}`)))
	if strings.Count(got, `"image/png"`) != MaxImages || strings.Contains(got, "image/jpeg") ||
		strings.Count(got, "[Images left out: 10. ") != 1 {
		t.Errorf("of 30 images: %s", got)
	}
	got = string(newShrinking(t.TempDir()).do(t.Context(), json.RawMessage(`{"content":[`+
		strings.Replace(image, pixel, pixel+"!", 1)+`]}`)))
	if strings.Contains(got, `"image"`) || !strings.Contains(got, "its data is not base64") {
		t.Errorf("of bad data: %s", got)
	}
}

func newShrinking(dir string) *shrinking {
	a := &Archive{New(Limits{}), &blobs.Store{Dir: dir}}
	return &shrinking{Archive: a, Reader: Reader{Scope: Scope{Host: "a"},
		Form: Form{Text: 2048, Data: 2048}, Image: MaxImage, Links: true, Handed: &Handed{}}}
}

// Whatever a child answers, the host gets valid JSON, not much more text than the
// limit, and a key for all of it; a small result comes as it is.
func FuzzShrink(f *testing.F) {
	long := strings.Repeat("日本 ```\\n", 500)
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"` + long + `"},{"type":"text","text":"b"}],"_meta":{"a":1}}`,
		`{"content":[{"type":"text","text":"a"}],"structuredContent":{"x":"` + long + `"}}`,
		`{"content":[{"type":"audio","data":"` + strings.Repeat("AAAA", 1000) + `","mimeType":"audio/wav"}]}`,
		`{"content":[{"type":"resource","resource":{"uri":"x","text":"` + long + `"}},{"type":"text","text":5},7]}`,
		`{"content":[{"type":"resource","resource":{"uri":"x","blob":"AA=="}}],"_meta":[]}`,
		`{"content":{}}`, `[]`, `{"content":[`,
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, result []byte) {
		if !json.Valid(result) || !utf8.Valid(result) {
			return
		}
		sh := newShrinking(dir)
		got := sh.do(context.Background(), result)
		if !sh.changed {
			if string(got) != string(result) {
				t.Errorf("it is not as it came: %s", got)
			}
			return
		}
		if !json.Valid(got) {
			t.Fatalf("not JSON: %s", got)
		}
		var whole, shown []string
		texts := func(of []byte, all *[]string) (bytes int) {
			for item := range jsonrpc.Elements(jsonrpc.Get(of, "content")) {
				if jsonrpc.GetString(item, "type") == "text" {
					*all = append(*all, jsonrpc.GetString(item, "text"))
					bytes += len((*all)[len(*all)-1])
				}
			}
			return bytes
		}
		total := texts(result, &whole)
		if n, most := texts(got, &shown), sh.Form.Text+600*len(sh.stored); n > most {
			t.Errorf("%d bytes of text, at most %d are to be shown", n, most)
		}
		if total > sh.Form.Text {
			key := jsonrpc.GetString(sh.stored[0], "cache_key")
			for _, s := range sh.stored {
				if jsonrpc.GetString(s, "_mime_type") == "text/plain" && jsonrpc.GetString(s, "cache_key") != "" {
					key = jsonrpc.GetString(s, "cache_key")
				}
			}
			if text, ok := sh.Texts.Get(sh.Scope, key); !ok || text != strings.Join(whole, "\n") {
				t.Errorf("of %d bytes, %d are kept", total, len(text))
			}
		}
	})
}
