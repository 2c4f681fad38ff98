// Package waitfor waits for an application that is being started: until a URL is
// answered, or until a port accepts a connection. It speaks the few lines of HTTP
// itself: net/http would be half of a supervisor's memory.
package waitfor

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"btools/lib/exit"
)

// Target is an application that is waited for.
type Target struct {
	name string   // as it was given
	addr string   // host:port
	url  *url.URL // nil: a connection is enough
}

// Parse reads an http:// or https:// URL, or HOST:PORT.
func Parse(text string) (Target, error) {
	wrong := func(meant string) (Target, error) {
		shown, _, _ := strings.Cut(text, "?") // where a secret may be
		err := fmt.Errorf("%q is not an http:// or https:// URL, nor HOST:PORT", shown)
		if meant != "" {
			err = fmt.Errorf("%w: did you mean %s?", err, meant)
		}
		return Target{}, err
	}
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		ports := map[string]string{"http": "80", "https": "443"}
		if err != nil || ports[u.Scheme] == "" || u.Hostname() == "" {
			if rest, is := strings.CutPrefix(text, "tcp://"); is {
				if _, err := Parse(rest); err == nil {
					return wrong(rest)
				}
			}
			return wrong("")
		}
		port := u.Port()
		if port == "" {
			port = ports[u.Scheme]
		}
		if !isPort(port) {
			return wrong("")
		}
		shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath} // the rest may be secret
		return Target{name: shown.String(), addr: net.JoinHostPort(u.Hostname(), port), url: u}, nil
	}
	if isPort(text) {
		return wrong("localhost:" + text)
	}
	host, port, err := net.SplitHostPort(text)
	if before, path, is := strings.Cut(port, "/"); err == nil && is && isPort(before) {
		return wrong("http://" + host + ":" + before + "/" + path)
	}
	if err != nil || !isPort(port) || strings.ContainsAny(host, "/@ ") {
		return wrong("")
	}
	if host == "" {
		return wrong("localhost:" + port)
	}
	return Target{name: text, addr: text}, nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// All waits until all targets are ready, for so long at most. say gets what is still
// waited for, and why, once that has taken a while. If the time is over, the error says
// what each target that is not ready did last.
func All(ctx context.Context, targets []Target, within time.Duration, say func(string)) error {
	waiting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	reasons := make([]error, len(targets))
	var all sync.WaitGroup
	for i, t := range targets {
		all.Go(func() { reasons[i] = t.wait(waiting, say) })
	}
	all.Wait()
	switch err := errors.Join(reasons...); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return &exit.Error{Code: exit.TryAgain,
			Err: fmt.Errorf("%s after %v", strings.ReplaceAll(err.Error(), "\n", "; "), within)}
	}
}

// Bounds of the time between tries, of a connection, and of an answer: the first one of
// a server that compiles what it is asked for may take long.
const (
	pause         = 100 * time.Millisecond
	notice        = time.Second
	dialTimeout   = 5 * time.Second
	answerTimeout = 30 * time.Second
)

// wait tries until the target is ready, and returns what it did last if the context
// ends before.
func (t Target) wait(ctx context.Context, say func(string)) error {
	last := errors.New("no answer yet")
	end, _ := ctx.Deadline()
	for due := time.Now().Add(notice); ; {
		err := t.try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && time.Now().Before(end) { // else the end of the time is what failed
			last = err
		}
		if say != nil && time.Now().After(due) {
			say(fmt.Sprintf("waiting for %s: %v", t.name, last))
			say = nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", t.name, last)
		case <-time.After(pause):
		}
	}
}

// try reports why the target is not ready.
func (t Target) try(ctx context.Context) error {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", t.addr)
	if err != nil {
		return reason(err)
	}
	defer conn.Close()
	if t.url == nil {
		return nil
	}
	conn.SetDeadline(time.Now().Add(answerTimeout))
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if t.url.Scheme == "https" {
		// Nothing secret is sent, and test servers have certificates of their own.
		conn = tls.Client(conn, &tls.Config{ServerName: t.url.Hostname(), InsecureSkipVerify: true})
	}
	if _, err := io.WriteString(conn, t.request()); err != nil {
		return reason(err)
	}
	code, line, err := status(conn)
	switch {
	case err != nil:
		return reason(err)
	case code < 200 || code > 403:
		return fmt.Errorf("it answers %s", line)
	}
	return nil
}

func (t Target) request() string {
	head := "GET " + t.url.RequestURI() + " HTTP/1.1\r\nHost: " + t.url.Host +
		"\r\nUser-Agent: btools\r\nAccept: */*\r\nConnection: close\r\n"
	if u := t.url.User; u != nil {
		password, _ := u.Password()
		head += "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)) + "\r\n"
	}
	return head + "\r\n"
}

// maxHead bounds the head of an answer, in bytes.
const maxHead = 64 << 10

// status reads the status of an answer: its code, and the code with its text.
func status(conn io.Reader) (code int, line string, err error) {
	text := textproto.NewReader(bufio.NewReader(io.LimitReader(conn, maxHead)))
	for {
		first, err := text.ReadLine()
		if err != nil {
			return 0, "", err
		}
		version, line, _ := strings.Cut(first, " ")
		digits, _, _ := strings.Cut(line, " ")
		code, err := strconv.Atoi(digits)
		if !strings.HasPrefix(version, "HTTP/") || err != nil {
			return 0, "", fmt.Errorf("its answer is not HTTP: %.60q", first)
		}
		if code/100 != 1 {
			return code, strings.TrimSpace(line), nil
		}
		if _, err := text.ReadMIMEHeader(); err != nil { // the answer follows
			return 0, "", err
		}
	}
}

// reason is an error of the network without the address, which its reader knows.
func reason(err error) error {
	var timeout net.Error
	var op *net.OpError
	var call *os.SyscallError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it closes the connection without an answer")
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer")
	case errors.As(err, &call):
		return call.Err
	case errors.As(err, &op):
		return op.Err
	}
	return err
}
