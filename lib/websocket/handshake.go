package websocket

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxAnswer bounds how many bytes of the answer to an upgrade are read.
const maxAnswer = 64 << 10

// Accept answers a request to upgrade to a WebSocket, without extensions and
// subprotocol, and takes over its connection. If it refuses a request, it has
// answered it. It does not check the Origin or the Host: the caller does.
func Accept(w http.ResponseWriter, r *http.Request) (*Conn, error) {
	if code, why := refusal(r); code != 0 {
		switch code {
		case http.StatusMethodNotAllowed:
			w.Header().Set("Allow", http.MethodGet)
		case http.StatusUpgradeRequired:
			w.Header().Set("Upgrade", "websocket")
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Sec-WebSocket-Version", "13")
		}
		http.Error(w, why, code)
		return nil, fmt.Errorf("cannot accept a WebSocket: %s", why)
	}
	raw, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "this connection can't become a WebSocket", http.StatusNotImplemented)
		return nil, fmt.Errorf("cannot accept a WebSocket: %w", err)
	}
	raw.SetDeadline(time.Time{})
	early, _ := both.Reader.Peek(both.Reader.Buffered())
	c := New(raw, false, early)
	_, err = fmt.Fprintf(raw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: %s\r\n\r\n", acceptKey(r.Header.Get("Sec-WebSocket-Key")))
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("cannot accept a WebSocket: %w", err)
	}
	return c, nil
}

// refusal returns the status and the reason for refusing a request; 0 if the
// request is a valid upgrade.
func refusal(r *http.Request) (code int, why string) {
	key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key"))
	switch {
	case r.Method != http.MethodGet:
		return http.StatusMethodNotAllowed, "a WebSocket must be requested with GET"
	case !r.ProtoAtLeast(1, 1) || !hasToken(r.Header, "Upgrade", "websocket"):
		return http.StatusUpgradeRequired, "this address is a WebSocket: the request must have Upgrade: websocket"
	case !hasToken(r.Header, "Connection", "Upgrade"):
		return http.StatusUpgradeRequired, "this address is a WebSocket: the request must have Connection: Upgrade"
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return http.StatusUpgradeRequired, "only WebSocket version 13 is supported"
	case err != nil || len(key) != 16 || len(r.Header.Values("Sec-WebSocket-Key")) != 1:
		return http.StatusBadRequest, "Sec-WebSocket-Key must be 16 bytes in base64"
	}
	return 0, ""
}

// hasToken reports whether a header lists a token.
func hasToken(h http.Header, name, token string) bool {
	for _, v := range h.Values(name) {
		for t := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(t), token) {
				return true
			}
		}
	}
	return false
}

// acceptKey returns the answer to a key (RFC 6455, 4.2.2).
func acceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// Dial connects to a ws:// address before ctx ends; after that, ctx has no
// effect. It sends no Origin, because Chrome refuses requests with one.
func Dial(ctx context.Context, address string) (*Conn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to a WebSocket: %w", err)
	}
	if u.Scheme != "ws" || u.Host == "" {
		return nil, fmt.Errorf("cannot connect to %q: it is not a ws:// address", address)
	}
	c, err := dial(ctx, u)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("cannot connect to %s: %w", address, err)
	}
	return c, nil
}

// RefusedError says how a server answered a request to upgrade other than with a
// WebSocket.
type RefusedError struct {
	Status string // such as 403 Forbidden
	Text   string // the beginning of the answer's body
}

func (e *RefusedError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("it answered %q", e.Status)
	}
	return fmt.Sprintf("it answered %q: %q", e.Status, e.Text)
}

func dial(ctx context.Context, u *url.URL) (*Conn, error) {
	port := u.Port()
	if port == "" {
		port = "80"
	}
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	early, err := sendUpgrade(raw, u)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return New(raw, true, early), nil
}

// sendUpgrade requests the upgrade, and returns the bytes that followed the
// answer.
func sendUpgrade(raw net.Conn, u *url.URL) (early []byte, err error) {
	var nonce [16]byte
	rand.Read(nonce[:])
	key := base64.StdEncoding.EncodeToString(nonce[:])
	_, err = fmt.Fprintf(raw, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", u.RequestURI(), u.Host, key)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(io.LimitReader(raw, maxAnswer))
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	switch h := resp.Header; {
	case resp.StatusCode != http.StatusSwitchingProtocols:
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return nil, &RefusedError{resp.Status, strings.TrimSpace(string(body))}
	case !hasToken(h, "Upgrade", "websocket"), !hasToken(h, "Connection", "Upgrade"),
		h.Get("Sec-WebSocket-Accept") != acceptKey(key):
		return nil, errors.New("its answer to the upgrade is not a WebSocket handshake")
	case h.Get("Sec-WebSocket-Extensions") != "", h.Get("Sec-WebSocket-Protocol") != "":
		return nil, errors.New("it chose an extension or a subprotocol that it was not offered")
	}
	return in.Peek(in.Buffered())
}
