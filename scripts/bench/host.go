//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"btools/lib/jsonrpc"
)

// host is a host of an MCP server, by its standard streams. A client of others
// would be part of what is measured.
type host struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	id  int
}

// host starts a server and greets it. It is stopped at the end of the case, if not
// before.
func (b *bench) host(argv []string, env ...string) *host {
	return b.hostOf(`{"roots":{}}`, argv, env...)
}

// hostOf starts a server for a host with these capabilities.
func (b *bench) hostOf(capabilities string, argv []string, env ...string) *host {
	c := command(argv[0], argv[1:]...)
	c.Env = append(c.Env, append([]string{"HOME=" + dir, "XDG_CACHE_HOME=" + dir + "/cache"}, env...)...)
	c.Dir, c.Stderr = dir, nil
	h := &host{Cmd: c, in: must(c.StdinPipe()), out: bufio.NewReaderSize(must(c.StdoutPipe()), 1<<20)}
	check(c.Start())
	b.atEnd(h.stop)
	h.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+capabilities+
		`,"clientInfo":{"name":"bench","version":"1"}}`)
	io.WriteString(h.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	return h
}

func (h *host) start(method, params string) {
	h.id++
	fmt.Fprintf(h.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", h.id, method, params)
}

// answer reads messages until the next answer. A server that asks for the
// host's roots gets the directory.
func (h *host) answer() []byte {
	for {
		line, err := h.out.ReadBytes('\n')
		if err != nil {
			fail("the server has ended: %v", err)
		}
		m, err := jsonrpc.Parse(line)
		if err != nil {
			continue
		}
		if m.IsResponse() {
			return line
		}
		if m.Method == "roots/list" {
			fmt.Fprintf(h.in, `{"jsonrpc":"2.0","id":%s,"result":{"roots":[{"uri":"file://%s","name":"bench"}]}}`+"\n",
				m.ID, dir)
		}
	}
}

func (h *host) call(method, params string) []byte {
	h.start(method, params)
	return h.answer()
}

func (h *host) tool(name, args string) []byte {
	return h.call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
}

// result is that of a call of a tool.
func (h *host) result(name, args string) (json.RawMessage, error) {
	var m struct {
		Result json.RawMessage
		Error  *struct{ Message string }
	}
	if err := attempt(func() { check(json.Unmarshal(h.tool(name, args), &m)) }); err != nil {
		return nil, err
	}
	if m.Error != nil {
		return nil, errors.New(m.Error.Message)
	}
	return m.Result, nil
}

func (h *host) stop() {
	h.in.Close()
	h.Wait()
}

// playwrightMCP is the command of @playwright/mcp with a browser of its own.
func playwrightMCP(args ...string) []string {
	return append([]string{client("@playwright/mcp/cli.js"), "--headless", "--no-sandbox", "--isolated",
		"--executable-path", "/usr/bin/chromium"}, args...)
}

// builtinMCP is the command of bmcp with its own tools.
func builtinMCP(args ...string) []string {
	return append([]string{bin + "bmcp", "--mcp", "builtin"}, args...)
}
