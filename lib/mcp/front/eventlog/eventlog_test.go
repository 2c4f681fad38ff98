package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// host is a connection that fails after some bytes; 0: it never does.
type host struct {
	bytes.Buffer
	failsAfter int
}

func (h *host) Write(b []byte) (int, error) {
	if h.failsAfter > 0 && h.Len()+len(b) > h.failsAfter {
		return 0, io.ErrClosedPipe
	}
	return h.Buffer.Write(b)
}

func (h *host) Flush() error { return nil }

// ids are the IDs of the events in what was written, and their data.
func (h *host) events() (ids, data []string) {
	for _, line := range strings.Split(h.String(), "\n") {
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			ids = append(ids, id)
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			data = append(data, d)
		}
	}
	return ids, data
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func begin(t *testing.T, l *Log, ids ...string) *Stream {
	t.Helper()
	st, taken := l.Begin(nil, ids...)
	if st == nil {
		t.Fatalf("the ID %s is taken", taken)
	}
	return st
}

// A host that has lost its connection gets the rest of the stream, and gets it
// again when the stream is over.
func TestResume(t *testing.T) {
	l := New(false, DefaultLimits)
	listener := l.Listen(begin(t, l, "1"))
	l.Add("1", false, []byte("a"))
	l.Add("1", false, []byte("b"))
	l.Add("1", true, []byte("c"))
	lost := &host{failsAfter: len("id: 1-0\nretry: 500\ndata: \n\nid: 1-1\nevent: message\ndata: a\n\n")}
	listener.Write(t.Context(), lost, true)
	ids, data := lost.events()
	want(t, "IDs", ids, []string{"1-0", "1-1"})
	want(t, "data", data, []string{"", "a"})
	for range 2 {
		again, err := l.Resume("1-1")
		if err != nil {
			t.Fatal(err)
		}
		got := &host{}
		again.Write(t.Context(), got, false)
		ids, data = got.events()
		want(t, "IDs", ids, []string{"1-2", "1-3"})
		want(t, "data", data, []string{"b", "c"})
	}
	for _, event := range []string{"7-0", "1-4", "x", "", "-1--1", "1-", "1"} {
		if _, err := l.Resume(event); err == nil {
			t.Errorf("%q is resumed", event)
		}
	}
}

// The stream of several requests ends with the answer to the last one. An ID
// can be used again after that, and by none before.
func TestSeveralRequests(t *testing.T) {
	l := New(false, DefaultLimits)
	listener := l.Listen(begin(t, l, "1", "2"))
	for _, ids := range [][]string{{"2"}, {"3", "1"}, {"3", "3"}} {
		if st, taken := l.Begin(nil, ids...); st != nil || taken != ids[len(ids)-1] {
			t.Errorf("%q: %q is taken", ids, taken)
		}
	}
	l.Add("2", true, []byte("two"))
	l.Add("2", true, []byte("two again"))
	l.Add("1", true, nil) // cancelled
	got := &host{}
	listener.Write(t.Context(), got, false)
	_, data := got.events()
	want(t, "data", data, []string{"two"})
	begin(t, l, "1", "2")
}

// What belongs to no request goes to the listener that came last; the one
// before leaves, and the events that it has written are not written again.
func TestTwoListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(false, DefaultLimits)
		listen := func(ctx context.Context) (*host, <-chan struct{}) {
			h, done, listener := &host{}, make(chan struct{}), l.ListenGeneral()
			go func() {
				defer close(done)
				listener.Write(ctx, h, false)
			}()
			synctest.Wait()
			return h, done
		}
		l.Add("", false, []byte("a"))
		first, left := listen(t.Context())
		l.Add("", false, []byte("b"))
		synctest.Wait()
		second, closed := listen(t.Context())
		<-left
		l.Add("", false, []byte("c"))
		synctest.Wait()
		if l.Idle() {
			t.Error("nobody listens")
		}
		l.Close()
		<-closed
		_, data := first.events()
		want(t, "the first", data, []string{"a", "b"})
		_, data = second.events()
		want(t, "the second", data, []string{"c"})
		if !l.Idle() {
			t.Error("somebody listens")
		}
	})
}

// A listener that has nothing to write writes a comment, and tells who keeps
// the session; it ends with its context.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(false, DefaultLimits)
		l.KeepAlive = time.Minute
		alive := 0
		l.Alive = func() { alive++ }
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Second)
		defer cancel()
		h := &host{}
		l.ListenGeneral().Write(ctx, h, false)
		want(t, "calls", alive, 3)
		want(t, "text", h.String(), strings.Repeat(": alive\n\n", 3))
	})
}

// A host that never resumes gets no IDs, and what it does not wait for is not
// kept.
func TestOnce(t *testing.T) {
	l := New(true, DefaultLimits)
	listener := l.Listen(begin(t, l, "1"))
	l.Add("nobody", false, []byte("x"))
	l.Add("1", false, []byte("a"))
	l.Add("1", true, []byte("b\r"))
	got := &host{}
	listener.Write(t.Context(), got, true)
	want(t, "text", got.String(), "event: message\ndata: a\n\nevent: message\ndata: b \n\n")
	want(t, "streams", len(l.streams.all), 1) // the general one
}

// The only event of a stream can be had as such.
func TestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(true, DefaultLimits)
		one := l.Listen(begin(t, l, "1"))
		l.Add("1", true, []byte("a"))
		message, err := one.Only(t.Context())
		want(t, "one", fmt.Sprint(string(message), err), "a<nil>")
		two := l.Listen(begin(t, l, "2"))
		l.Add("2", false, []byte("a"))
		message, err = two.Only(t.Context())
		want(t, "two", fmt.Sprint(string(message), err), "<nil>")
		l.Add("2", true, []byte("b"))
		got := &host{}
		two.Write(t.Context(), got, false)
		_, data := got.events()
		want(t, "two", data, []string{"a", "b"})
		late := l.Listen(begin(t, l, "3"))
		if message, err = late.Only(t.Context()); message != nil || err != nil {
			t.Errorf("late: %s, %v", message, err)
		}
		gone := l.Listen(begin(t, l, "4"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err = gone.Only(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("gone: %v", err)
		}
	})
}

// Beyond the limits the oldest events are dropped, those first that were sent;
// a host that asks for one of them is told so.
func TestLimits(t *testing.T) {
	l := New(false, Limits{Unsent: 3, UnsentBytes: 100, SentBytes: 10, Finished: 2})
	kept := func(st *Stream) string { return string(bytes.Join(st.events, nil)) }
	general := l.streams.general
	for _, c := range "abcd" {
		l.Add("", false, []byte(string(c)))
	}
	want(t, "by number", kept(general), "bcd")
	if _, err := l.Resume("0-0"); err == nil {
		t.Error("a dropped event is resumed")
	}
	l.Add("", false, []byte(strings.Repeat("e", 99)))
	want(t, "by bytes", kept(general), "d"+strings.Repeat("e", 99))
	l.Add("", false, []byte(strings.Repeat("f", 200)))
	want(t, "one", kept(general), strings.Repeat("f", 200)) // as large as it is
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.ListenGeneral().Write(ctx, &host{}, false)
	l.Add("", false, []byte("g"))
	want(t, "sent", kept(general), "g")

	finish := func(id, message string, read bool) *Stream {
		st := begin(t, l, id)
		l.Add(id, true, []byte(message))
		if read {
			l.Listen(st).Write(t.Context(), &host{}, false)
		}
		return st
	}
	is := func(st *Stream) bool { return l.streams.all[st.number] == st }
	a := finish("a", "a", false)
	b := finish("b", "b", false)
	finish("c", "c", false)
	want(t, "at most two", fmt.Sprint(is(a), is(b)), "false true")
	d := finish("d", strings.Repeat("d", 20), true)
	e := finish("e", "e", false)
	want(t, "sent ones first", fmt.Sprint(is(d), is(e)), "false true")
}
