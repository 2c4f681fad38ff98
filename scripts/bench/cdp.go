//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"btools/lib/jsonrpc"

	"github.com/coder/websocket"
)

// maxCall is how long a call to a browser may take: one that is never answered
// ends its case with an error, and the next one is measured.
const maxCall = 30 * time.Second

// get is the body of an answer of a browser by HTTP.
func get(url string) []byte {
	resp := must((&http.Client{Timeout: maxCall}).Get(url))
	defer resp.Body.Close()
	return must(io.ReadAll(resp.Body))
}

var ctx = context.Background()

// browser is one WebSocket to a browser.
type browser struct {
	*websocket.Conn
	id int
	// limit closes the connection when a call takes too long. A context for
	// each call would be part of what is measured.
	limit *time.Timer
	late  atomic.Bool
}

func dial(url string) *browser {
	opening, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	conn, _, err := websocket.Dial(opening, url, nil)
	if err != nil {
		fail("dial %s: %w", url, err)
	}
	conn.SetReadLimit(-1)
	c := &browser{Conn: conn}
	c.limit = time.AfterFunc(maxCall, func() {
		c.late.Store(true)
		conn.CloseNow()
	})
	c.limit.Stop()
	return c
}

// call makes one call and returns its answer and how long it took, in µs.
func (c *browser) call(rest string) ([]byte, float64) {
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
				fail("%s: %s", methodOf(rest), b)
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

// version makes the call that costs a browser least, and returns its time in µs.
func (c *browser) version() (us float64) {
	_, us = c.call(`"method":"Browser.getVersion"`)
	return us
}

// greet dials, makes a call, and hangs up. It returns the ms until its answer.
func greet(url string) float64 {
	began := time.Now()
	c := dial(url)
	defer c.CloseNow()
	c.version()
	return time.Since(began).Seconds() * 1000
}

// sessionURL is the browser's WebSocket of a named session.
func sessionURL(at, name string) string {
	return jsonrpc.GetString(get("http://"+at+"/session/"+name+"/json/version"), "webSocketDebuggerUrl")
}

// page is a connection that is attached to one page.
type page struct {
	*browser
	session string
}

// openPage opens a page and attaches to it.
func openPage(url string) *page {
	c := dial(url)
	b, _ := c.call(`"method":"Target.createTarget","params":{"url":"about:blank"}`)
	return c.attach(jsonrpc.GetString(b, "result", "targetId"))
}

func (c *browser) attach(target string) *page {
	b, _ := c.call(`"method":"Target.attachToTarget","params":{"flatten":true,"targetId":"` + target + `"}`)
	return &page{c, jsonrpc.GetString(b, "result", "sessionId")}
}

// call makes a call to the page.
func (p *page) call(method string, params any) ([]byte, float64) {
	raw := []byte("{}")
	if params != nil {
		raw, _ = json.Marshal(params)
	}
	return p.browser.call(`"sessionId":"` + p.session + `","method":"` + method + `","params":` + string(raw))
}

// evaluate returns the answer and how long it took, in µs.
func (p *page) evaluate(expression string) ([]byte, float64) {
	return p.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})
}

// one evaluates as little as can be, and returns how long it took, in µs.
func (p *page) one() (us float64) {
	_, us = p.evaluate("1")
	return us
}

// openPages opens a page at each of these, up to the end of the case.
func (b *bench) openPages(urls ...string) (pages []*page) {
	for _, url := range urls {
		p := openPage(url)
		b.atEnd(func() { p.CloseNow() })
		pages = append(pages, p)
	}
	return pages
}

// speeds has each page send 200 messages of 4 MiB, by turns, and returns their MB/s.
func speeds(pages []*page) []float64 {
	const n, size = 200, 4 << 20
	speeds := make([]float64, len(pages))
	for range n {
		for i, p := range pages {
			b, us := p.evaluate("'x'.repeat(" + strconv.Itoa(size) + ")")
			if len(b) < size {
				fail("a short message")
			}
			speeds[i] += us
		}
	}
	for i, us := range speeds {
		speeds[i] = n * size / us
	}
	return speeds
}
