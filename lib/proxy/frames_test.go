package proxy

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// frame makes one frame.
func frame(final bool, opcode byte, payload []byte, masked bool) []byte {
	b := []byte{opcode, 0}
	if final {
		b[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if !masked {
		return append(b, payload...)
	}
	mask := [4]byte{1, 200, 3, 77}
	b[1] |= 0x80
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i&3])
	}
	return b
}

// Messages are assembled however the bytes are split.
func TestFrames(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("0123456789"), 7000)
	want := []string{"a", "", "in three parts", string(long), string(long[:200])}
	for _, masked := range []bool{false, true} {
		stream := slices.Concat(
			frame(true, 1, []byte("a"), masked), frame(true, 9, []byte("ping"), masked), frame(true, 2, nil, masked),
			frame(false, 1, []byte("in "), masked), frame(true, 10, nil, masked),
			frame(false, 0, []byte("three"), masked), frame(true, 0, []byte(" parts"), masked),
			frame(true, 1, long, masked), frame(true, 1, long[:200], masked), frame(true, 8, []byte{3, 232}, masked))
		for range 20 {
			var got []string
			f := &frameReader{message: func(_ bool, p []byte, size int64) {
				if int(size) != len(p) {
					t.Errorf("size %d of %d", size, len(p))
				}
				got = append(got, string(p))
			}}
			for rest := stream; len(rest) > 0; {
				n := min(1+rand.IntN(50), len(rest))
				if rand.IntN(9) == 0 {
					n = min(rand.IntN(50000)+1, len(rest))
				}
				f.Write(rest[:n])
				rest = rest[n:]
			}
			if !slices.Equal(got, want) || !f.closed {
				t.Fatalf("got %d messages, closed %v", len(got), f.closed)
			}
		}
	}
	var got string
	(&frameReader{message: func(_ bool, p []byte, _ int64) { got = string(p) }}).Write(textFrame("hello"))
	if got != "hello" {
		t.Errorf("%q", got)
	}
}

// A client's frames pass unchanged, up to the close frame; a frame that has
// begun is completed.
func TestGate(t *testing.T) {
	t.Parallel()
	first, second := frame(true, 1, []byte("first"), true), frame(true, 1, bytes.Repeat([]byte("x"), 300), true)
	var to bytes.Buffer
	g := &frameWriter{to: &to}
	for _, b := range slices.Concat(first, second) {
		if _, err := g.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(to.Bytes(), slices.Concat(first, second)) {
		t.Error("changed")
	}
	if _, err := g.Write(append(bytes.Clone(first), frame(true, 8, nil, true)...)); err == nil ||
		!bytes.HasSuffix(to.Bytes(), first) {
		t.Errorf("%v, % x", err, to.Bytes())
	}
	to.Reset()
	g = &frameWriter{to: &to}
	g.Write(second[:100])
	if len(g.frames.payload) != 0 {
		t.Error("it keeps what nobody reads")
	}
	if err := g.finishFrame(); err != nil || to.Len() != len(second) {
		t.Errorf("%v, %d of %d", err, to.Len(), len(second))
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(frame(true, 1, []byte("a"), true))
	f.Add(frame(false, 2, bytes.Repeat([]byte("b"), 200), false))
	f.Fuzz(func(t *testing.T, b []byte) {
		kept := 0
		r := &frameReader{message: func(_ bool, p []byte, size int64) {
			if kept += len(p); int64(len(p)) > size || kept > len(b) {
				t.Errorf("%d of %d, %d in all", len(p), size, kept)
			}
		}}
		r.Write(b)
		(&frameWriter{to: &bytes.Buffer{}}).Write(b) // must not panic
	})
}
