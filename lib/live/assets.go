package live

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"btools/lib/front"
)

//go:embed assets
var embedded embed.FS

// asset is a file of the page, as it is sent.
type asset struct {
	plain, zipped []byte
	kind, tag     string
}

// kinds are the types of files, whatever the system's table says.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8"}

// comment is a line that is for readers of the source: a tenth of the page.
var comment = regexp.MustCompile(`(?m)^\s*// .*\n`)

// assets returns the files of the page by their paths.
var assets = sync.OnceValue(func() map[string]*asset {
	all := map[string]*asset{}
	fs.WalkDir(embedded, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".js" && path.Dir(name) == "assets" { // not what others wrote
			b = comment.ReplaceAll(b, nil)
		}
		var zipped bytes.Buffer
		z, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		z.Write(b)
		z.Close()
		kind, ok := kinds[path.Ext(name)]
		if !ok {
			return nil // it is for readers of the source
		}
		all[strings.TrimPrefix(name, "assets")] = &asset{b, zipped.Bytes(), kind, fmt.Sprintf(`"%x"`, sha256.Sum256(b))}
		return nil
	})
	all["/"] = all["/index.html"]
	return all
})

// policy is what the page may load and do: its own files and WebSockets, and pictures that it has made.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
	"trusted-types 'none'"

// serveAsset answers with a file of the page.
func serveAsset(w *front.Response, r *http.Request) error {
	a := assets()[r.URL.Path]
	if a == nil {
		return front.NoPath(r)
	}
	h := w.Header()
	for name, value := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
		"Content-Type": a.kind, "ETag": a.tag, "Vary": "Accept-Encoding"} {
		h.Set(name, value)
	}
	if r.Header.Get("If-None-Match") == a.tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	body := a.plain
	if front.HasToken(r.Header, "Accept-Encoding", "gzip") {
		body = a.zipped
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		w.Write(body)
	}
	return nil
}
