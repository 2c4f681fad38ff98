package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"btools/lib/exit"
)

func serveFor(t *testing.T, handle Handler) string {
	t.Helper()
	path := t.TempDir() + "/s"
	l, err := Listen(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { Serve(ctx, l, handle) })
	t.Cleanup(func() {
		l.Close()
		cancel()
		wg.Wait()
	})
	return path
}

func TestCall(t *testing.T) {
	path := serveFor(t, func(_ context.Context, method string, params json.RawMessage) (any, error) {
		switch method {
		case "echo":
			return params, nil
		case "missing":
			return nil, &exit.Error{Code: exit.Unavailable, Err: errors.New("none")}
		}
		return nil, Errorf(UnknownMethod, "no %s", method)
	})
	var got string
	if err := Path(path).Call(t.Context(), "echo", "x", &got); err != nil || got != "x" {
		t.Errorf("%q, %v", got, err)
	}
	for method, want := range map[string]string{"missing": Unavailable, "other": UnknownMethod} {
		var e *Error
		if err := Path(path).Call(t.Context(), method, nil, nil); !errors.As(err, &e) || e.Code != want {
			t.Errorf("%s: %v", method, err)
		}
	}
	if _, err := Listen(context.Background(), path); err == nil {
		t.Error("two listen on one path")
	}
}

// What is no socket stays, and so does another one's.
func TestListen(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/notes", []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(context.Background(), dir+"/notes"); err == nil ||
		!strings.Contains(err.Error(), "is not a stale socket") {
		t.Error(err)
	}
	if b, _ := os.ReadFile(dir + "/notes"); string(b) != "precious" {
		t.Errorf("%q", b)
	}
	if _, err := Listen(context.Background(), dir+"/"+strings.Repeat("x", 100)); err == nil ||
		!strings.Contains(err.Error(), "103 at most") {
		t.Error(err)
	}
	first, err := Listen(context.Background(), dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(dir + "/s")
	second, err := Listen(context.Background(), dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if c, err := net.Dial("unix", dir+"/s"); err != nil {
		t.Error("the first one's end took the second one's socket", err)
	} else {
		c.Close()
	}
	second.Close()
	if _, err := os.Lstat(dir + "/s"); err == nil {
		t.Error("a socket is left")
	}
	// Many at once: one has it.
	var got atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if l, err := Listen(context.Background(), dir+"/many"); err == nil {
				got.Add(1)
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						c.Close()
					}
				}()
				t.Cleanup(func() { l.Close() })
			}
		})
	}
	wg.Wait()
	if got.Load() != 1 {
		t.Errorf("%d listen on one path", got.Load())
	}
}

// Answers come as they are ready, garbage is answered, and a connection that
// drops cancels what it waits for.
func TestConnection(t *testing.T) {
	cancelled := make(chan struct{})
	path := serveFor(t, func(ctx context.Context, method string, _ json.RawMessage) (any, error) {
		if method == "wait" {
			return Later(func() (any, error) {
				<-ctx.Done()
				close(cancelled)
				return nil, ctx.Err()
			}), nil
		}
		return method, nil
	})
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(c)
	c.Write([]byte("{\"id\":\"a\",\"method\":\"wait\"}\nwhat?\n"))
	if !in.Scan() || !strings.Contains(in.Text(), BadRequest) {
		t.Error(in.Text())
	}
	c.Write([]byte("{\"id\":7,\"method\":\"now\"}\n"))
	if !in.Scan() || in.Text() != `{"id":7,"result":"now"}` {
		t.Error(in.Text())
	}
	c.Close()
	<-cancelled
}

// As many requests may wait as the limit says: one that is answered makes room
// for the next, whoever is still writing that answer.
func TestAnAnswerMakesRoom(t *testing.T) {
	turn := make(chan struct{}, maxPending)
	path := serveFor(t, func(ctx context.Context, method string, _ json.RawMessage) (any, error) {
		return Later(func() (any, error) {
			select {
			case <-turn:
				return method, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}), nil
	})
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := bufio.NewScanner(c)
	request := []byte(`{"id":1,"method":"wait"}` + "\n")
	for range maxPending {
		c.Write(request)
	}
	for range 5000 {
		turn <- struct{}{}
		if !in.Scan() || !strings.Contains(in.Text(), "result") {
			t.Fatalf("%q, although one had been answered", in.Text())
		}
		c.Write(request)
	}
	c.Write(request)
	if !in.Scan() || !strings.Contains(in.Text(), "64 requests of this connection wait already") {
		t.Fatalf("%q", in.Text())
	}
}

// An error has the exit code that it has where it comes from.
func TestExitCodes(t *testing.T) {
	for _, code := range []int{exit.Failed, exit.Usage, exit.Data, exit.Unavailable, exit.TryAgain, exit.Config} {
		var e *exit.Error
		err := error(ErrorOf(&exit.Error{Code: code, Err: errors.New("x"), Hint: "y"}))
		if !errors.As(err, &e) || e.Code != code || e.Hint != "y" {
			t.Errorf("an error of code %d arrives as %+v", code, err)
		}
	}
}

// A client leaves a service that answers no ping, before its request or during it, and knows whether the service has
// read that.
func TestServiceThatHangs(t *testing.T) {
	listen := func(t *testing.T) (*net.UnixListener, *Client) {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		c, err := Dial(t.Context(), l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		c.conn.quiet, c.conn.patience = time.Millisecond, 50*time.Millisecond
		return l, c
	}
	read := func(t *testing.T, l net.Listener, lines int) (net.Conn, *bufio.Scanner) {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(conn)
		for range lines {
			in.Scan()
		}
		return conn, in
	}
	for name, serve := range map[string]func(*testing.T, net.Listener){
		"from the start": func(*testing.T, net.Listener) {},
		"later": func(t *testing.T, l net.Listener) {
			conn, in := read(t, l, 2)
			conn.Write([]byte(`{"id":-1}` + "\n"))
			for in.Scan() {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, c := listen(t)
			go serve(t, l)
			var e *exit.Error
			pid := strconv.Itoa(os.Getpid())
			err := c.Call(t.Context(), "x", strings.Repeat("long", 1<<19), nil)
			if !errors.As(err, &e) || e.Code != exit.TryAgain || !strings.Contains(err.Error(), pid) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	t.Run("it answers pings", func(t *testing.T) {
		l, c := listen(t)
		go func() {
			conn, in := read(t, l, 0)
			for n := 0; n < 6 && in.Scan(); n++ {
				if strings.Contains(in.Text(), ping) {
					conn.Write([]byte(`{"id":-1}` + "\n"))
				}
			}
			conn.Write([]byte(`{"id":1,"result":7}` + "\n"))
		}()
		var got int
		if err := c.Call(t.Context(), "x", nil, &got); err != nil || got != 7 {
			t.Errorf("%d, %v", got, err)
		}
	})
	for begun, want := range map[bool]string{false: "was not read", true: "no answer"} {
		l, c := listen(t)
		go func() {
			if !begun {
				l.Close() // with the connection in its queue
				return
			}
			conn, _ := read(t, l, 2)
			conn.Write([]byte(`{"id":-1}` + "\n"))
			conn.Close()
		}()
		err := c.Call(t.Context(), "x", nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrNotBegun) == begun {
			t.Errorf("of a service that has ended, which has read the request: %t: %v", begun, err)
		}
	}
}

// A request that is carried out as the service ends is answered; one that only waits is
// not, and its connection ends.
func TestAnswersAtTheEnd(t *testing.T) {
	path := t.TempDir() + "/s"
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	begun := make(chan struct{}, 2)
	served := make(chan struct{})
	go func() {
		defer close(served)
		Serve(ctx, l, func(ctx context.Context, method string, _ json.RawMessage) (any, error) {
			return Later(func() (any, error) {
				begun <- struct{}{}
				<-ctx.Done()
				if method == "work" {
					return "done", nil
				}
				return nil, context.Cause(ctx)
			}), nil
		})
	}()
	answers := make(chan string)
	for _, method := range []string{"work", "wait"} {
		go func() {
			var got string
			err := Path(path).Call(t.Context(), method, nil, &got)
			answers <- fmt.Sprintf("%s: %q, %v", method, got, err != nil)
		}()
		<-begun
	}
	end()
	l.Close()
	got := []string{<-answers, <-answers}
	if slices.Sort(got); !slices.Equal(got, []string{`wait: "", true`, `work: "done", false`}) {
		t.Errorf("%q", got)
	}
	<-served
}

// A handler takes a connection: after its answer the two ends speak as they like.
func TestTaken(t *testing.T) {
	t.Parallel()
	path := serveFor(t, func(context.Context, string, json.RawMessage) (any, error) {
		return Taken{Answer: "yours", Do: func(_ context.Context, c net.Conn) {
			io.WriteString(c, "hello ")
			io.Copy(c, c)
		}}, nil
	})
	var answer string
	conn, early, err := Take(t.Context(), path, "take", nil, &answer)
	if err != nil || answer != "yours" {
		t.Fatal(answer, err)
	}
	defer conn.Close()
	io.WriteString(conn, "again\n")
	got := make([]byte, len("hello again\n")-len(early))
	if _, err := io.ReadFull(conn, got); err != nil || string(early)+string(got) != "hello again\n" {
		t.Errorf("%q %q %v", early, got, err)
	}
}
