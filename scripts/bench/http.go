//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"btools/lib/jsonrpc"
)

// webToken is that of the clients here, and tokenFile writes its file.
const webToken = "bench-bench-bench-bench"

func tokenFile() (path string) {
	path = filepath.Join(dir, "tokens")
	check(os.WriteFile(path, []byte("bench "+webToken+" trust"), 0o600))
	return path
}

// webClient is a connection that is kept alive. A client of net/http would need as much CPU as the service.
type webClient struct {
	conn net.Conn
	read *bufio.Reader
}

// post makes a request and returns the body of its answer.
func (c *webClient) post(path, body string) []byte {
	fmt.Fprintf(c.conn, "POST %s HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		path, webToken, len(body), body)
	resp := must(http.ReadResponse(c.read, nil))
	b := must(io.ReadAll(resp.Body))
	if resp.StatusCode != http.StatusOK {
		fail("%s: %s: %s", path, resp.Status, b)
	}
	return b
}

// pair leases and releases once, and returns how long that took in ms.
func (c *webClient) pair() float64 {
	return ms(func() {
		id := jsonrpc.GetString(c.post("/lease", `{"timeout":"1m"}`), "lease", "id")
		c.post("/release", `{"lease":"`+id+`"}`)
	})
}

// leasesByHTTP measures a service without browsers by HTTP, and the same one by its socket before and after.
func leasesByHTTP(b *bench) {
	_, socket, url := b.bpool([]string{"_A_INSTANCES=10", "_A_IS_DEFAULT=1", "LAUNCH=false"}, "--http", "0",
		"--token-file", tokenFile())
	before, _ := crowd(socket)
	rate, all := crowded(func() (func() float64, func()) {
		conn := must(net.Dial("tcp", strings.TrimPrefix(url, "http://")))
		c := &webClient{conn, bufio.NewReader(conn)}
		return c.pair, func() { conn.Close() }
	})
	after, _ := crowd(socket)
	row("POST /lease + /release, kept alive, 64 clients, a second", "≥ 5,000", "%.0f", rate)
	row("the same: p99", "≤ 10 ms", "%.1f ms", all.at(99))
	row("the same service over the socket, a second: before, after", "", "%.0f, %.0f", before, after)
}

// connects compares a WebSocket that is a lease with a lease and its WebSocket, up to the first answer.
func connects(b *bench) {
	const instances = 8
	n := fmt.Sprint(instances)
	_, socket, url := b.bpool([]string{"BROWSER=chromium", "ISOLATION=context", "PER_BROWSER=" + n,
		"_A_INSTANCES=" + n, "_A_IS_DEFAULT=1"}, "--http", "0", "--token-file", tokenFile())
	c := b.control(socket)
	leased := func(lease func() (id, ws string)) func() float64 {
		return func() float64 {
			spare(url, instances, webToken)
			var id string
			took := ms(func() {
				var ws string
				id, ws = lease()
				greet(ws)
			})
			release(c, id)
			return took
		}
	}
	m := medians(50, func() float64 {
		spare(url, instances, webToken)
		return greet("ws" + strings.TrimPrefix(url, "http") + "/connect?token=" + webToken)
	}, leased(func() (string, string) {
		id, ws, _ := strings.Cut(output(bin+"bpool", "lease", "--socket", socket, "-f",
			"lease.id,instance.ws_url"), "\t")
		return id, ws
	}), leased(func() (string, string) {
		var r struct {
			Lease    struct{ ID string }
			Instance struct {
				WSURL string `json:"ws_url"`
			}
		}
		check(c.Call(ctx, "hold", map[string]int{"timeout_ms": 60000}, &r))
		return r.Lease.ID, r.Instance.WSURL
	}))
	row("/connect to the first answer ÷ bpool lease and its WebSocket", "≤ 1.1", "%.2f (%.1f, %.1f ms)", m[0]/m[1],
		m[0], m[1])
	row("the same ÷ a lease over an open socket and its WebSocket", "", "%.2f (%.1f ms)", m[0]/m[2], m[2])
}
