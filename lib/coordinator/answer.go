package coordinator

import (
	"encoding/json"
	"slices"
	"time"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/tools"
)

// answer is the answer of a child to a request, on its way to the host.
type answer struct {
	*request
	got    *jsonrpc.Message
	result json.RawMessage // of got, as the steps before have changed it
}

// step is something that is done with an answer before the host gets it.
type step struct {
	// waits reports whether the step concerns an answer; it may wait then, for a browser or
	// for the disk. Nil: it concerns each, and never waits.
	waits func(*answer) bool
	do    func(*answer) json.RawMessage
}

// steps are taken in this order.
var steps = []step{
	{(*answer).hasSecrets, func(a *answer) json.RawMessage { return a.host.server.Secrets.MaskJSON(a.result) }},
	{(*answer).isLarge, (*answer).shrunk},
	{(*answer).hasPort, (*answer).withDownloads},
	{(*answer).mayTellOfDeath, (*answer).awaitDeath},
	{(*answer).hasBrowser, (*answer).noted},
	{nil, func(a *answer) json.RawMessage { return a.env.Era.Result(a.Method, a.result) }},
}

// answer answers the request with the answer of its child.
func (req *request) answer(got *jsonrpc.Message, err error) {
	a := &answer{request: req, got: got}
	switch {
	case err != nil:
		req.fault(err)
		return
	case got.Result == nil:
		req.finish(req.env.Era.Failure(req.Method, got).WithID(req.ID))
		return
	}
	a.result = got.Result
	if slices.ContainsFunc(steps, func(s step) bool { return s.waits != nil && s.waits(a) }) {
		req.host.do(a.take) // or the host's end answers it
		return
	}
	a.take()
}

// take takes the steps, and answers the request.
func (a *answer) take() {
	for _, s := range steps {
		if s.waits == nil || s.waits(a) {
			a.result = s.do(a)
		}
	}
	if len(a.result) == 0 || &a.result[0] == &a.got.Result[0] {
		a.finish(a.got.WithID(a.ID)) // every byte as it came
		return
	}
	a.finish(jsonrpc.Response(a.ID, a.result))
}

// hasSecrets reports whether an answer may have secrets, which must not be cut: builtin has replaced them.
func (a *answer) hasSecrets() bool {
	p, _ := a.Child()
	return a.host.server.Secrets != nil && p != nil && !p.sup.child.Builtin
}

// hasPort reports whether the request is a call on a browser whose port bmcp knows.
func (a *answer) hasPort() bool {
	return a.lease != nil && a.Method == "tools/call" && a.lease.HTTPURL != ""
}

// hasBrowser reports whether the request is a call on a browser by an agent: notes are told once.
func (a *answer) hasBrowser() bool { return a.lease != nil && a.env.Name != tools.ViewFrame }

const (
	maxFault    = 64 << 10 // bytes of a result that tells of a fault
	noticeDelay = 30 * time.Millisecond
)

// mayTellOfDeath reports whether a result may come of the end of the browser, which the
// child has noticed before bmcp: then the next call must not go there too.
func (a *answer) mayTellOfDeath() bool {
	return a.lease != nil && a.lease.Died != nil && len(a.result) < maxFault &&
		string(jsonrpc.Get(a.result, "isError")) == "true"
}

func (a *answer) awaitDeath() json.RawMessage {
	select {
	case <-a.lease.Died:
	case <-time.After(noticeDelay):
	}
	return a.result
}

// Members of a result's _meta.
const (
	metaPool     = "btools/pool"
	metaInstance = "btools/instance"
	metaReplaced = "btools/replaced"
	metaRestored = "btools/restored"
)

func (a *answer) noted() json.RawMessage { return a.host.noted(a.lease, a.result) }

// noted adds to a result what its reader has to know of the browser that it comes from.
func (h *Host) noted(p *source.Lease, result json.RawMessage) json.RawMessage {
	if len(result) == 0 || result[0] != '{' {
		return result // what no client takes, but its child's
	}
	r := h.browsers.Note(h.ctx, p)
	meta := jsonrpc.Get(result, "_meta")
	set := func(name, value string) {
		if value != "" {
			meta = jsonrpc.Set(meta, name, jsonrpc.Quote(value))
		}
	}
	set(metaInstance, p.Instance)
	set(metaPool, p.Pool)
	set(metaReplaced, r.Replaced)
	set(metaRestored, r.Restored)
	if meta != nil {
		result = jsonrpc.Set(result, "_meta", meta)
	}
	if text := r.Text(); text != "" {
		if content := jsonrpc.Get(result, "content"); len(content) > 1 && content[0] == '[' {
			result = jsonrpc.Set(result, "content", mcp.WithText(content, text))
		}
	}
	return result
}
