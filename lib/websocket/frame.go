package websocket

import (
	"crypto/subtle"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
)

// Opcodes of frames (RFC 6455, 5.2).
const (
	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10
)

const (
	maxHead    = 14  // bytes of the longest head
	maxControl = 125 // bytes of the payload of a control frame
)

// head is the beginning of a frame.
type head struct {
	final  bool
	opcode byte
	masked bool
	key    uint32 // the mask, little-endian
	size   int64  // of the payload
}

func (h head) control() bool { return h.opcode >= opClose }

// parseHead parses the head at the start of b and returns its length, or 0 if b
// is too short. It reports errors as early as they can be seen.
func parseHead(b []byte, masked bool) (h head, n int, err *ProtocolError) {
	if len(b) < 2 {
		return h, 0, nil
	}
	h = head{final: b[0]&0x80 != 0, opcode: b[0] & 0x0f, masked: b[1]&0x80 != 0, size: int64(b[1] & 0x7f)}
	switch {
	case b[0]&0x70 != 0:
		return h, 0, broken("a frame has reserved bits set")
	case h.opcode > opBinary && h.opcode < opClose, h.opcode > opPong:
		return h, 0, broken("a frame has an unknown opcode")
	case h.control() && !h.final:
		return h, 0, broken("a control frame is fragmented")
	case h.control() && h.size > maxControl:
		return h, 0, broken("a control frame is longer than 125 bytes")
	case h.masked && !masked:
		return h, 0, broken("a server's frame is masked")
	case masked && !h.masked:
		return h, 0, broken("a client's frame is not masked")
	}
	n = 2
	switch h.size {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if len(b) < n {
		return h, 0, nil
	}
	switch n {
	case 4:
		if h.size = int64(binary.BigEndian.Uint16(b[2:])); h.size < 126 {
			return h, 0, broken("a frame's length is not in its shortest form")
		}
	case 10:
		if h.size = int64(binary.BigEndian.Uint64(b[2:])); h.size < 0 {
			return h, 0, broken("a frame's length has its highest bit set")
		} else if h.size < 1<<16 {
			return h, 0, broken("a frame's length is not in its shortest form")
		}
	}
	if masked {
		if len(b) < n+4 {
			return h, 0, nil
		}
		h.key = binary.LittleEndian.Uint32(b[n:])
		n += 4
	}
	return h, n, nil
}

func broken(reason string) *ProtocolError { return &ProtocolError{ProtocolBroken, reason} }

// appendHead is the counterpart of parseHead.
func appendHead(b []byte, h head) []byte {
	first, second := h.opcode, byte(0)
	if h.final {
		first |= 0x80
	}
	if h.masked {
		second = 0x80
	}
	switch {
	case h.size < 126:
		b = append(b, first, second|byte(h.size))
	case h.size < 1<<16:
		b = append(b, first, second|126)
		b = binary.BigEndian.AppendUint16(b, uint16(h.size))
	default:
		b = append(b, first, second|127)
		b = binary.BigEndian.AppendUint64(b, uint64(h.size))
	}
	if h.masked {
		b = binary.LittleEndian.AppendUint32(b, h.key)
	}
	return b
}

// newKey returns a mask for one frame. It need not be secret: masks keep a
// page's script from choosing the bytes that a proxy on the way sees, and there
// is none on the way to a browser on the same machine. It is never 0, because
// Firefox then closes the connection.
func newKey() uint32 {
	for {
		if k := rand.Uint32(); k != 0 {
			return k
		}
	}
}

// mask masks or unmasks b in place, and returns the key for the bytes that
// follow.
func mask(b []byte, key uint32) uint32 {
	next := bits.RotateLeft32(key, -8*(len(b)&3))
	if len(b) >= 2048 {
		// XORBytes is fast with a block of repeated keys.
		var block [1024]byte
		double := uint64(key)<<32 | uint64(key)
		keys := block[:min(len(block), len(b))]
		for i := 0; i+8 <= len(keys); i += 8 {
			binary.LittleEndian.PutUint64(keys[i:], double)
		}
		keys = keys[:len(keys)&^7]
		for len(b) >= len(keys) {
			subtle.XORBytes(b, b, keys)
			b = b[len(keys):]
		}
	}
	double := uint64(key)<<32 | uint64(key)
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^double)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= byte(key >> (8 * i & 31))
	}
	return next
}
