package wire

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"btools/lib/jsonrpc"
)

func TestIDOf(t *testing.T) {
	for message, want := range map[string]int{
		`{"id":1,"result":{}}`: 1, `{"id":2147483647,`: 1<<31 - 1, `{"id":-7,"error":{}}`: -7, `{"id":0}`: 0,
	} {
		if id, ok := IDOf([]byte(message)); !ok || id != want {
			t.Errorf("%s: %d, %v", message, id, ok)
		}
	}
	for _, none := range []string{"", "{", `{"id":`, `{"id":-`, `{"id":5`, `{"id":"5"}`, `{"method":"a"}`, `{ "id":5}`,
		`{"id":99999999999999999999}`} {
		if id, ok := IDOf([]byte(none)); ok {
			t.Errorf("%s: %d", none, id)
		}
	}
}

// Messages are JSON whatever the words in them.
func TestMessages(t *testing.T) {
	odd := "a\"\\\n\u2028<é"
	for _, message := range [][]byte{
		Command("-5", odd, "Target.a", map[string]any{odd: odd}), Command("1", "", "A.b", json.RawMessage(`{"x":1}`)),
		Command("1", odd, "A.b", nil),
		Event("", "A.b", map[string]string{odd: odd}), Event(odd, "A.b", map[string]bool{}),
	} {
		if !json.Valid(message) {
			t.Errorf("%s", message)
		}
	}
	if s := jsonrpc.GetString(Command("1", odd, "A.b", nil), "sessionId"); s != odd {
		t.Errorf("a session is %q, want %q", s, odd)
	}
}

// Chrome answers nothing for a CDP session that ends: those that wait are told.
func TestCallsOfEndedSessions(t *testing.T) {
	c := NewCalls(func([]byte) {})
	var got []error
	note := func(_ json.RawMessage, err error) { got = append(got, err) }
	c.Begin("one", "A.b", nil, note)
	c.Begin("two", "A.b", nil, note)
	c.Begin("", "A.b", nil, note)
	c.Send("one", "A.b", nil)
	c.FailSession("one")
	if len(got) != 1 || got[0] != ErrDetached || c.Pending() != 2 {
		t.Errorf("after the end of one session: %v, %d wait", got, c.Pending())
	}
	c.Answered(-2, []byte(`{"id":-2,"error":{"code":-32000,"message":"no"}}`))
	c.Answered(-2, []byte(`{"id":-2,"result":{}}`))
	c.End()
	if len(got) != 3 || got[1].Error() != "no" || got[2] != ErrDisconnected || c.Pending() != 0 {
		t.Errorf("at the end: %v, %d wait", got, c.Pending())
	}
	late := make(chan error)
	c.Begin("", "A.b", nil, func(_ json.RawMessage, err error) { late <- err })
	if err := <-late; err != ErrDisconnected {
		t.Errorf("after the end: %v", err)
	}
}

// A pipe carries commands, answers and events, whatever their size, and its end
// fails what still waits.
func TestPipe(t *testing.T) {
	fromBrowser, toUs := io.Pipe()
	fromUs, toBrowser := io.Pipe()
	events := make(chan string, 1)
	p := NewPipe(fromBrowser, toBrowser, func(p *Pipe, method, session string, params json.RawMessage) {
		p.Send(session, "A.seen", nil) // the reader may
		events <- method + " " + session + " " + string(params)
	})
	commands := make(chan string)
	go func() {
		defer close(commands)
		for r := bufio.NewReader(fromUs); ; {
			c, err := r.ReadString(0)
			if err != nil {
				return
			}
			commands <- strings.TrimSuffix(c, "\x00")
		}
	}()
	long := strings.Repeat("x", 1<<20)
	answer := make(chan string, 1)
	go func() {
		got, err := p.Call(t.Context(), "s", "A.b", map[string]string{"long": long})
		answer <- fmt.Sprintf("%s %v", got, err)
	}()
	c := <-commands
	if jsonrpc.GetString(json.RawMessage(c), "params", "long") != long {
		t.Errorf("got a command of %d bytes", len(c))
	}
	fmt.Fprintf(toUs, "{\"id\":%s,\"result\":{\"long\":\"%s\"}}\x00", jsonrpc.Get(json.RawMessage(c), "id"), long)
	if got := <-answer; got != `{"long":"`+long+`"} <nil>` {
		t.Errorf("got an answer of %d bytes", len(got))
	}
	fmt.Fprint(toUs, `{"method":"A.happened","params":{"n":1},"sessionId":"s"}`+"\x00")
	if got := <-events; got != `A.happened s {"n":1}` {
		t.Errorf("the event is %s", got)
	}
	if c := <-commands; jsonrpc.GetString(json.RawMessage(c), "method") != "A.seen" {
		t.Errorf("got %s, want A.seen", c)
	}
	go func() {
		_, err := p.Call(t.Context(), "", "A.late", nil)
		answer <- fmt.Sprint(err)
	}()
	<-commands
	toUs.Close()
	if got := <-answer; got != ErrDisconnected.Error() {
		t.Errorf("at the end: %s", got)
	}
	<-p.Done()
	p.Wait()
	toBrowser.Close()
}
