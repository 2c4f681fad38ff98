package child

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"testing/iotest"
)

// Events are the same, however the bytes of a stream arrive.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\nretry: 5\ndata: a\ndata: b\n\n: comment\n\ndata\n\nevent: x\r\ndata:c\r\n\r\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		read := func(in io.Reader) string {
			var e events
			var all []string
			e.read(in, func(data []byte) { all = append(all, string(data)) })
			return fmt.Sprintf("%q %+v", all, e)
		}
		if a, b := read(bytes.NewReader(stream)), read(iotest.OneByteReader(bytes.NewReader(stream))); a != b {
			t.Errorf("%s\nand %s", a, b)
		}
	})
}
