package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/devtools"
	"btools/lib/launcher"
	"btools/lib/liveness"
	"btools/lib/record"
)

// maxPong bounds how many bytes of the answer to a ping are read. A real one
// has some hundred.
const maxPong = 64 << 10

// Ping sends the browser a command that needs its main thread, on a connection
// of its own. The error says why no answer came in time. It is liveness.ErrNotChecked
// if this process lacks resources: the browser may be well.
func Ping(ctx context.Context, i record.Instance, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v", within))
	defer cancel()
	err := ping(ctx, i)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%w: %w", liveness.ErrNotChecked, err)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// PingMux is Ping for a browser without a port.
func PingMux(ctx context.Context, m *single.Mux, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %v", within))
	defer cancel()
	return m.Check(ctx)
}

func ping(ctx context.Context, i record.Instance) error {
	if i.Source == record.FromExtension {
		return pingJoined(ctx, i)
	}
	path, err := socketPath(ctx, i)
	if err != nil {
		return err
	}
	addr := launcher.Addr(i)
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })()
	method := "Browser.getVersion"
	if i.Protocol == record.BiDi {
		method = "session.status"
	}
	// The key is for the caches of proxies, of which there is none in between.
	_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==\r\n\r\n", path, addr)
	if err != nil {
		return err
	}
	in := bufio.NewReader(io.LimitReader(c, maxPong))
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("%s answered %q", addr, resp.Status)
	}
	if _, err := c.Write(textFrame(`{"id":1,"method":"` + method + `","params":{}}`)); err != nil {
		return err
	}
	answer := ""
	read := frameReader{message: func(_ bool, b []byte, _ int64) { answer = string(b) }}
	b := make([]byte, 4096)
	for answer == "" {
		n, err := in.Read(b)
		read.Write(b[:n])
		if err != nil && answer == "" {
			return err
		}
	}
	if !strings.Contains(answer, `"id":1`) {
		return fmt.Errorf("it answered %.100q", answer)
	}
	return nil
}

// pingJoined asks the hub for a browser that has joined by its extension: the hub
// pings the browser itself. A connection would open a tab in it.
func pingJoined(ctx context.Context, i record.Instance) error {
	path := sessionPath(i)
	if parts := strings.SplitN(path, "/", 4); len(parts) == 4 { // a session of the browser
		path = "/session/" + parts[2]
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+launcher.Addr(i)+path+"/json/version", nil)
	if err != nil {
		return err
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %q", launcher.Addr(i), resp.Status)
	}
	return nil
}

// socketPath returns the path of the browser's WebSocket. It asks the browser
// if the record does not say.
func socketPath(ctx context.Context, i record.Instance) (string, error) {
	if i.Protocol == record.BiDi {
		return "/session", nil
	}
	if below := sessionPath(i); below != "" {
		return below + "/devtools/browser", nil
	}
	if u, err := url.Parse(i.WSURL); err == nil && strings.HasPrefix(u.Path, "/devtools/browser/") {
		return u.Path, nil
	}
	v, err := devtools.GetVersion(ctx, launcher.Addr(i))
	if err != nil {
		return "", err
	}
	u, err := url.Parse(v.WSURL)
	if err != nil || u.Path == "" {
		return "", fmt.Errorf("it reported %q as the address of its WebSocket", v.WSURL)
	}
	return u.Path, nil
}

// sessionPath returns /session/NAME if the browser is a session on the port of
// another program, or "" if it has a port to itself. The session of a browser
// that has joined by its extension is /session/INSTANCE/session/NAME.
func sessionPath(i record.Instance) string {
	if i.Protocol == record.BiDi {
		return ""
	}
	for _, address := range []string{i.HTTPURL, i.WSURL} {
		u, err := url.Parse(address)
		if err != nil || !strings.HasPrefix(u.Path, "/session/") {
			continue
		}
		path, _, _ := strings.Cut(strings.TrimSuffix(u.EscapedPath(), "/"), "/devtools/")
		return path
	}
	return ""
}
