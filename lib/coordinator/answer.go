package coordinator

import (
	"encoding/json"
	"slices"
	"time"

	"btools/lib/jsonrpc"
)

// step is something that is done with the result of a child before the host gets it.
type step struct {
	// waits reports whether the step concerns a result; it may wait then, for a browser or
	// for the disk. Nil: it concerns each, and never waits.
	waits func(*request, json.RawMessage) bool
	do    func(*request, json.RawMessage) json.RawMessage
}

// steps are taken in this order.
var steps = []step{
	{(*request).isLarge, (*request).bounded},
	{(*request).hasPort, (*request).withDownloads},
	{(*request).mayTellOfDeath, (*request).awaitDeath},
	{(*request).hasBrowser, (*request).noted},
	{nil, func(req *request, result json.RawMessage) json.RawMessage {
		return req.env.Era.Result(req.Method, result)
	}},
}

// answer answers the request with the answer of its child.
func (req *request) answer(got *jsonrpc.Message, err error) {
	switch {
	case err != nil:
		req.fault(err)
	case got.Result == nil:
		req.finish(req.env.Era.Failure(req.Method, got).WithID(req.ID))
	case slices.ContainsFunc(steps, func(s step) bool { return s.waits != nil && s.waits(req, got.Result) }):
		req.host.do(func() { req.finish(req.taken(got)) }) // or the session's end answers it
	default:
		req.finish(req.taken(got))
	}
}

// taken is a child's answer after the steps.
func (req *request) taken(got *jsonrpc.Message) []byte {
	result := got.Result
	for _, s := range steps {
		if s.waits == nil || s.waits(req, result) {
			result = s.do(req, result)
		}
	}
	if len(result) == 0 || &result[0] == &got.Result[0] {
		return got.WithID(req.ID) // every byte as it came
	}
	return jsonrpc.Response(req.ID, result)
}

// hasPort reports whether the request is a call on a browser whose port bmcp knows.
func (req *request) hasPort(json.RawMessage) bool {
	return req.lease != nil && req.Method == "tools/call" && req.lease.HTTPURL != ""
}

// hasBrowser reports whether the request is a call on a browser.
func (req *request) hasBrowser(json.RawMessage) bool { return req.lease != nil }

const (
	maxFault    = 64 << 10 // bytes of a result that tells of a fault
	noticeDelay = 30 * time.Millisecond
)

// mayTellOfDeath reports whether a result may come of the end of the browser, which the
// child has noticed before bmcp: then the next call must not go there too.
func (req *request) mayTellOfDeath(result json.RawMessage) bool {
	return req.lease != nil && req.lease.Died != nil && len(result) < maxFault &&
		string(jsonrpc.Get(result, "isError")) == "true"
}

func (req *request) awaitDeath(result json.RawMessage) json.RawMessage {
	select {
	case <-req.lease.Died:
	case <-time.After(noticeDelay):
	}
	return result
}
