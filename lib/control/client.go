package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"time"

	"btools/lib/exit"
	"btools/lib/liveness"
	"btools/lib/proc"
)

// Client is a connection to a control socket, for one request at a time.
type Client struct {
	conn *watched
	in   *json.Decoder
	last int
}

// Dial connects to a control socket.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	w := &watched{Conn: c, quiet: quiet, patience: patience}
	return &Client{conn: w, in: json.NewDecoder(w)}, nil
}

// Close ends the connection, and what is bound to it.
func (c *Client) Close() { c.conn.Close() }

// ErrNotBegun means that the service has ended before it read the request, which has had no effect.
var ErrNotBegun = errors.New("the request was not read")

// Call makes one request. An error of the other side is an *Error; after any
// other one, or the context's end, the connection is of no use. Result may be
// nil. A service that answers neither the request nor a ping hangs, which is an
// *exit.Error.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	defer context.AfterFunc(ctx, func() { c.conn.Close() })()
	c.last++
	r := request{ID: json.RawMessage(strconv.Itoa(c.last)), Method: method}
	if params != nil {
		var err error
		if r.Params, err = json.Marshal(params); err != nil {
			return err
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return c.await(ctx, method, false, c.conn.send(-c.last, append(b, '\n')), result)
}

// Take makes a request after whose answer the connection is another one, which it returns, with what has come on it
// already.
func Take(ctx context.Context, path, method string, params, result any) (conn net.Conn, early []byte, err error) {
	c, err := Dial(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	if err = c.Call(ctx, method, params, result); err == nil {
		early, err = io.ReadAll(c.in.Buffered())
	}
	if err == nil {
		err = c.conn.SetDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c.conn.Conn, bytes.TrimPrefix(early, []byte("\n")), nil
}

// Resume reads the answer to the first request of a connection, which has the ID 1 and a ping before it. These
// bytes have come on it; begun says that the ping was answered. It closes the connection.
func Resume(ctx context.Context, conn net.Conn, read []byte, begun bool, method string, result any) error {
	w := &watched{Conn: conn, quiet: quiet, patience: patience, line: pingLine(-1)}
	c := &Client{conn: w, in: json.NewDecoder(io.MultiReader(bytes.NewReader(read), w)), last: 1}
	defer c.Close()
	defer context.AfterFunc(ctx, c.Close)()
	return c.await(ctx, method, begun, nil, result)
}

// await waits for the answer to the last request, which was sent or has failed so. Begun says that the ping before it
// has been answered.
func (c *Client) await(ctx context.Context, method string, begun bool, err error, result any) error {
	var a answer
	for id := strconv.Itoa(c.last); err == nil; {
		a = answer{}
		if err = c.in.Decode(&a); err != nil || string(a.ID) == id || string(a.ID) == "null" {
			break
		}
		begun = begun || string(a.ID) == strconv.Itoa(-c.last)
	}
	var hangs *exit.Error
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &hangs):
		return hangs
	case err != nil && !begun:
		return fmt.Errorf("%w: %w", ErrNotBegun, err)
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	case a.Error != nil:
		if a.Error.Code == UnknownMethod && a.Error.Hint == "" { // of a service before Mux gave one
			a.Error.Hint = c.conn.outdated()
		}
		return a.Error
	case result == nil:
		return nil
	}
	if err = json.Unmarshal(a.Result, result); err != nil {
		return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("cannot read the answer to %s: %w", method, err),
			Hint: c.conn.outdated()}
	}
	return nil
}

// Method is the name of a method, with the types of its request and its answer.
type Method[P, A any] string

// Ask makes the request and returns the answer.
func (m Method[P, A]) Ask(ctx context.Context, c Caller, p P) (a A, err error) {
	err = c.Call(ctx, string(m), p, &a)
	return a, err
}

// Caller makes requests: a *Client, for example.
type Caller interface {
	Call(ctx context.Context, method string, params, result any) error
}

// Path is the path of a control socket, and a Caller that makes each request on a connection of its own.
type Path string

// Call makes one request.
func (p Path) Call(ctx context.Context, method string, params, result any) error {
	c, err := Dial(ctx, string(p))
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, method, params, result)
}

// ping is the method that tells a service that works, however long a request takes, from one that is stopped or
// hangs.
const ping = "ping"

const (
	quiet    = 5 * time.Second // until a service that says nothing is pinged
	patience = 5 * time.Second // with a ping, on a quiet machine
)

// watched is a connection whose service is pinged when it says nothing.
type watched struct {
	net.Conn
	quiet, patience time.Duration

	line  []byte    // the ping
	asked time.Time // when it was sent; zero: it has been answered, or something else has come
	until time.Time // when the answer is late
}

// send sends a request, and before it a ping with this ID, whose answer says that the service reads.
func (w *watched) send(id int, line []byte) error {
	w.line = pingLine(id)
	return w.ping(line)
}

func pingLine(id int) []byte {
	return []byte(`{"id":` + strconv.Itoa(id) + `,"method":"` + ping + `"}` + "\n")
}

// ping sends the ping, and other lines behind it.
func (w *watched) ping(lines []byte) error {
	w.asked = time.Now()
	w.until = w.asked.Add(w.patience)
	w.SetWriteDeadline(w.until)
	_, err := w.Conn.Write(slices.Concat(w.line, lines))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return w.hangs()
	}
	return err
}

func (w *watched) Read(p []byte) (int, error) {
	for {
		if w.asked.IsZero() {
			w.until = time.Now().Add(w.quiet)
		}
		w.SetReadDeadline(w.until)
		n, err := w.Conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			w.asked = time.Time{}
			return n, err
		}
		if w.asked.IsZero() {
			if err := w.ping(nil); err != nil {
				return 0, err
			}
			continue
		}
		w.until = w.asked.Add(liveness.Bound(w.patience, liveness.Load())) // a busy machine has more time
		if !time.Now().Before(w.until) || proc.IsSuspended(w.peer()) {
			return 0, w.hangs()
		}
	}
}

// hangs returns the error that says of a service that it does not answer.
func (w *watched) hangs() error {
	pid := w.peer()
	switch {
	case pid == 0:
		return exit.Errorf(exit.TryAgain, "the program at %s does not answer", w.RemoteAddr())
	case proc.IsSuspended(pid):
		return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("the program with pid %d is suspended", pid),
			Hint: fmt.Sprintf("kill -CONT %d continues it", pid)}
	}
	return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("the program with pid %d does not answer", pid),
		Hint: fmt.Sprintf("if it hangs, kill -KILL %d ends it", pid)}
}

// outdated returns the hint to restart a service of an older version.
func (w *watched) outdated() string {
	who := fmt.Sprintf("the program at %s", w.RemoteAddr())
	if pid := w.peer(); pid != 0 {
		who = fmt.Sprintf("the program with pid %d", pid)
	}
	return who + " is of an older version of btools: restart it"
}

// peer returns the number of the service's process, 0 if it is not known: systemd has made the socket, say.
func (w *watched) peer() int {
	if p, err := peerOf(w.Conn); err == nil && p.PID > 1 {
		return p.PID
	}
	return 0
}
