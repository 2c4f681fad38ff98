package blobs

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"testing"
)

// What models take as an image is told by its header.
func TestImageType(t *testing.T) {
	drawn := func(encode func(io.Writer, image.Image) error, width, height int) []byte {
		var b bytes.Buffer
		if err := encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	asJPEG := func(w io.Writer, m image.Image) error { return jpeg.Encode(w, m, nil) }
	asGIF := func(w io.Writer, m image.Image) error { return gif.Encode(w, m, nil) }
	webp := func(text string) []byte {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	lossless := webp("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
	for _, c := range []struct {
		what string
		data []byte
		want string
	}{
		{"a PNG", drawn(png.Encode, 3, 5), "image/png"},
		{"a JPEG", drawn(asJPEG, 3, 5), "image/jpeg"},
		{"a GIF", drawn(asGIF, 3, 5), "image/gif"},
		{"a WebP without loss", append(lossless, make([]byte, 8)...), "image/webp"},
		{"a WebP with loss", webp("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA"), "image/webp"},
		{"the largest", drawn(png.Encode, MaxSide, 1), "image/png"},
		{"one that is too wide", drawn(png.Encode, MaxSide+1, 1), ""},
		{"one that is too high", drawn(asJPEG, 1, MaxSide+1), ""},
		{"text", []byte("not a png"), ""},
		{"a magic number alone", []byte("\x89PNG\r\n\x1a\n"), ""},
		{"a BMP", append([]byte("BM"), make([]byte, 60)...), ""},
		{"nothing", nil, ""},
	} {
		if got := ImageType(c.data); got != c.want {
			t.Errorf("%s is %q, want %q", c.what, got, c.want)
		}
	}
}

func FuzzImageType(f *testing.F) {
	f.Add([]byte("RIFF\x00\x00\x00\x00WEBPVP8X"))
	f.Fuzz(func(t *testing.T, data []byte) { ImageType(data) })
}
