package blobs

import (
	"bytes"
	"encoding/binary"
	"image"
	_ "image/gif" // their headers are read
	_ "image/jpeg"
	_ "image/png"
)

// MaxSide bounds the sides of an image, in pixels: models refuse a request with a larger one, and all that follow it.
const MaxSide = 8000

// ImageType returns the MIME type of an image that models take, by its header and not by what somebody says of it; ""
// if it is not one, or is too large.
func ImageType(data []byte) string {
	kind, width, height := "webp", 0, 0
	if is, as, err := image.DecodeConfig(bytes.NewReader(data)); err == nil {
		kind, width, height = as, is.Width, is.Height
	} else {
		width, height = webpSize(data)
	}
	if width < 1 || height < 1 || width > MaxSide || height > MaxSide {
		return ""
	}
	return "image/" + kind
}

// webpSize returns the size of a WebP image, 0 if it is not one. The header is that of the container and of its first
// chunk, in one of three forms.
func webpSize(b []byte) (width, height int) {
	if len(b) < 30 || string(b[:4]) != "RIFF" || string(b[8:12]) != "WEBP" {
		return 0, 0
	}
	switch p := b[20:]; string(b[12:16]) {
	case "VP8X":
		at := func(i int) int { return int(p[i]) | int(p[i+1])<<8 | int(p[i+2])<<16 }
		return at(4) + 1, at(7) + 1
	case "VP8L":
		bits := binary.LittleEndian.Uint32(p[1:])
		if p[0] == 0x2f {
			return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1
		}
	case "VP8 ":
		if string(p[3:6]) == "\x9d\x01\x2a" {
			return int(binary.LittleEndian.Uint16(p[6:]) & 0x3fff), int(binary.LittleEndian.Uint16(p[8:]) & 0x3fff)
		}
	}
	return 0, 0
}
