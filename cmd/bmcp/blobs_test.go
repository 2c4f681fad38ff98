//go:build linux

package main_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"btools/lib/cmdtest"
)

// Data is kept on disk: it is a resource, and browser_get_blob reads it. Images
// that a model takes stay.
func TestBlobs(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(giver(), "--mcp", "a="+cmdtest.FakeChild(), "--max-inline", "2KiB")
	m.AwaitTools("give", "browser_get_blob")
	data := bytes.Repeat([]byte("%PDF-\x00\xff"), 1000)
	pdf := fmt.Sprintf(`{"content":[{"type":"text","text":"saved"},{"type":"resource","resource":`+
		`{"uri":"file:///x.pdf","mimeType":"application/pdf","blob":%q}}]}`, base64.StdEncoding.EncodeToString(data))
	r := m.Tool("give", give(pdf))
	kept, items := keptOf(t, r), itemsOf(t, r)
	if len(kept) != 1 || kept[0].Type != "application/pdf" || kept[0].SizeKB != 6.8 || kept[0].Expires == "" ||
		!regexp.MustCompile(`^blob://[0-9a-f]{64}\.pdf$`).MatchString(kept[0].URI) {
		t.Fatalf("got %+v: %.500s", kept, r.Line)
	}
	uri := kept[0].URI
	if len(items) != 3 || items[0].Text != "saved" || items[1].Type != "resource_link" || items[1].URI != uri ||
		!strings.Contains(items[2].Text, uri) || !strings.Contains(items[2].Text, "_size_kb: 6.8") {
		t.Errorf("got %+v", items)
	}
	if st, err := os.Stat(w.Dir + "/cache/btools/blobs/" + strings.TrimPrefix(uri, "blob://")); err != nil ||
		st.Mode().Perm() != 0o600 || st.Size() != int64(len(data)) {
		t.Errorf("the file: %v, %v", st, err)
	}

	t.Run("resource", func(t *testing.T) {
		var x struct {
			Contents []struct{ URI, MIMEType, Blob string }
		}
		m.Call("resources/read", `{"uri":"`+uri+`"}`).Into(t, &x)
		if got, _ := base64.StdEncoding.DecodeString(x.Contents[0].Blob); !bytes.Equal(got, data) ||
			x.Contents[0].MIMEType != "application/pdf" || x.Contents[0].URI != uri {
			t.Errorf("resources/read gives %d bytes of %s", len(got), x.Contents[0].MIMEType)
		}
		if r := m.Call("resources/list", "{}"); !strings.Contains(r.Line, uri) ||
			!strings.Contains(r.Line, "fake://a") {
			t.Errorf("resources/list: %s", r.Line)
		}
		if r := m.Call("resources/templates/list", "{}"); !strings.Contains(r.Line, "blob://{sha256}.{ext}") {
			t.Errorf("resources/templates/list: %s", r.Line)
		}
		none := "blob://" + strings.Repeat("0", 64) + ".pdf"
		if r := m.Call("resources/read", `{"uri":"`+none+`"}`); r.Error == nil || r.Error.Code != -32002 {
			t.Errorf("a blob that is not there: %s", r.Line)
		}
		if r := m.Call("resources/read", `{"uri":"fake://a"}`); !strings.Contains(r.Line, "the text") {
			t.Errorf("a resource of the child: %s", r.Line)
		}
	})
	t.Run("tool", func(t *testing.T) {
		var got []byte
		for len(got) < len(data) {
			args := fmt.Sprintf(`{"uri":%q,"offset":%d,"limit":3000}`, uri, len(got))
			items := itemsOf(t, m.Tool("browser_get_blob", args))
			part, err := base64.StdEncoding.DecodeString(items[0].Resource.Blob)
			if err != nil || len(part) == 0 || !strings.Contains(items[1].Text, "of 7000") {
				t.Fatalf("got %+v", items)
			}
			got = append(got, part...)
		}
		if !bytes.Equal(got, data) {
			t.Error("the parts are not the data")
		}
		for args, want := range map[string]string{
			`{"uri":"blob://../../etc/passwd"}`:     "is not the address of a blob",
			`{"uri":"` + uri + `","offset":7001}`:   "offset is 0 to 7000",
			`{"uri":"` + uri + `","limit":0}`:       "limit is 1 to",
			`{"uri":"` + uri[:len(uri)-3] + `txt"}`: "there is no such blob (any more)",
		} {
			m.Tool("browser_get_blob", args).MustFail(t, want)
		}
	})
	t.Run("images", func(t *testing.T) {
		part := func(data []byte) string {
			return fmt.Sprintf(`{"type":"image","mimeType":"image/png","data":%q}`,
				base64.StdEncoding.EncodeToString(data))
		}
		picture := func(width int) []byte {
			var b bytes.Buffer
			if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, 1))); err != nil {
				t.Fatal(err)
			}
			return b.Bytes()
		}
		image := func(size int) string {
			data := make([]byte, size)
			copy(data, picture(3))
			return `{"content":[` + part(data) + `]}`
		}
		if items := itemsOf(t, m.Tool("give", give(image(100_000)))); len(items) != 1 || items[0].Type != "image" {
			t.Errorf("an image of 100 kB is not in its place: %d items", len(items))
		}
		r := m.Tool("give", give(image(4_000_000)))
		if kept := keptOf(t, r); len(kept) != 1 || kept[0].Type != "image/png" || len(r.Line) > 2000 {
			t.Errorf("an image of 4 MB: %.500s", r.Line)
		}
		// What models do not take is none, whatever it says of itself; nor is it when the blob is read.
		for what, data := range map[string][]byte{"text": []byte("not a png"), "30,000 pixels": picture(30_000)} {
			r := m.Tool("give", give(`{"content":[`+part(data)+`]}`))
			kept := keptOf(t, r)
			if len(kept) != 1 || strings.Contains(r.Line, `"image"`) {
				t.Fatalf("%s: %.500s", what, r.Line)
			}
			if r = m.Tool("browser_get_blob", `{"uri":"`+kept[0].URI+`"}`); strings.Contains(r.Line, `"type":"image"`) {
				t.Errorf("%s, read: %.500s", what, r.Line)
			}
		}
		many := `{"content":[` + strings.Repeat(part(picture(3))+",", 30) + part(picture(3)) + `]}`
		if n := strings.Count(m.Tool("give", give(many)).Line, `"type":"image"`); n != 20 {
			t.Errorf("of 31 images there are %d", n)
		}
		sound := `{"content":[{"type":"audio","mimeType":"audio/wav","data":"` + strings.Repeat("AAAA", 1000) + `"}]}`
		if kept := keptOf(t, m.Tool("give", give(sound))); len(kept) != 1 || !strings.HasSuffix(kept[0].URI, ".wav") {
			t.Errorf("a sound: %+v", kept)
		}
		// The results of other children than builtin are as they came, but for these images.
		other := w.MCP(giver(), "--mcp", "builtin", "--mcp", "a="+cmdtest.FakeChild())
		r = other.Tool("give", give(`{"content":[`+part([]byte("not a png"))+`]}`))
		if kept := keptOf(t, r); len(kept) != 1 || strings.Contains(r.Line, `"image"`) {
			t.Errorf("text as an image of a child beside builtin: %.500s", r.Line)
		}
		other.End()
	})
	t.Run("another process", func(t *testing.T) {
		other := w.MCP(giver(), "--mcp", "a="+cmdtest.FakeChild(), "--max-inline", "2KiB")
		if r := other.Call("resources/read", `{"uri":"`+uri+`"}`); r.Error != nil {
			t.Errorf("%s", r.Line)
		}
		other.End()
	})
	m.End()
	w.Clean()
}

// If the disk is full or cannot be written, results are whole, and say why.
func TestBlobsWithoutDisk(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting takes root")
	}
	data := base64.StdEncoding.EncodeToString(make([]byte, 300_000))
	sound := `{"content":[{"type":"audio","mimeType":"audio/wav","data":"` + data + `"}]}`
	for _, one := range []struct {
		name, options string
		flags         uintptr
		want          string
	}{
		{"full", "size=64k", 0, "no space left on device"},
		{"read-only", "", unix.MS_RDONLY, "read-only file system"},
	} {
		t.Run(one.name, func(t *testing.T) {
			w := cmdtest.New(t)
			dir := filepath.Join(w.Dir, "cache", "btools", "blobs")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			options := strings.TrimPrefix(one.options+",mode=0700", ",")
			if err := unix.Mount("tmpfs", dir, "tmpfs", one.flags, options); err != nil {
				t.Skip("cannot mount: ", err)
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			m := w.MCP(giver(), "--mcp", "a="+cmdtest.FakeChild(), "--max-inline", "2KiB")
			m.AwaitTools("give")
			r := m.Tool("give", give(sound))
			items := itemsOf(t, r)
			if len(items) != 2 || !strings.Contains(items[0].Text, one.want) || items[1].Data != data ||
				len(keptOf(t, r)) != 0 {
				t.Errorf("got %d items: %.300s", len(items), r.Line)
			}
			if r := m.Tool("big", `{"n":5000}`); len(keptOf(t, r)) != 1 {
				t.Errorf("a text does not need the disk: %.300s", r.Line)
			}
			m.End()
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if e.Name() != "lock" {
					t.Errorf("%s is left", e.Name())
				}
			}
		})
	}
}
