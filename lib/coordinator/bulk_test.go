package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"btools/lib/jsonrpc"
)

// The first result of a bulk call on another browser says so.
func TestBulkOnReplacedBrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTaskHost(t)
		at := &mortal{Browsers: h.browsers}
		h.browsers, h.server.Children[0] = at, driver
		h.shakeHands()
		for i, c := range []struct {
			id   string
			told bool
		}{{"one", false}, {"one", false}, {"two", true}, {"two", false}} {
			at.Browser.ID = c.id
			got := h.call("tools/call", `{"name":"browser_execute_bulk","arguments":{"commands":[{"tool":"echo"}]}}`)
			if told := strings.Contains(got, `"btools/replaced":"the browser was launched anew"`) &&
				strings.Contains(got, "Note: the browser was launched anew. Pages"); told != c.told {
				t.Errorf("call %d says that its browser was replaced: %v, want %v (%s)", i, told, c.told, got)
			}
		}
	})
}

// Numbers reach the tools of a bulk call as the host wrote them.
func TestBulkKeepsNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const args = `{"n":9007199254740993,"x":1e400,"y":1.10}`
		var got string
		f := newFixture(t, wellBehaved(func(_ *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
			if m.Method == "tools/call" {
				got = string(jsonrpc.Get(m.Params, "arguments"))
			}
			return `{"content":[]}`, nil
		}))
		f.shakeHands()
		f.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"browser_execute_bulk",`+
			`"arguments":{"commands":[{"tool":"echo","args":%s}]}}}`, args))
		if got != args {
			t.Errorf("the tool got %s, want %s", got, args)
		}
	})
}
