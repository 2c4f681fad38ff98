package blobs

import "strings"

// types are the MIME types that have an extension of their own.
var types = []struct{ ext, mime string }{
	{"bin", "application/octet-stream"},
	{"csv", "text/csv"},
	{"gif", "image/gif"},
	{"html", "text/html"},
	{"jpg", "image/jpeg"},
	{"json", "application/json"},
	{"md", "text/markdown"},
	{"mp3", "audio/mpeg"},
	{"mp4", "video/mp4"},
	{"pdf", "application/pdf"},
	{"png", "image/png"},
	{"svg", "image/svg+xml"},
	{"txt", "text/plain"},
	{"wav", "audio/wav"},
	{"webm", "video/webm"},
	{"webp", "image/webp"},
	{"xml", "application/xml"},
	{"zip", "application/zip"},
}

// ExtOf is the extension for a MIME type: "bin" if it has none here.
func ExtOf(mimeType string) string {
	mimeType, _, _ = strings.Cut(mimeType, ";")
	mimeType = strings.ToLower(strings.TrimSpace(mimeType))
	for _, t := range types {
		if t.mime == mimeType {
			return t.ext
		}
	}
	return "bin"
}

// TypeOf is the MIME type that an extension stands for.
func TypeOf(ext string) string {
	for _, t := range types {
		if t.ext == ext {
			return t.mime
		}
	}
	return "application/octet-stream"
}

// IsText reports whether data of a MIME type is text.
func IsText(mimeType string) bool {
	return strings.HasPrefix(mimeType, "text/") || mimeType == "application/json" || mimeType == "application/xml" ||
		mimeType == "image/svg+xml"
}
