package virtual

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"btools/lib/cdp/single"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/chrometest"
)

// lateUpstream is a Chrome whose connections but the first are slow with what they say of new pages.
type lateUpstream struct {
	Upstream
	conns int
	known func(page string) bool // nothing is told of a page before
}

func (u *lateUpstream) Dial(ctx context.Context, target string) (Conn, error) {
	c, err := u.Upstream.Dial(ctx, target)
	u.conns++
	return lateConn{c, u, u.conns == 1}, err
}

type lateConn struct {
	Conn
	of      *lateUpstream
	inOrder bool
}

func (c lateConn) Direct(func([]byte) bool) {}
func (c lateConn) Give(session string, to Conn) bool {
	return c.Conn.Give(session, to.(lateConn).Conn)
}

func (c lateConn) Next() (Message, error) {
	m, err := c.Conn.Next()
	if err != nil || c.inOrder {
		return m, err
	}
	b, _ := m.Bytes()
	isOwn := jsonrpc.GetString(b, "sessionId") == "" && !strings.Contains(string(b), `"waitingForDebugger":true`)
	if info := jsonrpc.Get(b, "params", "targetInfo"); jsonrpc.GetString(b, "method") == "Target.attachedToTarget" &&
		jsonrpc.GetString(info, "type") == "page" && !isOwn {
		for begun := time.Now(); !c.of.known(jsonrpc.GetString(info, "targetId")) && time.Since(begun) < patience; {
			time.Sleep(time.Millisecond)
		}
	}
	return m, nil
}

// A client is told the address of a page, although its connection is behind the one that reports it. Nothing reports it
// again, and Puppeteer waits for it.
func TestAddressOfALatePage(t *testing.T) {
	t.Parallel()
	in, out, _ := chrometest.StartShellOnPipe(t)
	m := single.NewPipe(in, out)
	t.Cleanup(m.Close)
	up := &lateUpstream{Upstream: Over(m)}
	b, err := OpenOn(t.Context(), up, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	up.known = func(page string) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.targets[page] == nil || jsonrpc.GetString(b.targets[page].info, "url") != ""
	}
	for clients := 1; clients <= 2; clients++ {
		t.Run(fmt.Sprintf("%d clients", clients), func(t *testing.T) {
			s := newSession(t, b, Options{})
			var all []*peer
			below := map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true,
				"filter": []any{map[string]any{}}}
			for range clients {
				p := connect(t, s, "")
				p.autoAttach(map[string]any{"type": "page", "exclude": true},
					map[string]any{"type": "browser", "exclude": true}, map[string]any{})
				all = append(all, p)
			}
			all[0].begin("", "Target.createTarget", map[string]string{"url": "about:blank"})
			for i, p := range all {
				tab := jsonrpc.GetString(p.event("Target.attachedToTarget", `"tab"`), "params", "sessionId")
				p.begin(tab, "Target.setAutoAttach", below)
				p.begin(tab, "Runtime.runIfWaitingForDebugger", nil)
				told := p.event("Target.attachedToTarget", `"page"`)
				if url := jsonrpc.GetString(told, "params", "targetInfo", "url"); url != "about:blank" {
					t.Errorf("client %d is told of a page at %q", i, url)
				}
				p.begin(jsonrpc.GetString(told, "params", "sessionId"), "Runtime.runIfWaitingForDebugger", nil)
			}
		})
	}
}
