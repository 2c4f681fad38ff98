package coordinator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"btools/lib/jsonrpc"
	"btools/lib/wait"
)

// Members of a result's _meta.
const (
	metaPool     = "btools/pool"
	metaInstance = "btools/instance"
	metaReplaced = "btools/replaced"
	metaRestored = "btools/restored"
)

// remark is what the reader of a result has to know of its browser.
type remark struct {
	replaced string // it is not the same as before; told once
	restored string // it was hibernated, or came back after a crash; told once
	where    string // which one it is, if the next result may come from another one
}

func (s *Session) remark(p *Lease) (r remark) {
	key := seenKey(&p.Browser)
	if p.Died != nil && wait.Closed(p.Died) {
		return r // the next result is the one that is from another browser
	}
	news, lost := p.news.read(), s.browsers.lost()
	was, used, several := s.browsers.seen().see(key, p.ID)
	several = several || p.several
	if v := p.virtual; v != nil {
		if lost := v.of.lostOf(v); lost != "" {
			r.replaced = lost
			return r
		}
	}
	if p.Pool != "" && several {
		r.where = fmt.Sprintf("This result is from instance %s of pool %s.", p.Instance, p.Pool)
	}
	other := was != "" && p.ID != "" && was != p.ID
	switch {
	case lost.back:
		r.restored = fmt.Sprintf("%s; its pages were reloaded, in instance %s", lost.what, p.Instance)
	case lost.what != "":
		r.replaced = fmt.Sprintf("%s; this is instance %s", lost.what, p.Instance)
	case news != "" && used && !p.fresh:
		r.replaced = news
	case p.restored != "": // in whichever process it is now
		r.restored = p.restored
	case !used || p.fresh || !other:
	case p.Pool != "":
		r.replaced = fmt.Sprintf("the browser of instance %s of pool %s was replaced", p.Instance, p.Pool)
	case p.joined && p.ended == "": // the call has named it
		r.replaced = "the browser had left, and has joined again"
	case p.joined:
		r.replaced = fmt.Sprintf("the browser had left (%s), and one has joined since", p.ended)
	case p.ended != "":
		r.replaced = fmt.Sprintf("the browser had ended (%s) and was launched anew", p.ended)
		if s.cameBack(&p.Browser) {
			r.replaced, r.restored = "", r.replaced+"; its pages were reloaded"
		}
	default:
		r.replaced = "the browser was launched anew"
	}
	return r
}

// cameBack reports whether the session of a browser that was launched anew is as the
// one before was kept.
func (s *Session) cameBack(b *Browser) bool {
	at := s.c.Source.SessionOf(s.ctx, b)
	return at != nil && jsonrpc.Get(at, "restored_at") != nil
}

// seenKey is the key of a browser, whichever process it is now.
func seenKey(b *Browser) string { return b.Pool + "/" + b.Instance + "/" + b.Session }

// lostOf returns, once, what has become of the virtual browser before this one.
func (b *parts) lostOf(v *virtual) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := v.lost
	v.lost = ""
	return lost
}

// What ends the text that tells of another browser, or of one that was
// hibernated.
const (
	lostPages     = "Pages that were open before are gone, and logins unless a profile keeps them: navigate again."
	reloadedPages = "Logins and stored data are as before. What was typed into the pages is gone, and so are the " +
		"elements of earlier snapshots: take a new one."
)

// remarked adds to a result what its reader has to know of where it comes from.
func (s *Session) remarked(result json.RawMessage, p *Lease) json.RawMessage {
	if p == nil || len(result) == 0 || result[0] != '{' {
		return result // what no client takes, but its child's
	}
	r := s.remark(p)
	meta := jsonrpc.Get(result, "_meta")
	set := func(name, value string) {
		if value != "" {
			meta = jsonrpc.Set(meta, name, quote(value))
		}
	}
	set(metaInstance, p.Instance)
	set(metaPool, p.Pool)
	set(metaReplaced, r.replaced)
	set(metaRestored, r.restored)
	if meta == nil {
		return result
	}
	result = jsonrpc.Set(result, "_meta", meta)
	if text := r.text(); text != "" {
		if content := jsonrpc.Get(result, "content"); len(content) > 1 && content[0] == '[' {
			result = jsonrpc.Set(result, "content", withText(content, text))
		}
	}
	return result
}

// text is the remark as a text for the agent.
func (r remark) text() string {
	note := ""
	switch {
	case r.replaced != "":
		note = "Note: " + r.replaced + ". " + lostPages
	case r.restored != "":
		note = "Note: " + r.restored + ". " + reloadedPages
	}
	return strings.TrimSpace(note + " " + r.where)
}

// withText adds a text to an array of content.
func withText(content json.RawMessage, text string) json.RawMessage {
	items := content[:len(content)-1]
	comma := ","
	if len(bytes.TrimSpace(items[1:])) == 0 {
		comma = ""
	}
	return fmt.Appendf(nil, `%s%s{"type":"text","text":%s}]`, items, comma, quote(text))
}

// seen are the browsers that a host has had results from.
type seen struct {
	mu  sync.Mutex
	ids map[string]string // by pool and instance; "": the ID is not known
}

// see records a browser. It returns the one before it with this key, and whether
// there are others.
func (b *seen) see(key, id string) (before string, ok, several bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids == nil {
		b.ids = map[string]string{}
	}
	before, ok = b.ids[key]
	b.ids[key] = id
	return before, ok, len(b.ids) > 1
}

func (b *seen) forget(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ids, key)
}

func (b *seen) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.ids)
}
