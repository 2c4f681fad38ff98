package supply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"btools/lib/devtools"
	"btools/lib/front"
	"btools/lib/liveness"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/websocket"
)

// maxPong bounds the answer to a ping in bytes. A real one has some hundred.
const maxPong = 64 << 10

// Ping sends the browser a command that needs its main thread, on a connection
// of its own. The error says why no answer came in time. It is liveness.ErrNotChecked
// if this process lacks resources: the browser may be well.
func Ping(ctx context.Context, i record.Instance, within time.Duration) error {
	return inTime(ctx, within, func(ctx context.Context) error { return ping(ctx, i) })
}

// inTime calls ask with a context that ends after a while, and returns its error, or that there was no answer.
func inTime(ctx context.Context, within time.Duration, ask func(context.Context) error) error {
	late := fmt.Errorf("no answer within %v", within)
	ctx, cancel := context.WithTimeoutCause(ctx, within, late)
	defer cancel()
	err := ask(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Errorf("%w: %w", liveness.ErrNotChecked, err)
	case errors.Is(err, ErrNotAsked):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded): // a moment before the context says so
		return late
	}
	return err
}

func ping(ctx context.Context, i record.Instance) error {
	if i.Source == record.FromExtension {
		return pingJoined(ctx, i)
	}
	path, err := SocketPath(ctx, i)
	if err != nil {
		return err
	}
	conn, err := websocket.Dial(ctx, "ws://"+sibling.Addr(i)+path)
	if err != nil {
		return err
	}
	defer conn.Close(websocket.Normal, "")
	defer context.AfterFunc(ctx, func() { conn.Close(websocket.Normal, "") })()
	conn.Limit = maxPong
	method := "Browser.getVersion"
	if i.Protocol == record.BiDi {
		method = "session.status"
	}
	if err := conn.Write([]byte(`{"id":1,"method":"` + method + `","params":{}}`)); err != nil {
		return err
	}
	m, err := conn.Next()
	if err != nil {
		return err
	}
	answer, err := m.Bytes()
	if err == nil && !bytes.Contains(answer, []byte(`"id":1`)) {
		err = fmt.Errorf("it answered %.100q", answer)
	}
	return err
}

// pingJoined asks the hub for a browser that has joined by its extension: the hub
// pings the browser itself. A connection would open a tab in it.
func pingJoined(ctx context.Context, i record.Instance) error {
	path := SessionPath(i)
	if parts := strings.SplitN(path, "/", 4); len(parts) == 4 { // a session of the browser
		path = "/session/" + parts[2]
	}
	_, err := front.Get(ctx, "http://"+sibling.Addr(i)+path+"/json/version", "")
	return err
}

// SocketPath returns the path of the browser's WebSocket. It asks the browser
// if the record does not say.
func SocketPath(ctx context.Context, i record.Instance) (string, error) {
	if i.Protocol == record.BiDi {
		return "/session", nil
	}
	if below := SessionPath(i); below != "" {
		return below + "/devtools/browser", nil
	}
	if u, err := url.Parse(i.WSURL); err == nil && strings.HasPrefix(u.Path, "/devtools/browser/") {
		return u.Path, nil
	}
	v, err := devtools.GetVersion(ctx, sibling.Addr(i))
	if err != nil {
		return "", err
	}
	u, err := url.Parse(v.WSURL)
	if err != nil || u.Path == "" {
		return "", fmt.Errorf("it reported %q as the address of its WebSocket", v.WSURL)
	}
	return u.Path, nil
}

// SessionPath returns /session/NAME if the browser is a session on the port of
// another program, or "" if it has a port to itself. The session of a browser
// that has joined by its extension is /session/INSTANCE/session/NAME.
func SessionPath(i record.Instance) string {
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
