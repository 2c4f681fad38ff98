package front

import (
	"encoding/json"
	"sync"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
)

// batch are the messages of an array, at most so many, or why the host may not send
// it. What is no message has an error in its place.
func batch(host Host, array []byte, most int) ([]*jsonrpc.Message, []error, error) {
	if !host.TakesBatches() {
		return nil, nil, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"not a request: expected a JSON object; arrays of them belong to the protocol %s, after its initialize",
			mcp.Batching)
	}
	var messages []*jsonrpc.Message
	var errs []error
	for raw := range jsonrpc.Elements(array) {
		m, err := jsonrpc.Parse(raw)
		switch {
		case err != nil:
			err = jsonrpc.Errorf(jsonrpc.InvalidRequest, "not a request: %v", err)
		case m.Method == "initialize":
			err = jsonrpc.Errorf(jsonrpc.InvalidRequest, "initialize is not for a batch")
		}
		messages, errs = append(messages, m), append(errs, err)
		if len(messages) > most {
			break
		}
	}
	if len(messages) == 0 || len(messages) > most {
		return nil, nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "a batch has 1 to %d messages", most)
	}
	return messages, errs, nil
}

// batches collects the answers of a batch into one array.
type batches struct {
	mu   sync.Mutex
	open map[string][]*answers // by the ID of a request, the oldest first
}

// answers are those to the requests of a batch.
type answers struct {
	all  []json.RawMessage
	left int // requests that are not answered
}

// handle takes a batch. It returns the answer to it if that need not be waited
// for.
func (b *batches) handle(host Host, array []byte, most int) []byte {
	messages, errs, err := batch(host, array, most)
	if err != nil {
		return failure(nil, err)
	}
	to := &answers{}
	b.mu.Lock()
	for i, m := range messages {
		switch {
		case errs[i] != nil && m != nil:
			to.all = append(to.all, failure(m.ID, errs[i]))
		case errs[i] != nil:
			to.all = append(to.all, failure(nil, errs[i]))
		case m.IsRequest():
			if b.open == nil {
				b.open = map[string][]*answers{}
			}
			b.open[string(m.ID)] = append(b.open[string(m.ID)], to)
			to.left++
		}
	}
	now := to.left == 0 && len(to.all) > 0
	b.mu.Unlock()
	for i, m := range messages {
		if errs[i] == nil {
			host.Handle(m, nil)
		}
	}
	if now {
		return jsonrpc.Array(to.all)
	}
	return nil
}

// hold keeps a message back if it answers a request of a batch that has others
// open, and returns what is to be said now; nil: nothing.
func (b *batches) hold(id string, last bool, message []byte) []byte {
	if !last {
		return message
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.open[id]
	if len(of) == 0 {
		return message
	}
	to := of[0]
	if b.open[id] = of[1:]; len(of) == 1 {
		delete(b.open, id)
	}
	if message != nil {
		to.all = append(to.all, message)
	}
	if to.left--; to.left > 0 || len(to.all) == 0 {
		return nil
	}
	return jsonrpc.Array(to.all)
}
