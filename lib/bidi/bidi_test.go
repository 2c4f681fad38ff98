package bidi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"btools/lib/jsonrpc"
)

// browser plays one: it answers session.new as told, echoes the parameters of echo,
// answers fail with an error, tells an event before the answer to tell, answers nothing
// to hang, reads nothing after stop, and ends the connection at die. A session that is to
// come late comes when the first of come is closed, and ends when the second is, if there
// is one. Ended gets each session that was ended.
func browser(t *testing.T, created string, come ...chan struct{}) (url string, ended chan struct{}) {
	t.Helper()
	ended = make(chan struct{}, 10)
	stopped := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		ctx := context.Background()
		say := func(format string, args ...any) {
			c.Write(ctx, websocket.MessageText, fmt.Appendf(nil, format, args...))
		}
		for {
			_, b, err := c.Read(ctx)
			if err != nil {
				return
			}
			id, params := jsonrpc.Get(b, "id"), jsonrpc.Get(b, "params")
			switch jsonrpc.GetString(b, "method") {
			case "session.new":
				answer, isLate := strings.CutPrefix(created, "late ")
				if isLate {
					<-come[0]
				}
				say(answer, id)
			case "stop":
				say(`{"type":"success","id":%s,"result":{}}`, id)
				<-stopped
				return
			case "echo":
				say(`{"type":"success","id":%s,"result":%s}`, id, params)
			case "fail":
				say(`{"type":"error","id":%s,"error":"no such frame","message":"it is gone"}`, id)
			case "tell":
				say(`{"type":"event","method":"x.happened","params":{"n":1}}`)
				say(`{"type":"success","id":%s,"result":{}}`, id)
			case "die":
				return
			case "session.end":
				if len(come) > 1 {
					<-come[1]
				}
				say(`{"type":"success","id":%s,"result":{}}`, id)
				ended <- struct{}{}
			}
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(stopped) })
	return "ws" + strings.TrimPrefix(s.URL, "http") + "/session", ended
}

func TestCalls(t *testing.T) {
	const created = `{"type":"success","id":%s,"result":{"sessionId":"s"}}`
	url, ended := browser(t, created)
	events := make(chan string, 1)
	c, err := Dial(t.Context(), url, func(method string, params json.RawMessage) {
		events <- method + string(params)
	})
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ A int }
	if err := c.Call(t.Context(), "echo", map[string]int{"a": 7}, &got); err != nil || got.A != 7 {
		t.Errorf("echo: %+v, %v", got, err)
	}
	var e *Error
	if err := c.Call(t.Context(), "fail", nil, nil); !errors.As(err, &e) || e.Code != NoSuchFrame ||
		err.Error() != "it is gone" {
		t.Errorf("fail: %v", err)
	}
	if err := c.Call(t.Context(), "tell", nil, nil); err != nil {
		t.Error(err)
	}
	if e := <-events; e != `x.happened{"n":1}` {
		t.Errorf("the event is %s", e)
	}
	late := errors.New("late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, late)
	defer cancel()
	if err := c.Call(ctx, "hang", nil, nil); !errors.Is(err, late) {
		t.Errorf("hang: %v", err)
	}
	c.Close()
	<-ended
	if err := c.Call(t.Context(), "echo", nil, nil); !errors.Is(err, ErrDisconnected) {
		t.Errorf("after the end: %v", err)
	}

	url, _ = browser(t, created)
	if c, err = Dial(t.Context(), url, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Call(t.Context(), "die", nil, nil); !errors.Is(err, ErrDisconnected) {
		t.Errorf("die: %v", err)
	}
	<-c.Done()
}

// A session that comes when it is not waited for any more would keep the browser from
// everybody else: it is ended.
func TestLateSession(t *testing.T) {
	come := make(chan struct{})
	url, ended := browser(t, `late {"type":"success","id":%s,"result":{"sessionId":"s"}}`, come)
	slow := errors.New("slow")
	for range 2 { // the second does not ask for another one meanwhile
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, slow)
		if _, err := Dial(ctx, url, nil); !errors.Is(err, slow) {
			t.Errorf("a session that comes too late: %v", err)
		}
		cancel()
	}
	close(come)
	<-ended
	c, err := Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	<-ended
	if len(ended) > 0 {
		t.Error("more sessions were made than two")
	}
}

// A session that the browser has not ended yet is not left behind, and nobody asks for another one meanwhile.
func TestLateEnd(t *testing.T) {
	t.Parallel()
	come := []chan struct{}{nil, make(chan struct{})}
	url, ended := browser(t, `{"type":"success","id":%s,"result":{"sessionId":"s"}}`, come...)
	c, err := Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, url, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another session meanwhile: %v", err)
	}
	close(come[1])
	<-ended
	if c, err = Dial(t.Context(), url, nil); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// A browser that does not read keeps no call longer than its context.
func TestStoppedBrowser(t *testing.T) {
	url, _ := browser(t, `{"type":"success","id":%s,"result":{}}`)
	c, err := Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Call(t.Context(), "stop", nil, nil); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 16<<20)
	if err := c.Call(ctx, "echo", large, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a call that is not read: %v", err)
	}
	c.Close()
}

func TestBrowserIsTaken(t *testing.T) {
	url, _ := browser(t, `{"type":"error","id":%s,"error":"session not created",`+
		`"message":"Maximum number of active sessions"}`)
	if _, err := Dial(t.Context(), url, nil); err == nil ||
		!strings.Contains(err.Error(), "another program drives it") {
		t.Errorf("a browser that another program drives: %v", err)
	}
	if _, err := Dial(t.Context(), "ws://127.0.0.1:1/session", nil); err == nil {
		t.Error("a browser that is not there")
	}
}
