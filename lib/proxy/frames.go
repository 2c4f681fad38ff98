package proxy

import "encoding/binary"

// maxMessage is the size in bytes up to which a frame reader assembles
// messages. Longer ones are truncated.
const maxMessage = 16 << 20

// closeFrame is the opcode of a close frame (RFC 6455, 5.2).
const closeFrame = 8

// frameReader reads the WebSocket messages of one direction as they pass by.
// Its input may be split anywhere. It never fails: after an invalid frame it
// finds no more messages.
type frameReader struct {
	// message gets each text or binary message, truncated to maxMessage; size
	// is its full length. The bytes are valid until it returns. If it is nil,
	// messages are not assembled.
	message func(text bool, payload []byte, size int64)

	head      []byte // an incomplete head of a frame
	opcode    byte   // of the present frame
	remaining int64  // of its payload
	final     bool
	open      bool // a message is not complete: more fragments follow
	masked    bool
	mask      [4]byte
	maskPos   int // in the mask
	text      bool
	payload   []byte // of the message so far
	size      int64
	closed    bool // a frame that closes has come
	status    int  // of that, as far as it is unmasked: 1000 is a normal one
	reason    int  // bytes of it that have come
	broken    bool
}

// Write takes the next bytes.
func (f *frameReader) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		used, _ := f.step(b)
		b = b[used:]
	}
	return n, nil
}

// step consumes bytes of one head or of one payload. It returns their number,
// and whether they completed a head.
func (f *frameReader) step(b []byte) (used int, head bool) {
	if f.broken {
		return len(b), false
	}
	if f.remaining == 0 {
		return f.readHead(b)
	}
	part := b[:min(int64(len(b)), f.remaining)]
	f.remaining -= int64(len(part))
	switch {
	case f.opcode < closeFrame:
		if f.message != nil {
			f.appendPayload(part)
		}
	case f.opcode == closeFrame:
		for _, c := range part[:min(len(part), max(0, 2-f.reason))] {
			f.status = f.status<<8 | int(c)
		}
		f.reason += len(part)
	}
	if f.remaining == 0 {
		f.endFrame()
	}
	return len(part), false
}

// readHead consumes bytes of a frame's head (RFC 6455, 5.2).
func (f *frameReader) readHead(b []byte) (used int, complete bool) {
	need := 2
	if len(f.head) >= 2 {
		need = headSize(f.head)
	}
	used = min(need-len(f.head), len(b))
	f.head = append(f.head, b[:used]...)
	if len(f.head) < 2 || len(f.head) < headSize(f.head) {
		return used, false
	}
	h := f.head
	f.head = f.head[:0]
	f.final, f.opcode, f.masked, f.maskPos = h[0]&0x80 != 0, h[0]&0x0f, h[1]&0x80 != 0, 0
	if f.opcode == 1 || f.opcode == 2 {
		f.text, f.payload, f.size = f.opcode == 1, f.payload[:0], 0
	}
	switch n := h[1] & 0x7f; n {
	case 126:
		f.remaining = int64(binary.BigEndian.Uint16(h[2:]))
	case 127:
		f.remaining = int64(binary.BigEndian.Uint64(h[2:]))
	default:
		f.remaining = int64(n)
	}
	if f.masked {
		copy(f.mask[:], h[len(h)-4:])
	}
	f.closed = f.closed || f.opcode == closeFrame
	f.broken = f.remaining < 0
	if f.remaining == 0 {
		f.endFrame()
	}
	return used, true
}

// headSize returns the length of a head, given its first two bytes.
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

// appendPayload adds a part of the payload to the message.
func (f *frameReader) appendPayload(part []byte) {
	f.size += int64(len(part))
	kept := part[:min(len(part), maxMessage-len(f.payload))]
	from := len(f.payload)
	f.payload = append(f.payload, kept...)
	if f.masked {
		for i := range f.payload[from:] {
			f.payload[from+i] ^= f.mask[(f.maskPos+i)&3]
		}
		f.maskPos = (f.maskPos + len(part)) & 3
	}
}

func (f *frameReader) endFrame() {
	if f.opcode >= closeFrame {
		return
	}
	if f.open = !f.final; f.open {
		return
	}
	if f.message != nil {
		f.message(f.text, f.payload, f.size)
	}
	if cap(f.payload) > 1<<20 {
		f.payload = nil // a rare long one is not kept for
	}
	f.payload = f.payload[:0]
}

// textFrame returns a message in one frame, as a client sends it.
func textFrame(message string) []byte { return clientFrame(0x81, message) }

// lastFragment returns an empty last fragment of a message.
func lastFragment() []byte { return clientFrame(0x80, "") }

func clientFrame(first byte, message string) []byte {
	if len(message) > 125 {
		panic("proxy: no short message: " + message)
	}
	mask := [4]byte{1, 2, 3, 4} // not of zeros: Firefox hangs up then
	b := append([]byte{first, 0x80 | byte(len(message))}, mask[:]...)
	for i := range len(message) {
		b = append(b, message[i]^mask[i&3])
	}
	return b
}
