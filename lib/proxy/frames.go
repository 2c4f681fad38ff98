package proxy

import (
	"encoding/binary"
)

// maxMessage is the size in bytes of the longest message that a frame reader
// puts together. Longer ones are cut there.
const maxMessage = 16 << 20

// frames reads the WebSocket messages of one direction as they pass by. What
// it is given may be cut anywhere. It never fails: after what is no frame it
// finds no more.
type frames struct {
	// message gets each text or binary message, cut at maxMessage; size is
	// how long it was. The bytes are valid until it returns.
	message func(text bool, payload []byte, size int64)

	head    []byte // an incomplete head of a frame
	left    int64  // of the present frame's payload
	mask    [4]byte
	masked  bool
	at      int // in the mask
	control bool
	final   bool
	text    bool
	payload []byte
	size    int64
	broken  bool
}

// Write takes the next bytes.
func (f *frames) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 && !f.broken {
		if f.left == 0 {
			used := f.readHead(b)
			b = b[used:]
			continue
		}
		part := b[:min(int64(len(b)), f.left)]
		b = b[len(part):]
		f.left -= int64(len(part))
		if !f.control {
			f.keep(part)
		}
		if f.left == 0 {
			f.endFrame()
		}
	}
	return n, nil
}

// readHead takes bytes of a frame's head (RFC 6455, 5.2) and returns how
// many.
func (f *frames) readHead(b []byte) int {
	need := 2
	if len(f.head) >= 2 {
		need = headSize(f.head)
	}
	used := min(need-len(f.head), len(b))
	f.head = append(f.head, b[:used]...)
	if len(f.head) < 2 || len(f.head) < headSize(f.head) {
		return used
	}
	h := f.head
	f.final, f.masked, f.at = h[0]&0x80 != 0, h[1]&0x80 != 0, 0
	opcode := h[0] & 0x0f
	f.control = opcode >= 8
	if !f.control && opcode != 0 {
		f.text, f.payload, f.size = opcode == 1, f.payload[:0], 0
	}
	switch n := h[1] & 0x7f; n {
	case 126:
		f.left = int64(binary.BigEndian.Uint16(h[2:]))
	case 127:
		f.left = int64(binary.BigEndian.Uint64(h[2:]))
	default:
		f.left = int64(n)
	}
	if f.masked {
		copy(f.mask[:], h[len(h)-4:])
	}
	f.broken = f.left < 0
	f.head = f.head[:0]
	if f.left == 0 {
		f.endFrame()
	}
	return used
}

// headSize is the length of a head that begins so.
func headSize(h []byte) int {
	n := 2
	switch h[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if h[1]&0x80 != 0 {
		n += 4
	}
	return n
}

// keep adds a part of the payload to the message.
func (f *frames) keep(part []byte) {
	f.size += int64(len(part))
	part = part[:min(len(part), maxMessage-len(f.payload))]
	from := len(f.payload)
	f.payload = append(f.payload, part...)
	if f.masked {
		for i := range f.payload[from:] {
			f.payload[from+i] ^= f.mask[(f.at+i)&3]
		}
		f.at = (f.at + len(part)) & 3
	}
}

func (f *frames) endFrame() {
	if f.control || !f.final {
		return
	}
	f.message(f.text, f.payload, f.size)
	if cap(f.payload) > 1<<20 {
		f.payload = nil // a rare long one is not kept for
	}
	f.payload = f.payload[:0]
}
