package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"btools/lib/jsonrpc"
)

// stateless is the newest protocol: it has no handshake, each request says
// what its host can do. What a child asks meanwhile is the answer to the
// request, which the host makes again with what it is asked for.
const stateless = "2026-07-28"

// Error codes of the stateless protocol.
const (
	headerMismatch     = -32020
	missingCapability  = -32021
	unsupportedVersion = -32022
	legacyNotFound     = -32002 // of a resource, in the protocols before it
)

// Members of _meta.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaServer       = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

const (
	// settleDelay is how long what a child asks waits for more of it, so that
	// the host has to come again only once.
	settleDelay = 20 * time.Millisecond
	// parkedFor is how long a request waits for the host to come again: people
	// may have to be asked.
	parkedFor = 5 * time.Minute
	// maxParked is how many requests of a session wait so at most.
	maxParked = 64
	// maxSets is how many sets of what its hosts can be asked a session has
	// children for.
	maxSets = 8
	// maxSubscriptions is how many resources one subscriptions/listen is
	// acknowledged for.
	maxSubscriptions = 1000
)

// input is what a request's host is asked by the answer to it, and the state of
// one that has asked: the host makes it again, with another ID.
type input struct {
	given json.RawMessage // what the host has answered already, by key
	asked map[string]ask  // what it is to be asked, by key
	soon  bool            // it is about to be

	// Of one that has asked its host:
	name   string          // what the request is about, which has to be the same again
	now    json.RawMessage // the ID of the request that has come again; nil: none has
	again  json.RawMessage // and the token of its progress
	state  string          // that it has to bring; "": it has not been asked
	before string          // the state before, if the answer with the new one is lost
	parked bool            // the host is to come again; else it waits for us
	answer []byte          // that has come meanwhile
	expire *time.Timer
}

// levels are those of log messages, the least severe first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// isStateless reports whether a request is of the stateless protocol, by what it
// says of itself or by its method.
func isStateless(m *jsonrpc.Message) bool {
	return m.Method == "server/discover" || m.Method == "subscriptions/listen" || jsonrpc.GetString(m.Params, "_meta", metaVersion) > legacy
}

// checkMeta refuses a request of the stateless protocol that does not say what
// it has to.
func checkMeta(m *jsonrpc.Message) error {
	meta := jsonrpc.Get(m.Params, "_meta")
	if jsonrpc.GetString(meta, metaVersion) == "" {
		return jsonrpc.Errorf(jsonrpc.InvalidParams, "the member %q of _meta is missing", metaVersion)
	}
	if caps := jsonrpc.Get(meta, metaCapabilities); len(caps) == 0 || caps[0] != '{' {
		return jsonrpc.Errorf(jsonrpc.InvalidParams, "the member %q of _meta is missing, or no object", metaCapabilities)
	}
	return nil
}

// checkVersion refuses a version that is not spoken.
func checkVersion(m *jsonrpc.Message) error {
	asked := jsonrpc.GetString(m.Params, "_meta", metaVersion)
	if asked == stateless {
		return nil
	}
	e := jsonrpc.Errorf(unsupportedVersion, "the protocol version %q is not spoken here", asked)
	e.Data, _ = json.Marshal(map[string]any{"supported": []string{stateless}, "requested": asked})
	return e
}

// subject is the name of what a request is about.
func subject(m *jsonrpc.Message) string {
	if m.Method == "resources/read" {
		return jsonrpc.GetString(m.Params, "uri")
	}
	return jsonrpc.GetString(m.Params, "name")
}

// askable are those of a host's capabilities that a child may make use of: no
// others, as each other set is another child.
func askable(caps json.RawMessage) json.RawMessage {
	out := json.RawMessage("{}")
	for _, can := range []struct {
		name  string
		parts []string
	}{{"sampling", []string{"tools", "context"}}, {"roots", nil}, {"elicitation", []string{"url", "form"}}} {
		has := jsonrpc.Get(caps, can.name)
		if len(has) == 0 || has[0] != '{' {
			continue
		}
		parts := json.RawMessage("{}")
		for _, part := range can.parts {
			if jsonrpc.Get(has, part) != nil {
				parts = jsonrpc.Set(parts, part, json.RawMessage("{}"))
			}
		}
		out = jsonrpc.Set(out, can.name, parts)
	}
	return out
}

// capabilitiesOf are those of the request that something is done for.
func capabilitiesOf(ctx context.Context) json.RawMessage {
	if f, ok := ctx.Value(flightKey{}).(*flight); ok {
		return f.caps
	}
	return nil
}

// askLater has the host asked what a child asks, by the answer to the request
// that the child is answering. A child does not say which one that is; among
// those of hosts that know nothing of each other it is not guessed.
func (s *Session) askLater(p *process, m *jsonrpc.Message) {
	key := string(m.ID)
	if key[0] == '"' {
		json.Unmarshal(m.ID, &key)
	}
	p.curious.Store(true)
	s.mu.Lock()
	f := s.oldestLocked(p, func(f *flight) bool {
		return f.dialect.asks(f.method)
	})
	var no *jsonrpc.Error
	switch {
	case s.closed || f == nil || f.asked[key].p != nil || !s.isHisLocked(p, f):
		no = errWhose
	case len(f.asked) >= maxQuestions:
		no = errQuestions
	}
	if no != nil {
		s.mu.Unlock()
		p.in.Write(jsonrpc.Failure(m.ID, no), false)
		return
	}
	if given := f.takeGiven(key); given != nil {
		s.mu.Unlock()
		p.in.Write(jsonrpc.Response(m.ID, given), false)
		return
	}
	params := slices.Clone(m.Params)
	if params == nil {
		params = json.RawMessage("{}")
	}
	f.asked[key] = ask{p: p, id: slices.Clone(m.ID), request: jsonrpc.Set(jsonrpc.Set(nil, "params", params), "method", quote(m.Method))}
	now := !f.soon && !f.parked
	f.soon = f.soon || now
	s.mu.Unlock()
	if now {
		time.AfterFunc(settleDelay, func() { s.do(func() { s.park(f) }) })
	}
}

var errWhose = jsonrpc.Errorf(jsonrpc.MethodNotFound, "the host can't be asked: it is not clear by which request, or one with this id is open")

// park answers a request with what the host is asked, and keeps it until the
// host comes again with that.
func (s *Session) park(f *flight) {
	s.mu.Lock()
	f.soon = false
	if f.done || f.parked || len(f.asked) == 0 || s.closed {
		s.mu.Unlock()
		return
	}
	id := f.current()
	delete(s.flights, string(id))
	state := rand.Text()
	f.before, f.state = f.state, state
	f.parked = true
	s.parked[state] = f
	if f.before != "" {
		s.parked[f.before] = f
	}
	f.expire = time.AfterFunc(parkedFor, func() { s.do(func() { s.giveUp(f) }) })
	requests := json.RawMessage("{}")
	for key, a := range f.asked {
		requests = jsonrpc.Set(requests, key, a.request)
	}
	var oldest *flight
	if len(s.parked) > maxParked {
		for _, other := range s.parked {
			if oldest == nil || other.age < oldest.age {
				oldest = other
			}
		}
	}
	s.mu.Unlock()
	result := jsonrpc.Set(jsonrpc.Set(nil, "requestState", quote(state)), "inputRequests", requests)
	result = f.dialect.result(f.method, jsonrpc.Set(result, "resultType", json.RawMessage(`"input_required"`)))
	s.send(id, true, jsonrpc.Response(id, result))
	if oldest != nil {
		s.giveUp(oldest)
	}
}

// unparkLocked has a request wait for its host no more.
func (s *Session) unparkLocked(f *flight) {
	f.parked = false
	f.expire.Stop()
	delete(s.parked, f.state)
	delete(s.parked, f.before)
}

// resume goes on with a request that has come again, and reports whether it
// is one. The request that it came as first stays what it is.
func (s *Session) resume(m *jsonrpc.Message, again *flight) bool {
	state := jsonrpc.GetString(m.Params, "requestState")
	if state == "" {
		return false
	}
	s.mu.Lock()
	f := s.parked[state]
	if again.done || s.closed {
		s.mu.Unlock()
		return true
	}
	if f == nil || f.method != again.method || f.name != again.name {
		s.mu.Unlock()
		s.fail(again, jsonrpc.Errorf(jsonrpc.InvalidParams, "the requestState is not that of such a request, or too old: leave it out to begin anew"))
		return true
	}
	again.cancel()
	s.unparkLocked(f)
	f.now, f.again, f.level, f.given = again.id, again.token, again.level, again.given
	f.state = state
	s.flights[string(f.now)] = f
	type reply struct {
		ask
		result json.RawMessage
	}
	var replies []reply
	for key, a := range f.asked {
		if given := f.takeGiven(key); given != nil {
			replies = append(replies, reply{a, given})
			delete(f.asked, key)
		}
	}
	done, answer := f.done, f.answer
	if done {
		delete(s.flights, string(f.now))
	}
	s.mu.Unlock()
	if done {
		if got, err := jsonrpc.Parse(answer); err == nil {
			s.send(again.id, true, got.WithID(again.id))
		}
		return true
	}
	for _, r := range replies {
		r.p.in.Write(jsonrpc.Response(r.id, r.result), false)
	}
	s.park(f) // with what is still asked
	return true
}

// takeGiven is what the host has answered, nil if it has not: an object, and
// only once.
func (f *input) takeGiven(key string) json.RawMessage {
	given := jsonrpc.Get(f.given, key)
	if len(given) == 0 || given[0] != '{' {
		return nil
	}
	f.given = jsonrpc.Delete(f.given, key)
	return given
}

// giveUp ends a request that the host does not come again for.
func (s *Session) giveUp(f *flight) {
	s.mu.Lock()
	parked, p, n := f.parked, f.p, f.n
	if parked {
		s.unparkLocked(f)
	}
	s.mu.Unlock()
	if parked {
		s.finish(f, nil)
		p.forget(n, "the host does not come again")
	}
}

// giveUpParked ends a request that is parked, by the ID that it had last.
func (s *Session) giveUpParked(id json.RawMessage) {
	s.mu.Lock()
	var cancelled *flight
	for _, f := range s.parked {
		if string(f.current()) == string(id) {
			cancelled = f
		}
	}
	s.mu.Unlock()
	if cancelled != nil {
		s.giveUp(cancelled)
	}
}

// current is the ID that the host waits for.
func (f *flight) current() json.RawMessage {
	if f.now != nil {
		return f.now
	}
	return f.id
}

// listen acknowledges a subscription, which lasts until it is cancelled or the
// session ends.
func (s *Session) listen(ctx context.Context, f *flight, m *jsonrpc.Message) {
	want := jsonrpc.Get(m.Params, "notifications")
	can, _ := s.c.capabilities(json.RawMessage(`{"tools":{}}`))
	agreed := json.RawMessage("{}")
	for name, capability := range map[string]string{"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"} {
		if string(jsonrpc.Get(want, name)) == "true" && jsonrpc.Get(can, capability) != nil {
			agreed = jsonrpc.Set(agreed, name, json.RawMessage("true"))
		}
	}
	var uris []json.RawMessage
	if jsonrpc.Get(can, "resources", "subscribe") != nil {
		uris = slices.Collect(upTo(maxSubscriptions, jsonrpc.Elements(jsonrpc.Get(want, "resourceSubscriptions"))))
	}
	if len(uris) > 0 {
		agreed = jsonrpc.Set(agreed, "resourceSubscriptions", jsonrpc.Array(uris))
	}
	s.mu.Lock()
	if f.done {
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.send(f.id, false, jsonrpc.Request(nil, "notifications/subscriptions/acknowledged", tagged(f, jsonrpc.Set(nil, "notifications", agreed))))
	s.mu.Lock()
	f.filter = slices.Clone(agreed) // what comes must come after that
	if l := s.listLocked(f.caps); l.told == nil {
		l.told = s.toolsLocked(l) // what changes from now on is told
	}
	s.mu.Unlock()
	for _, raw := range uris {
		var uri string
		if json.Unmarshal(raw, &uri) != nil {
			continue
		}
		for _, k := range s.subscribe(ctx, uri) {
			context.AfterFunc(ctx, func() { s.do(func() { k.subscribe(uri, -1) }) })
		}
	}
}

// upTo are the first values of a sequence.
func upTo[V any](n int, all iter.Seq[V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		left := n
		for v := range all {
			if left--; left < 0 || !yield(v) {
				return
			}
		}
	}
}

// tagged are a notification's parameters with the subscription that it is for.
func tagged(f *flight, params json.RawMessage) json.RawMessage {
	return jsonrpc.Set(params, "_meta", jsonrpc.Set(jsonrpc.Get(params, "_meta"), metaSubscription, f.id))
}

// subscribers tells those that listen to such a notification.
func (s *Session) subscribers(method string, params json.RawMessage, concerns func(*flight) bool) {
	uri := jsonrpc.GetString(params, "uri")
	wants := func(filter json.RawMessage) bool {
		switch method {
		case "notifications/tools/list_changed":
			return jsonrpc.Get(filter, "toolsListChanged") != nil
		case "notifications/prompts/list_changed":
			return jsonrpc.Get(filter, "promptsListChanged") != nil
		case "notifications/resources/list_changed":
			return jsonrpc.Get(filter, "resourcesListChanged") != nil
		case "notifications/resources/updated":
			for v := range jsonrpc.Elements(jsonrpc.Get(filter, "resourceSubscriptions")) {
				var subscribed string
				json.Unmarshal(v, &subscribed)
				part, ok := strings.CutPrefix(uri, subscribed) // it, or what is below it
				if ok && subscribed != "" && (part == "" || strings.ContainsAny(part[:1], "/?#")) {
					return true
				}
			}
		}
		return false
	}
	s.mu.Lock()
	var some []*flight
	for _, f := range s.flights {
		if f.filter != nil && wants(f.filter) && concerns(f) {
			some = append(some, f)
		}
	}
	s.mu.Unlock()
	for _, f := range some {
		s.send(f.id, false, jsonrpc.Request(nil, method, tagged(f, params)))
	}
}

// endListening answers those that listen.
func (s *Session) endListening() {
	s.mu.Lock()
	var some []*flight
	for _, f := range s.flights {
		if f.method == "subscriptions/listen" {
			some = append(some, f)
		}
	}
	s.mu.Unlock()
	for _, f := range some {
		s.result(f, tagged(f, json.RawMessage("{}")))
	}
}
