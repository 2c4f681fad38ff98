//go:build linux

package cmd_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Data is kept on disk: it is a resource, and browser_get_blob reads it. Images
// that a model takes stay.
func TestBlobs(t *testing.T) {
	w := newWorld(t)
	m := w.mcp(giver(), "--mcp", "a="+fake(), "--max-inline", "2KiB")
	m.lists("give", "browser_get_blob")
	data := bytes.Repeat([]byte("%PDF-\x00\xff"), 1000)
	pdf := fmt.Sprintf(`{"content":[{"type":"text","text":"saved"},{"type":"resource","resource":`+
		`{"uri":"file:///x.pdf","mimeType":"application/pdf","blob":%q}}]}`, base64.StdEncoding.EncodeToString(data))
	r := m.tool("give", give(pdf))
	kept, items := r.kept(t), r.items(t)
	if len(kept) != 1 || kept[0].Type != "application/pdf" || kept[0].SizeKB != 6.8 || kept[0].Expires == "" ||
		!regexp.MustCompile(`^blob://[0-9a-f]{64}\.pdf$`).MatchString(kept[0].URI) {
		t.Fatalf("got %+v: %.500s", kept, r.line)
	}
	uri := kept[0].URI
	if len(items) != 3 || items[0].Text != "saved" || items[1].Type != "resource_link" || items[1].URI != uri ||
		!strings.Contains(items[2].Text, uri) || !strings.Contains(items[2].Text, "_size_kb: 6.8") {
		t.Errorf("got %+v", items)
	}
	if st, err := os.Stat(w.dir + "/cache/btools/blobs/" + strings.TrimPrefix(uri, "blob://")); err != nil ||
		st.Mode().Perm() != 0o600 || st.Size() != int64(len(data)) {
		t.Errorf("the file: %v, %v", st, err)
	}

	t.Run("resource", func(t *testing.T) {
		var x struct {
			Contents []struct{ URI, MIMEType, Blob string }
		}
		m.call("resources/read", `{"uri":"`+uri+`"}`).into(t, &x)
		if got, _ := base64.StdEncoding.DecodeString(x.Contents[0].Blob); !bytes.Equal(got, data) ||
			x.Contents[0].MIMEType != "application/pdf" || x.Contents[0].URI != uri {
			t.Errorf("resources/read gives %d bytes of %s", len(got), x.Contents[0].MIMEType)
		}
		if r := m.call("resources/list", "{}"); !strings.Contains(r.line, uri) ||
			!strings.Contains(r.line, "fake://a") {
			t.Errorf("resources/list: %s", r.line)
		}
		if r := m.call("resources/templates/list", "{}"); !strings.Contains(r.line, "blob://{sha256}.{ext}") {
			t.Errorf("resources/templates/list: %s", r.line)
		}
		none := "blob://" + strings.Repeat("0", 64) + ".pdf"
		if r := m.call("resources/read", `{"uri":"`+none+`"}`); r.Error == nil || r.Error.Code != -32002 {
			t.Errorf("a blob that is not there: %s", r.line)
		}
		if r := m.call("resources/read", `{"uri":"fake://a"}`); !strings.Contains(r.line, "the text") {
			t.Errorf("a resource of the child: %s", r.line)
		}
	})
	t.Run("tool", func(t *testing.T) {
		var got []byte
		for len(got) < len(data) {
			args := fmt.Sprintf(`{"uri":%q,"offset":%d,"limit":3000}`, uri, len(got))
			items := m.tool("browser_get_blob", args).items(t)
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
			if x := m.tool("browser_get_blob", args).tool(t); !x.IsError || !strings.Contains(x.text(), want) {
				t.Errorf("%s: %s, want %q", args, x.text(), want)
			}
		}
	})
	t.Run("images", func(t *testing.T) {
		image := func(size int) string {
			return fmt.Sprintf(`{"content":[{"type":"image","mimeType":"image/png","data":%q}]}`,
				base64.StdEncoding.EncodeToString(make([]byte, size)))
		}
		if items := m.tool("give", give(image(100_000))).items(t); len(items) != 1 || items[0].Type != "image" {
			t.Errorf("an image of 100 kB is not in its place: %d items", len(items))
		}
		r := m.tool("give", give(image(4_000_000)))
		if kept := r.kept(t); len(kept) != 1 || kept[0].Type != "image/png" || len(r.line) > 2000 {
			t.Errorf("an image of 4 MB: %.500s", r.line)
		}
		sound := `{"content":[{"type":"audio","mimeType":"audio/wav","data":"` + strings.Repeat("AAAA", 1000) + `"}]}`
		if kept := m.tool("give", give(sound)).kept(t); len(kept) != 1 || !strings.HasSuffix(kept[0].URI, ".wav") {
			t.Errorf("a sound: %+v", kept)
		}
	})
	t.Run("another process", func(t *testing.T) {
		other := w.mcp(giver(), "--mcp", "a="+fake(), "--max-inline", "2KiB")
		if r := other.call("resources/read", `{"uri":"`+uri+`"}`); r.Error != nil {
			t.Errorf("%s", r.line)
		}
		other.end()
	})
	m.end()
	w.clean()
}

// If the disk is full or cannot be written, results are whole, and say why.
func TestBlobsWithoutDisk(t *testing.T) {
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
			w := newWorld(t)
			dir := filepath.Join(w.dir, "cache", "btools", "blobs")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			options := strings.TrimPrefix(one.options+",mode=0700", ",")
			if err := unix.Mount("tmpfs", dir, "tmpfs", one.flags, options); err != nil {
				t.Skip("cannot mount: ", err)
			}
			defer unix.Unmount(dir, unix.MNT_DETACH)
			m := w.mcp(giver(), "--mcp", "a="+fake(), "--max-inline", "2KiB")
			m.lists("give")
			r := m.tool("give", give(sound))
			items := r.items(t)
			if len(items) != 2 || !strings.Contains(items[0].Text, one.want) || items[1].Data != data ||
				len(r.kept(t)) != 0 {
				t.Errorf("got %d items: %.300s", len(items), r.line)
			}
			if r := m.tool("big", `{"n":5000}`); len(r.kept(t)) != 1 {
				t.Errorf("a text does not need the disk: %.300s", r.line)
			}
			m.end()
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if e.Name() != "lock" {
					t.Errorf("%s is left", e.Name())
				}
			}
		})
	}
}
