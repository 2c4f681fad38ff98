package har

import (
	"encoding/json"
	"fmt"
	"math"

	"btools/lib/jsonrpc"
)

// request is one that is under way, with its redirects.
type request struct {
	key  requestKey
	hops []*hop // that are not written
	over bool
	size int // roughly, in bytes

	// Chrome sends the headers as they are on the network in events of their
	// own, before or after the others. They belong to the hops that have extra
	// information, in their order.
	withExtra int // hops so far
	requests  []requestExtra
	responses []responseExtra

	// Two CDP sessions with the same target report everything twice: of each
	// kind of event that is counted, those of the first session are used.
	first map[string]string

	ws *webSocketState
}

// hop is one request of a chain of redirects.
type hop struct {
	sent      requestWillBeSent
	session   string // of bproxy
	page      *page
	at        int64 // in the trace
	response  *responseRaw
	answered  float64
	hasExtra  bool
	extra     int // which of the extra information is its own
	ended     bool
	end       float64
	err       string
	cached    bool // in memory
	body      int  // bytes of data, decoded
	encoded   int
	transfer  int
	lastInRow bool // no redirect followed
}

// webSocketState is what only a WebSocket has.
type webSocketState struct {
	frames  []wsFrame
	dropped int
	bytes   int
}

// isFirst reports whether an event is of the session whose events of its kind
// are used.
func (r *request) isFirst(kind, session string) bool {
	if r.first == nil {
		r.first = map[string]string{}
	}
	first, ok := r.first[kind]
	if !ok {
		r.first[kind], first = session, session
	}
	return first == session
}

// last returns the current hop, nil if there is none.
func (r *request) last() *hop {
	if r == nil || len(r.hops) == 0 {
		return nil
	}
	return r.hops[len(r.hops)-1]
}

// network handles an event of the Network domain.
func (c *converter) network(l line, name, session string, params json.RawMessage) {
	key := requestKey{l.connection, jsonrpc.GetString(params, "requestId")}
	if key.id == "" {
		return
	}
	r := c.requests[key]
	switch name {
	case "requestWillBeSent":
		c.sent(l, key, session, params)
	case "requestWillBeSentExtraInfo", "responseReceivedExtraInfo":
		c.extra(name, key, session, params)
	case "requestServedFromCache":
		if h := r.last(); h != nil {
			h.cached = true
		}
	case "responseReceived":
		if h := r.last(); h != nil && h.response == nil {
			var e responseReceived
			json.Unmarshal(params, &e)
			h.response, h.answered, h.hasExtra = &e.Response, e.Timestamp, e.HasExtraInfo
			if e.Type != "" {
				h.sent.Type = e.Type
			}
			c.grow(r, len(params))
		}
	case "dataReceived":
		if h := r.last(); h != nil && r.isFirst(name, session) {
			var e dataReceived
			json.Unmarshal(params, &e)
			h.body += e.DataLength
			h.encoded += e.EncodedDataLength
		}
	case "loadingFinished", "loadingFailed":
		if h := r.last(); h != nil && !h.ended {
			var e loadingEnd
			json.Unmarshal(params, &e)
			h.ended, h.end, h.err, h.transfer = true, e.Timestamp, e.ErrorText, int(e.EncodedDataLength)
			if e.BlockedReason != "" {
				h.err += " (" + e.BlockedReason + ")"
			}
			if e.CORS != nil {
				h.err += " (" + e.CORS.Error + ")"
			}
			c.advance(r)
		}
	default:
		c.webSocket(l, name, key, session, params)
	}
}

// sent begins a request, or another hop of one.
func (c *converter) sent(l line, key requestKey, session string, params json.RawMessage) {
	var e requestWillBeSent
	json.Unmarshal(params, &e)
	if len(e.Request.URL) >= 5 && e.Request.URL[:5] == "data:" {
		return // not from the network, as in archives of other programs
	}
	r := c.requests[key]
	if h := r.last(); h != nil {
		if h.sent.Timestamp == e.Timestamp {
			return // of another session
		}
		if e.RedirectResponse == nil {
			c.end(r)
		} else if !h.ended {
			h.response, h.hasExtra = e.RedirectResponse, e.RedirectHasExtraInfo
			h.answered, h.end, h.ended = e.Timestamp, e.Timestamp, true
			if h.hasExtra {
				r.withExtra++
			}
		}
	}
	r = c.hold(key)
	h := &hop{sent: e, session: l.session, at: l.at.at, extra: r.withExtra}
	// What another connection has reported is held all the same, but not
	// written: extra information is counted by hops.
	if !c.seen[identity{key.id, e.Timestamp}] {
		h.page = c.pageOf(l, session, e)
	}
	r.hops = append(r.hops, h)
	c.grow(r, len(params))
	c.advance(r)
}

// extra notes the headers of a request or response as they are on the network.
func (c *converter) extra(name string, key requestKey, session string, params json.RawMessage) {
	r := c.hold(key)
	if !r.isFirst(name, session) {
		return
	}
	if name == "requestWillBeSentExtraInfo" {
		var e requestExtra
		json.Unmarshal(params, &e)
		r.requests = append(r.requests, e)
	} else {
		var e responseExtra
		json.Unmarshal(params, &e)
		r.responses = append(r.responses, e)
	}
	c.grow(r, len(params))
	c.advance(r)
}

// grow notes that a request takes more memory.
func (c *converter) grow(r *request, size int) {
	if r.over {
		return
	}
	r.size += size
	c.held += size
	c.bound(r)
	if c.held > maxHeld { // of this one alone
		c.end(r)
	}
}

// advance writes the hops that are complete.
func (c *converter) advance(r *request) {
	for len(r.hops) > 0 && r.isComplete(r.hops[0]) {
		last := len(r.hops) == 1
		c.write(r)
		if last {
			c.end(r)
		}
	}
}

// isComplete reports whether nothing more is known to come for a hop.
func (r *request) isComplete(h *hop) bool {
	switch {
	case !h.ended:
		return false
	case h.response == nil || !h.hasExtra || h.cached || h.response.FromDiskCache:
		return true // Chrome announces information for cached ones that does not come
	}
	return len(r.requests) > h.extra && len(r.responses) > h.extra
}

// sameSocket is by how much the times may differ that two sessions tell of the
// handshake of one WebSocket, in seconds. The same identifier at another time is
// that of another run of the browser.
const sameSocket = 10

// write writes the first hop of a request.
func (c *converter) write(r *request) {
	h := r.hops[0]
	r.hops = r.hops[1:]
	id := identity{r.key.id, h.sent.Timestamp}
	if r.ws != nil { // of which each session has a time of its own
		id.time = math.Floor(id.time / sameSocket)
		if c.seen[identity{id.id, id.time - 1}] || c.seen[identity{id.id, id.time + 1}] {
			return
		}
	}
	if !c.isNew(id) {
		return
	}
	h.lastInRow = len(r.hops) == 0
	var sent requestExtra
	var answered responseExtra
	if h.hasExtra || h.response == nil {
		if h.extra < len(r.requests) {
			sent = r.requests[h.extra]
		}
		if h.extra < len(r.responses) {
			answered = r.responses[h.extra]
		}
	}
	e := h.entry(sent, answered)
	if !h.ended {
		e.Comment = "the trace does not have the end of this request"
	}
	if h.lastInRow && (c.only == nil || c.only[e.Page]) {
		c.addBody(r, h, e)
		c.addPost(r, h, e)
	}
	if w := r.ws; w != nil {
		e.Frames = w.frames
		if w.dropped > 0 {
			e.Comment = fmt.Sprintf("%d more messages are left out", w.dropped)
		}
	}
	if c.only != nil && !c.only[e.Page] {
		return
	}
	if !c.logins {
		e.withoutLogins()
	}
	c.separate(c.sum.Entries)
	c.value(e)
	c.sum.Entries++
}

// addBody adds the body that a client has fetched.
func (c *converter) addBody(r *request, h *hop, e *entry) {
	got := find(c.trace, c.index.bodies[r.key.id], h.at)
	text := jsonrpc.Get(got, "body")
	if len(text) == 0 || text[0] != '"' {
		return
	}
	e.Response.Content.Text = text
	size := decodedLength(text)
	if string(jsonrpc.Get(got, "base64Encoded")) == "true" {
		e.Response.Content.Encoding = "base64"
		size = size / 4 * 3
	}
	if e.Response.Content.Size == 0 {
		e.Response.Content.Size = size
	}
	c.sum.Bodies++
}

// decodedLength returns the length of a JSON string in bytes.
func decodedLength(raw json.RawMessage) int {
	var s string
	json.Unmarshal(raw, &s)
	return len(s)
}

// addPost adds the body of the request that a client has fetched, if the event
// had none.
func (c *converter) addPost(r *request, h *hop, e *entry) {
	if !h.sent.Request.HasPostData || e.Request.Post != nil && e.Request.Post.Text != "" {
		return
	}
	if got := find(c.trace, c.index.posts[r.key.id], h.at); got != nil {
		e.Request.setPost(jsonrpc.GetString(got, "postData"))
	}
}

// maxFrames bounds the messages of a WebSocket that are kept, in bytes.
const maxFrames = 16 << 20

// webSocket handles an event of a WebSocket.
func (c *converter) webSocket(l line, name string, key requestKey, session string, params json.RawMessage) {
	var e webSocket
	if name == "webSocketCreated" {
		json.Unmarshal(params, &e)
		if r := c.requests[key]; r != nil && r.ws != nil {
			return // of another session
		}
		r := c.hold(key)
		r.isFirst("webSocket", session)
		r.ws = &webSocketState{}
		h := &hop{session: l.session, at: l.at.at}
		h.sent.Request.URL, h.sent.Request.Method, h.sent.Type, h.sent.Initiator = e.URL, "GET", "WebSocket",
			e.Initiator
		if t, ok := c.tab(l, session); ok {
			h.page = c.current[t.id]
		}
		r.hops = append(r.hops, h)
		return
	}
	r := c.requests[key]
	h := r.last()
	if h == nil || r.ws == nil || !r.isFirst("webSocket", session) {
		return
	}
	json.Unmarshal(params, &e)
	switch name {
	case "webSocketWillSendHandshakeRequest":
		h.sent.Timestamp, h.sent.WallTime, h.sent.Request.Headers = e.Timestamp, e.WallTime, e.Request.Headers
	case "webSocketHandshakeResponseReceived":
		h.response, h.answered = &e.Response.responseRaw, e.Timestamp
		if len(e.Response.RequestHeaders) > 0 {
			h.sent.Request.Headers = e.Response.RequestHeaders
		}
		c.grow(r, len(params))
	case "webSocketFrameSent", "webSocketFrameReceived":
		if r.ws.bytes += len(params); r.ws.bytes > maxFrames {
			r.ws.dropped++
			return
		}
		typ := map[bool]string{true: "send", false: "receive"}[name == "webSocketFrameSent"]
		r.ws.frames = append(r.ws.frames, wsFrame{Type: typ, Time: h.sent.WallTime + e.Timestamp - h.sent.Timestamp,
			Opcode: int(e.Response.Opcode), Data: e.Response.Payload})
		c.grow(r, len(params))
	case "webSocketFrameError":
		h.err = e.ErrorMessage
	case "webSocketClosed":
		h.ended, h.end = true, e.Timestamp
		c.advance(r)
	}
}
