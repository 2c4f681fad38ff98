//go:build linux

package clients_test

import (
	"bufio"
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"btools/lib/cdp"
	"btools/lib/cmdtest"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/websocket"
)

// A client goes on where it was each time that a person takes control and gives it back: nothing is lost, done twice or
// in another order, and the page sees no input of the client meanwhile.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	p := w.Proxy("share")
	for _, which := range []string{"playwright", "puppeteer"} {
		t.Run(which, func(t *testing.T) {
			c := w.Cmd("node", filepath.Join(cmdtest.Clients(t), "takeover.mjs"), which, p.URL+"/session/"+which, "20")
			c.Env = slices.Concat(c.Env, []string{"HOME=" + w.Dir})
			var errs cmdtest.SyncBuffer
			c.Stderr = &errs
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmdtest.Start(t, c)
			lines := bufio.NewScanner(out)
			if !lines.Scan() || lines.Text() != "ready" {
				t.Fatalf("it says %q\n%s", lines.Text(), errs.String())
			}
			over := make(chan bool, 1)
			go func() {
				over <- lines.Scan() && lines.Text() == "done"
			}()
			person := attach(t, w, which)
			for done := false; !done; {
				person.call("", "Btools.take", map[string]any{"holder": "a-person-of-the-test"}, nil)
				if seen := person.seen(); true {
					time.Sleep(20 * time.Millisecond) // in which the client would act
					if now := person.seen(); now != seen {
						t.Errorf("while a person has control the page has seen %d inputs, and then %d", seen, now)
					}
				}
				person.call("", "Btools.give", nil, nil)
				select {
				case ok := <-over:
					if done = true; !ok {
						c.Wait()
						t.Errorf("%s", errs.String())
					}
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	p.Stop()
	w.Clean()
}

// person looks at the first page of a session.
type person struct {
	t    *testing.T
	conn *cdp.Conn
	page string // a CDP session
}

// attach has a person look at a session of the only bproxy.
func attach(t *testing.T, w *cmdtest.World, session string) person {
	t.Helper()
	var a api.Attached
	conn, early, err := control.Take(t.Context(), w.State().Proxies[0].Control, string(api.Attach),
		api.AttachRequest{Session: session, Who: "anna"}, &a)
	if err != nil || !a.Lock {
		t.Fatal(a, err)
	}
	p := person{t: t, conn: cdp.On(websocket.New(conn, true, early), func(cdp.Event) {})}
	t.Cleanup(p.conn.Close)
	var all struct{ TargetInfos []struct{ TargetID string } }
	p.call("", "Target.getTargets", nil, &all)
	var at struct{ SessionID string }
	p.call("", "Target.attachToTarget", map[string]any{"targetId": all.TargetInfos[0].TargetID, "flatten": true}, &at)
	p.page = at.SessionID
	return p
}

func (p *person) call(session, method string, params, result any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), cmdtest.Patience)
	defer cancel()
	if err := p.conn.Call(ctx, session, method, params, result); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
}

// seen returns how many inputs the page has seen.
func (p *person) seen() int {
	p.t.Helper()
	var got struct{ Result struct{ Value int } }
	p.call(p.page, "Runtime.evaluate", map[string]any{"expression": "log.length"}, &got)
	return got.Result.Value
}
