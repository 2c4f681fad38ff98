// Package relay relays HTTP and WebSockets to the endpoint of a browser that has another address for its clients, and
// writes their address into the answers of DevTools.
package relay

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"btools/lib/front"
)

// Endpoint is where requests are relayed to.
type Endpoint struct {
	URL    *url.URL          // of the endpoint
	Public string            // URL of the endpoint for clients
	Via    http.RoundTripper // nil: http.DefaultTransport
}

// Serve relays a request for a path below the endpoint. An error means that the endpoint did not answer, and nothing
// has been written.
func (e *Endpoint) Serve(w *front.Response, r *http.Request, path string) error {
	conn := http.NewResponseController(w)
	conn.SetReadDeadline(time.Time{})
	conn.SetWriteDeadline(time.Time{}) // of a download
	var failed error
	proxy := &httputil.ReverseProxy{
		Transport: e.Via,
		Rewrite: func(p *httputil.ProxyRequest) {
			to := *e.URL
			to.Path += path
			to.RawQuery = p.In.URL.RawQuery
			p.Out.URL, p.Out.Host = &to, to.Host
			for _, h := range []string{"Origin", "Referer", "Authorization", "Accept-Encoding"} {
				p.Out.Header.Del(h)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if strings.HasPrefix(path, "/json") && resp.StatusCode == http.StatusOK {
				return readdress(resp, e.URL.String(), e.Public)
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
	}
	proxy.ServeHTTP(w, r)
	return failed
}

// Socket returns the address of a WebSocket for one of HTTP.
func Socket(address string) string { return "ws" + strings.TrimPrefix(address, "http") }

// readdress replaces one address by another in an answer of DevTools.
func readdress(resp *http.Response, from, to string) error {
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return err
	}
	b = bytes.ReplaceAll(b, []byte(Socket(from)), []byte(Socket(to)))
	// Front ends have the scheme as the name of a parameter: ?ws=HOST/PATH.
	b = bytes.ReplaceAll(b, []byte(parameter(from)), []byte(parameter(to)))
	_, bare, _ := strings.Cut(to, "://")
	_, below, _ := strings.Cut(bare, "/")
	_, bare, _ = strings.Cut(from, "://")
	_, was, _ := strings.Cut(bare, "/")
	const frontEnd = `"devtoolsFrontendUrl": "/` // Chrome's own, without a host
	b = bytes.ReplaceAll(b, []byte(frontEnd+slash(was)), []byte(frontEnd+slash(below)))
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	resp.Header.Set("Content-Length", strconv.Itoa(len(b)))
	return nil
}

// parameter returns an address as the parameter of a front end.
func parameter(address string) string { return strings.Replace(Socket(address), "://", "=", 1) }

// slash ends a path that is not empty with a slash.
func slash(path string) string {
	if path == "" {
		return ""
	}
	return path + "/"
}
