//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// maxCall is how long a call to a browser may take: one that is never answered
// ends its row with an error, and the next one is measured.
const maxCall = 30 * time.Second

// failure is an error of a call. It is panicked with, up to the row.
type failure struct{ error }

// attempt measures rows. An error of a call ends them, and is printed in their
// place.
func attempt(what string, rows func()) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			failed = true
			row(what, "failed: "+e.Error(), "")
		default:
			panic(e)
		}
	}()
	rows()
}

// together are functions that run at once. Wait fails as the first of them that
// failed.
type together struct {
	group sync.WaitGroup
	left  atomic.Int32
	first atomic.Pointer[failure]
}

func (t *together) Go(f func()) {
	t.left.Add(1)
	t.group.Go(func() {
		defer t.left.Add(-1)
		defer func() {
			if e := recover(); e != nil {
				fail, ok := e.(failure)
				if !ok {
					panic(e)
				}
				t.first.CompareAndSwap(nil, &fail)
			}
		}()
		f()
	})
}

func (t *together) running() bool { return t.left.Load() > 0 }

func (t *together) Wait() {
	t.group.Wait()
	if fail := t.first.Load(); fail != nil {
		panic(*fail)
	}
}

// get is the body of an answer of a browser by HTTP.
func get(url string) []byte {
	resp, err := (&http.Client{Timeout: maxCall}).Get(url)
	if err != nil {
		panic(failure{err})
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(failure{fmt.Errorf("%s: %w", url, err)})
	}
	return b
}

var ctx = context.Background()

// client is one WebSocket to a browser.
type client struct {
	*websocket.Conn
	id int
	// limit closes the connection when a call takes too long. A context for
	// each call would be part of what is measured.
	limit *time.Timer
	late  atomic.Bool
}

func dial(url string) *client {
	opening, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	conn, _, err := websocket.Dial(opening, url, nil)
	if err != nil {
		panic(failure{fmt.Errorf("dial %s: %w", url, err)})
	}
	conn.SetReadLimit(-1)
	c := &client{Conn: conn}
	c.limit = time.AfterFunc(maxCall, func() {
		c.late.Store(true)
		conn.CloseNow()
	})
	c.limit.Stop()
	return c
}

// call makes one call and returns its answer and how long it took, in µs.
func (c *client) call(rest string) ([]byte, float64) {
	c.id++
	head := `{"id":` + strconv.Itoa(c.id) + `,`
	c.limit.Reset(maxCall)
	defer c.limit.Stop()
	began := time.Now()
	err := c.Write(ctx, websocket.MessageText, []byte(head+rest+`}`))
	for err == nil {
		var b []byte
		if _, b, err = c.Read(ctx); err == nil && strings.HasPrefix(string(b[:min(len(b), len(head))]), head) {
			took := time.Since(began).Seconds() * 1e6
			if strings.HasPrefix(string(b[len(head):min(len(b), len(head)+10)]), `"error"`) {
				panic(failure{fmt.Errorf("%s: %s", methodOf(rest), b)})
			}
			return b, took
		}
	}
	if c.late.Load() {
		err = fmt.Errorf("no answer within %v", maxCall)
	}
	panic(failure{fmt.Errorf("%s: %w", methodOf(rest), err)})
}

// methodOf is the method of a call.
func methodOf(rest string) string {
	_, method, _ := strings.Cut(rest, `"method":"`)
	method, _, _ = strings.Cut(method, `"`)
	return method
}
