package tools

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"btools/lib/logins"
)

// host is an agent's host with a server of its own.
type host struct {
	t       *testing.T
	in      io.WriteCloser
	answers chan answer
	last    *int
}

type answer struct {
	ID     int
	Result struct {
		Content []struct{ Type, Text, Data, MimeType string }
		IsError bool
	}
	Error struct{ Message string }
}

// serve starts a server for the browser at an endpoint, whose bounds are counted in
// seconds of that length; 0: of that of a second.
func serve(t *testing.T, endpoint string, second time.Duration) *host {
	t.Helper()
	return serveWith(t, Options{Endpoint: endpoint, Second: second})
}

// serveWith serves a host all tools, with these options as well.
func serveWith(t *testing.T, o Options) *host {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	h := &host{t: t, in: toServer, answers: make(chan answer, 1000), last: new(int)}
	all, err := Names("all")
	if err != nil {
		t.Fatal(err)
	}
	o.Dir, o.Only, o.AllFiles = t.TempDir(), all, true
	o.ListStates = func(context.Context) ([]logins.Info, []string, error) { return nil, nil, nil }
	o.SaveState = func(context.Context, string, bool) (logins.Info, []string, error) {
		return logins.Info{}, nil, nil
	}
	o.Clients = func(context.Context) int { return 1 }
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(t.Context(), in, out, o)
		out.Close()
	}()
	go func() {
		defer close(h.answers)
		lines := bufio.NewReader(fromServer)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var a answer
			if json.Unmarshal(line, &a) == nil && a.ID > 0 {
				h.answers <- a
			}
		}
	}()
	t.Cleanup(func() {
		toServer.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return h
}

// begin calls a tool and does not wait.
func (h *host) begin(tool, args string) {
	*h.last++
	fmt.Fprintf(h.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`+"\n",
		*h.last, tool, args)
}

// call calls a tool and returns what it says, and how long it took.
func (h *host) call(tool, args string) (text string, isError bool, took time.Duration) {
	h.t.Helper()
	began := time.Now()
	h.begin(tool, args)
	for a := range h.answers {
		if a.ID != *h.last {
			continue
		}
		if a.Error.Message != "" {
			h.t.Fatalf("%s: %s", tool, a.Error.Message)
		}
		var all []string
		for _, c := range a.Result.Content {
			all = append(all, c.Text+c.MimeType)
		}
		return strings.Join(all, "\n"), a.Result.IsError, time.Since(began)
	}
	h.t.Fatalf("%s: the server has ended", tool)
	return "", false, 0
}

// wants calls a tool, whose result is to have a text and to be an error or not.
func (h *host) wants(isError bool, want, tool, args string) string {
	h.t.Helper()
	text, is, took := h.call(tool, args)
	if is != isError || !strings.Contains(text+"\n", want) {
		h.t.Errorf("%s %s: an error: %v, after %v:\n%.1500s\nwant %v and %q", tool, args, is, took, text, isError, want)
	}
	return text
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// as is the host in a test of its own.
func (h *host) as(t *testing.T) *host {
	same := *h
	same.t = t
	return &same
}

// until calls a tool until its result has a text.
func until(h *host, want, tool, args string) {
	h.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, _, _ := h.call(tool, args)
		if strings.Contains(text, want) {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("%s does not say %q: %s", tool, want, text)
		}
	}
}
