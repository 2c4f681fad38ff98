// Package devtools speaks to a browser's debugging endpoint.
package devtools

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Version is what /json/version tells of a browser.
type Version struct {
	Browser string `json:"Browser"` // such as Chrome/156.0.8078.73
	WSURL   string `json:"webSocketDebuggerUrl"`
}

// maxBody bounds an answer, in bytes: the real one has about 400.
const maxBody = 64 << 10

// GetVersion asks the endpoint at a host:port for its version. It speaks the
// few lines of HTTP itself: net/http would be half of a supervisor's memory.
func GetVersion(ctx context.Context, addr string) (*Version, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	_, err = fmt.Fprintf(conn, "GET /json/version HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", addr)
	if err != nil {
		return nil, err
	}
	v, err := readVersion(conn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return v, nil
}

// readVersion reads the answer to a request for /json/version.
func readVersion(in io.Reader) (*Version, error) {
	limited := bufio.NewReader(io.LimitReader(in, maxBody))
	text := textproto.NewReader(limited)
	status, err := text.ReadLine()
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	if f := strings.Fields(status); len(f) < 2 || f[1] != "200" {
		return nil, fmt.Errorf("it answered %q", status)
	}
	head, err := text.ReadMIMEHeader()
	if err != nil {
		return nil, fmt.Errorf("it answered with a bad head: %w", err)
	}
	// An answer without a length ends with the connection.
	body := io.Reader(limited)
	if n, err := strconv.ParseInt(head.Get("Content-Length"), 10, 64); err == nil {
		body = io.LimitReader(limited, n)
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	v := &Version{}
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("no debugging endpoint: %w", err)
	}
	return v, nil
}

// AskNewPage asks the endpoint at a host:port for a page with the URL, and
// returns once the request is sent; done gets what became of it. The browser
// takes requests in their order, so that one sent later finds the page.
func AskNewPage(ctx context.Context, addr, page string) (done <-chan error, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(conn, "PUT /json/new?%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n"+
		"Connection: close\r\n\r\n", url.PathEscape(page), addr)
	if err != nil {
		conn.Close()
		return nil, err
	}
	answered := make(chan error, 1)
	go func() {
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
		status, err := textproto.NewReader(bufio.NewReader(io.LimitReader(conn, maxBody))).ReadLine()
		if f := strings.Fields(status); err == nil && (len(f) < 2 || f[1] != "200") {
			err = fmt.Errorf("%s answered %q", addr, status)
		}
		answered <- err
	}()
	return answered, nil
}
