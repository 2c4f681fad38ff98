package tools

import (
	"context"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/html/charset"

	"btools/lib/blobs"
	"btools/lib/browse"
)

// methods are those that servers take. The browser itself has more, for proxies.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// forBrowsers are headers of a response that tell an agent nothing.
var forBrowsers = []string{"Set-Cookie", "Content-Security-Policy", "Content-Security-Policy-Report-Only", "Report-To",
	"Reporting-Endpoints", "Nel", "Permissions-Policy", "Strict-Transport-Security", "Alt-Svc"}

func fetch(ctx context.Context, r *reply, a struct {
	URL, Method, Body string
	Headers           map[string]string
	Timeout           *float64
}) error {
	method := strings.ToUpper(a.Method)
	switch {
	case method == "":
		method = "GET"
	case !slices.Contains(methods, method):
		return fmt.Errorf("method must be one of %s, not %q", strings.Join(methods, ", "), a.Method)
	}
	if a.Body != "" && (method == "GET" || method == "HEAD") {
		return fmt.Errorf("a %s request has no body: method is POST, PUT or PATCH for one", method)
	}
	timeout := r.server.patience(a.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("there was no answer within %v", timeout))
	defer cancel()
	free, err := r.server.takeAside(ctx)
	if err != nil {
		return err
	}
	defer free()
	b, err := r.server.chromium(ctx)
	if err != nil {
		return err
	}
	got, err := b.Fetch(ctx, a.URL, browse.FetchOptions{Method: method, Headers: a.Headers, Body: a.Body})
	if err != nil {
		return err
	}
	r.say("- Status: %d %s", got.Status, oneLine(got.StatusText))
	if got.URL != a.URL {
		r.say("- URL: %s", address(got.URL))
	}
	if got.Cut && r.form.Value {
		return fmt.Errorf("the body has more than the %d bytes that are read of it", len(got.Body))
	}
	r.response(got)
	return nil
}

// response shows headers and body.
func (r *reply) response(got *browse.Response) {
	var lines []string
	contentType := ""
	for _, h := range got.Headers {
		if strings.EqualFold(h.Name, "Content-Type") {
			contentType = h.Value
		}
		if !slices.Contains(forBrowsers, http.CanonicalHeaderKey(h.Name)) {
			lines = append(lines, strings.ToLower(h.Name)+": "+oneLine(h.Value))
		}
	}
	if lines != nil {
		r.say("- Headers:")
		r.say("%s", fenced("", strings.Join(lines, "\n")))
	}
	if got.Cut {
		r.say("The body is longer: these are its first %d bytes.", len(got.Body))
	}
	r.value = new(string(got.Body))
	kind, _, _ := mime.ParseMediaType(contentType)
	text := asText(got.Body, contentType)
	if got.Cut { // perhaps within a character
		text = strings.ToValidUTF8(text, "")
	}
	switch {
	case len(got.Body) == 0:
		r.say("The body is empty.")
	case isText([]byte(text)):
		r.say("%s", fenced(language(kind), text))
	case !got.Cut && blobs.ImageType(got.Body) != "" && !r.server.NoImages:
		r.image(got.Body, blobs.ImageType(got.Body))
	default:
		if kind == "" {
			kind = "application/octet-stream"
		}
		r.say("The body is binary, %d bytes.", len(got.Body))
		r.data(got.Body, kind, got.URL)
	}
}

// asText is a body in UTF-8, if its type names another encoding.
func asText(body []byte, contentType string) string {
	if !strings.Contains(strings.ToLower(contentType), "charset") {
		return string(body)
	}
	in, err := charset.NewReader(strings.NewReader(string(body)), contentType)
	if err != nil {
		return string(body)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return string(body)
	}
	return string(b)
}

func language(kind string) string {
	for _, l := range []string{"json", "html", "xml", "javascript", "css", "csv"} {
		if strings.Contains(kind, l) {
			return l
		}
	}
	return ""
}
