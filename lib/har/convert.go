package har

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"btools/lib/jsonrpc"
)

// Summary says what was converted.
type Summary struct {
	Entries int
	Pages   int
	Bodies  int // of responses
	Damaged int // lines that were skipped
}

// ErrNoNetwork means that no trace has events of the Network domain.
var ErrNoNetwork = errors.New("no trace has Network events")

// NoPageError means that no page is the one that is asked for.
type NoPageError struct {
	Page  string
	Pages []string // those that there are
}

func (e *NoPageError) Error() string {
	return fmt.Sprintf("no page has %q in its URL or title", e.Page)
}

// Trace is a trace of which the first bytes are read.
type Trace struct {
	io.ReaderAt
	Size int64
}

func (t Trace) lines() *lines { return newLines(io.NewSectionReader(t, 0, t.Size)) }

// Options say what an archive has.
type Options struct {
	By Creator
	// Page is a text in the URL or title of the pages whose requests it has, or their target; "": it has all.
	Page string
	// Logins are in it: cookies, headers that authorize, and passwords.
	Logins bool
	// Mask replaces what is not to be in it; nil: nothing is.
	Mask func(json.RawMessage) json.RawMessage
}

// Convert writes the archive of some traces, each request once. It writes nothing if it returns ErrNoNetwork or a
// NoPageError.
func Convert(traces []Trace, o Options, out io.Writer) (Summary, error) {
	var found []*index
	all := index{}
	for _, t := range traces {
		x, err := scan(t.lines())
		if err != nil {
			return Summary{}, fmt.Errorf("cannot read the trace: %w", err)
		}
		found = append(found, x)
		all.events += x.events
		all.damaged += x.damaged
		if all.browser == nil {
			all.browser = x.browser
		}
	}
	if all.events == 0 {
		return Summary{Damaged: all.damaged}, ErrNoNetwork
	}
	var only map[string]bool
	if o.Page != "" { // its title may follow its requests
		c := newConverter(io.Discard, nil, true)
		if err := c.read(traces, found); err != nil {
			return c.sum, err
		}
		if only = matching(c.order, o.Page); len(only) == 0 {
			return Summary{Damaged: all.damaged}, noPage(c.order, o.Page)
		}
	}
	c := newConverter(out, only, o.Logins)
	c.mask = o.Mask
	c.sum.Damaged = all.damaged
	c.raw(`{"log":{"version":"` + Version + `","creator":`)
	c.value(o.By)
	if all.browser != nil {
		c.raw(`,"browser":`)
		c.value(all.browser)
	}
	c.raw(`,"entries":[`)
	if err := c.read(traces, found); err != nil {
		return c.sum, err
	}
	c.raw("\n],\"pages\":[")
	slices.SortStableFunc(c.order, func(a, b *page) int { return cmp.Compare(a.Started, b.Started) })
	for _, p := range c.order {
		if only == nil || only[p.ID] {
			if c.separate(c.sum.Pages); !c.logins {
				p.Title = plainURL(p.Title)
			}
			c.value(p)
			c.sum.Pages++
		}
	}
	c.raw("\n]")
	if len(c.private) > 0 {
		c.raw(`,"comment":`)
		c.value("a person was private since " + strings.Join(c.private, ", ") +
			": what pages did until control was given back is not here")
	}
	c.raw("}}\n")
	if c.err == nil {
		c.err = c.out.Flush()
	}
	if c.err != nil {
		return c.sum, fmt.Errorf("cannot write the archive: %w", c.err)
	}
	return c.sum, nil
}

// matching returns the IDs of the pages that are asked for.
func matching(pages []*page, text string) map[string]bool {
	ids := map[string]bool{}
	text = strings.ToLower(text)
	for _, p := range pages {
		if strings.Contains(strings.ToLower(p.url), text) || strings.Contains(strings.ToLower(p.Title), text) ||
			strings.ToLower(p.target) == text {
			ids[p.ID] = true
		}
	}
	return ids
}

// noPage names the pages that there are, each once.
func noPage(pages []*page, text string) error {
	e := &NoPageError{Page: text}
	for _, p := range pages {
		if !slices.Contains(e.Pages, p.url) {
			e.Pages = append(e.Pages, p.url)
		}
	}
	return e
}

// converter reads traces for the second time.
type converter struct {
	trace  io.ReaderAt // the one that is read
	number int         // of it
	index  *index      // of it
	out    *bufio.Writer
	only   map[string]bool // the IDs of the pages whose requests are written; nil: all
	logins bool            // are written
	mask   func(json.RawMessage) json.RawMessage
	err    error
	sum    Summary

	requests map[requestKey]*request // under way
	queue    []*request              // the same, the oldest first; and some that are over
	held     int                     // their size, roughly
	seen     map[identity]bool       // requests that were written
	seenAt   []identity              // the same, the oldest first

	pages    map[string]*page      // by loader
	order    []*page               // the same, the oldest first
	current  map[string]*page      // by target
	sessions map[sessionKey]target // whose targets are known
	children map[string]bool       // frames in others
	private  []string              // times since which a person was
}

func newConverter(out io.Writer, only map[string]bool, logins bool) *converter {
	return &converter{
		out: bufio.NewWriterSize(out, 256<<10), only: only, logins: logins, requests: map[requestKey]*request{},
		seen: map[identity]bool{}, pages: map[string]*page{}, current: map[string]*page{},
		sessions: map[sessionKey]target{}, children: map[string]bool{},
	}
}

// read reads the traces, one after the other, and writes their requests.
func (c *converter) read(traces []Trace, found []*index) error {
	for i, t := range traces {
		c.trace, c.number, c.index = t, i, found[i]
		for read := t.lines(); c.err == nil; {
			l, err := read.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("cannot read the trace: %w", err)
			}
			l.connection = strconv.Itoa(c.number) + "\n" + l.connection // each trace counts its own
			c.line(l)
		}
		c.flushWhere(func(*request) bool { return true })
	}
	return nil
}

// requestKey identifies a request of a connection. Its events may come from
// several CDP sessions: a frame that moves to another process gets another one.
type requestKey struct{ connection, id string }

// identity identifies a request however many connections report it.
type identity struct {
	id   string
	time float64
}

type sessionKey struct{ connection, session string }

// target is that of a CDP session.
type target struct {
	id, typ string
	parent  string // the CDP session to which it is attached
}

func (c *converter) raw(s string) {
	if c.err == nil {
		_, c.err = c.out.WriteString(s)
	}
}

// value writes JSON without escapes for HTML, which would double some bodies.
func (c *converter) value(v any) {
	if c.err != nil {
		return
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if c.err = e.Encode(v); c.err == nil {
		raw := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
		if c.mask != nil {
			raw = c.mask(raw)
		}
		_, c.err = c.out.Write(raw)
	}
}

// separate begins an element of an array.
func (c *converter) separate(i int) {
	if i > 0 {
		c.raw(",")
	}
	c.raw("\n")
}

// line handles a line of the trace.
func (c *converter) line(l line) {
	if l.opened != "" {
		c.connectionOpened(l)
		return
	}
	if l.toBrowser || l.message == nil {
		return
	}
	m := decode(l.message)
	if m.method == "" {
		c.listed(m.result)
		return
	}
	domain, name, _ := strings.Cut(m.method, ".")
	switch domain {
	case "Network":
		c.network(l, name, m.session, m.params)
	case "Page":
		c.page(l, name, m.session, m.params)
	case "Target":
		c.target(l, name, m.session, m.params)
	case "Btools":
		if since := jsonrpc.GetString(m.params, "since"); name == "private" && !slices.Contains(c.private, since) {
			c.private = append(c.private, since)
		}
	}
}

// connectionOpened forgets a connection of the same number: a trace may be of
// several runs.
func (c *converter) connectionOpened(l line) {
	c.flushWhere(func(r *request) bool { return r.key.connection == l.connection })
	for k := range c.sessions {
		if k.connection == l.connection {
			delete(c.sessions, k)
		}
	}
	if _, id, ok := strings.Cut(l.opened, "/devtools/page/"); ok {
		c.sessions[sessionKey{l.connection, ""}] = target{id: id, typ: "page"}
	}
}

// maxSessions bounds the CDP sessions, and frames, that are remembered.
const maxSessions = 100_000

// target handles an event about targets.
func (c *converter) target(l line, name, parent string, params json.RawMessage) {
	info := jsonrpc.Get(params, "targetInfo")
	id := jsonrpc.GetString(info, "targetId")
	switch name {
	case "attachedToTarget":
		if len(c.sessions) < maxSessions {
			c.sessions[sessionKey{l.connection, jsonrpc.GetString(params, "sessionId")}] = target{
				id: id, typ: jsonrpc.GetString(info, "type"), parent: parent}
		}
	case "detachedFromTarget":
		delete(c.sessions, sessionKey{l.connection, jsonrpc.GetString(params, "sessionId")})
	case "targetInfoChanged":
		c.titled(info)
	}
}

// listed handles an answer to Target.getTargets: Chrome does not tell of each change of a
// title.
func (c *converter) listed(result json.RawMessage) {
	var infos []json.RawMessage
	if json.Unmarshal(jsonrpc.Get(result, "targetInfos"), &infos) == nil {
		for _, info := range infos {
			c.titled(info)
		}
	}
}

// titled notes the title of a page.
func (c *converter) titled(info json.RawMessage) {
	p, title := c.current[jsonrpc.GetString(info, "targetId")], jsonrpc.GetString(info, "title")
	if p != nil && title != "" && withoutFragment(jsonrpc.GetString(info, "url")) == p.url {
		p.Title = title
	}
}

func withoutFragment(url string) string {
	url, _, _ = strings.Cut(url, "#")
	return url
}

// tab returns the target of the tab that a CDP session is about.
func (c *converter) tab(l line, session string) (t target, ok bool) {
	for range 10 {
		t, ok = c.sessions[sessionKey{l.connection, session}]
		if !ok || t.typ == "page" || t.parent == session {
			break
		}
		session = t.parent
	}
	return t, ok && t.typ == "page"
}

// page handles an event of the Page domain.
func (c *converter) page(l line, name, session string, params json.RawMessage) {
	var e struct {
		FrameID   string  `json:"frameId"`
		LoaderID  string  `json:"loaderId"`
		Name      string  `json:"name"`
		Timestamp float64 `json:"timestamp"`
	}
	json.Unmarshal(params, &e)
	p := c.current[c.sessions[sessionKey{l.connection, session}].id]
	switch name {
	case "frameAttached":
		if len(c.children) < maxSessions {
			c.children[e.FrameID] = true
		}
		return
	case "lifecycleEvent":
		p, name = c.pages[e.LoaderID], e.Name
	}
	if p == nil || e.Timestamp < p.began {
		return
	}
	after := ms((e.Timestamp - p.began) * 1000)
	switch name {
	case "DOMContentLoaded", "domContentEventFired":
		setOnce(&p.Timings.Content, after)
	case "load", "loadEventFired":
		setOnce(&p.Timings.Load, after)
	}
}

func setOnce(d *ms, value ms) {
	if *d < 0 {
		*d = value
	}
}

// pageOf returns the page to which a request belongs; nil: none. The request of
// a document in a main frame begins another page.
func (c *converter) pageOf(l line, session string, e requestWillBeSent) *page {
	p := c.pages[e.LoaderID]
	isDocument := e.Type == "Document" && e.RequestID == e.LoaderID
	if p != nil {
		if isDocument { // redirected
			if p.Title == p.url {
				p.Title = withoutFragment(e.Request.URL)
			}
			p.url = withoutFragment(e.Request.URL)
		}
		return p
	}
	t, known := c.sessions[sessionKey{l.connection, session}]
	isMain := e.FrameID != "" && (known && t.typ == "page" && t.id == e.FrameID || !known && !c.children[e.FrameID])
	if !isDocument || !isMain {
		if t, ok := c.tab(l, session); ok {
			return c.current[t.id]
		}
		return c.current[e.FrameID]
	}
	p = &page{
		Started: stamp(e.WallTime), ID: fmt.Sprintf("page_%d", len(c.order)+1), Title: withoutFragment(e.Request.URL),
		Timings: timings{-1, -1}, url: withoutFragment(e.Request.URL), began: e.Timestamp, target: e.FrameID,
	}
	c.pages[e.LoaderID], c.current[e.FrameID] = p, p
	c.order = append(c.order, p)
	if !known { // a connection to a page, of an old trace
		c.sessions[sessionKey{l.connection, session}] = target{id: e.FrameID, typ: "page"}
	}
	return p
}

// flushWhere writes requests that are under way as they are.
func (c *converter) flushWhere(wanted func(*request) bool) {
	for _, r := range c.queue {
		if !r.over && wanted(r) {
			c.end(r)
		}
	}
	c.queue = slices.DeleteFunc(c.queue, func(r *request) bool { return r.over })
}

// Bounds of the requests that are held until they are complete. Beyond, the
// oldest are written as they are.
const (
	maxRequests = 10_000
	maxHeld     = 32 << 20 // bytes
)

// hold adds a request to those under way.
func (c *converter) hold(key requestKey) *request {
	if r := c.requests[key]; r != nil {
		return r
	}
	r := &request{key: key}
	c.requests[key] = r
	c.queue = append(c.queue, r)
	c.bound(r)
	return r
}

// bound writes the oldest requests if there are too many under way.
func (c *converter) bound(current *request) {
	for len(c.queue) > 0 && (c.queue[0].over || (len(c.requests) > maxRequests || c.held > maxHeld) &&
		c.queue[0] != current) {
		if r := c.queue[0]; !r.over {
			c.end(r)
		}
		c.queue = c.queue[1:]
	}
	if len(c.queue) > 2*len(c.requests)+1000 {
		c.queue = slices.DeleteFunc(c.queue, func(r *request) bool { return r.over })
	}
}

// end writes what is left of a request and forgets it.
func (c *converter) end(r *request) {
	for len(r.hops) > 0 {
		c.write(r)
	}
	if !r.over {
		r.over = true
		delete(c.requests, r.key)
		c.held -= r.size
	}
}

// maxSeen is how many written requests are remembered.
const maxSeen = 1 << 16

// isNew reports whether a request has not been written yet, and remembers it.
func (c *converter) isNew(id identity) bool {
	if c.seen[id] {
		return false
	}
	c.seen[id] = true
	c.seenAt = append(c.seenAt, id)
	if len(c.seenAt) > maxSeen {
		delete(c.seen, c.seenAt[0])
		c.seenAt = c.seenAt[1:]
	}
	return true
}
