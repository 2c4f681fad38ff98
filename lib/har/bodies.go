package har

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	"btools/lib/jsonrpc"
)

// index is the result of the first reading of a trace.
type index struct {
	bodies  map[string][]span // answers with the body of a response, by request
	posts   map[string][]span // answers with the body of a request
	browser *Creator
	events  int // of the Network domain
	damaged int // lines
}

// maxAsked is how many commands may wait for their answer; the oldest is
// forgotten.
const maxAsked = 100_000

// scan reads a trace for the first time.
func scan(read *lines) (*index, error) {
	x := &index{bodies: map[string][]span{}, posts: map[string][]span{}}
	asked := map[string]func(span){}
	for {
		l, err := read.next()
		if err != nil {
			x.damaged = read.damaged
			if errors.Is(err, io.EOF) {
				return x, nil
			}
			return nil, err
		}
		m := decode(l.message)
		key := l.connection + "\n" + m.session + "\n" + string(m.id)
		switch {
		case l.toBrowser:
			in := x.answers(m.method)
			if in == nil || len(asked) >= maxAsked {
				continue
			}
			request := jsonrpc.GetString(m.params, "requestId")
			asked[key] = func(at span) { in[request] = append(in[request], at) }
		case strings.HasPrefix(m.method, "Network."):
			x.events++
		case asked[key] != nil:
			if m.result != nil {
				asked[key](l.at)
			}
			delete(asked, key)
		case m.method == "" && x.browser == nil:
			if product := jsonrpc.GetString(m.result, "product"); product != "" {
				name, version, _ := strings.Cut(product, "/")
				x.browser = &Creator{name, version}
			}
		}
	}
}

// answers returns where the answers to a command are kept; nil: they are not.
func (x *index) answers(method string) map[string][]span {
	switch method {
	case "Network.getResponseBody":
		return x.bodies
	case "Network.getRequestPostData":
		return x.posts
	}
	return nil
}

// find returns the result of the first answer after a place in the trace.
func find(trace io.ReaderAt, answers []span, after int64) json.RawMessage {
	for _, a := range answers {
		if a.at < after {
			continue
		}
		b := make([]byte, a.size)
		if _, err := trace.ReadAt(b, a.at); err != nil && !errors.Is(err, io.EOF) {
			return nil
		}
		l, _ := parse(b)
		return decode(l.message).result
	}
	return nil
}
