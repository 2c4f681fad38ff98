package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"btools/lib/browse"
	"btools/lib/jsonrpc"
	"btools/lib/schema"
)

// Bounds of the list of a page's tools that a host is given with the others.
const (
	maxListed   = 100 // tools: more than 128 in all are too many for some hosts
	maxListName = 64  // characters of the name of one
	maxNames    = 5000
	maxListSize = 64 << 10 // bytes of all, which are in the context of a model as long as the page is open
)

// PagePrefix begins the name of a page's tool in that list.
const PagePrefix = "page__"

// PageNames gives names to the tools of pages that a host is given in its list. No two get the same one: a name that
// was given to a tool of one document is never that of another.
type PageNames struct {
	mu   sync.Mutex
	last map[string]int // the number behind each name without one
	from int            // names are numbered from here on; 0: the first has no number
}

// Fresh returns a name that hosts take and that it has not returned before.
func (n *PageNames) Fresh(tool string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	base := PagePrefix + strings.Map(func(r rune) rune {
		if strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", r) {
			return r
		}
		return '_'
	}, schema.Words(tool, maxToolWord))
	base = base[:min(len(base), maxListName)]
	if len(n.last) > maxNames || n.last == nil {
		for _, number := range n.last {
			n.from = max(n.from, number)
		}
		n.last = map[string]int{}
	}
	for {
		number := max(n.last[base], n.from) + 1
		n.last[base] = number
		name := base
		if number > 1 {
			end := fmt.Sprintf("_%d", number)
			name = base[:min(len(base), maxListName-len(end))] + end
			if _, used := n.last[name]; used {
				continue
			}
			n.last[name] = 1
		}
		return name
	}
}

// listedTools are the names that the tools of pages have in the list of a host.
type listedTools struct {
	fresh *PageNames
	names map[pageKey]string
	keys  map[string]pageKey
	last  []json.RawMessage
}

// pageKey identifies a tool of a document.
type pageKey struct {
	of   *browse.ToolDocument
	name string
}

func keyOf(p *browse.PageTool) pageKey { return pageKey{p.Of, p.Name} }

// listPage are the tools of the page that is open as tools/list has them: those of the last list if the page cannot be
// asked now.
func (s *Server) listPage(ctx context.Context) (all []json.RawMessage, err error) {
	s.mu.Lock()
	b, ok := s.browser.(*browse.Browser)
	s.mu.Unlock()
	if !ok {
		return nil, nil
	}
	t, _ := b.Shown()
	if t == nil {
		return nil, nil
	}
	tools, err := s.toolsOf(ctx, t)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.pages
	if err != nil {
		return l.last, err
	}
	if len(l.names) > maxNames {
		l.names, l.keys = nil, nil
	}
	size := 0
	for _, p := range tools[:min(maxListed, len(tools))] {
		about := "A tool of the page. The page says of it: " + schema.Words(p.Description, maxToolText)
		tool := mcp.NewToolWithRawSchema(l.nameOf(keyOf(&p)), about, schema.Plain(p.Schema))
		if p.Consequential { // that a tool only reads is for a host to believe, not for a page to say
			tool.Annotations.DestructiveHint = new(true)
		}
		raw, _ := json.Marshal(tool)
		if size += len(raw); size > maxListSize {
			break
		}
		all = append(all, raw)
	}
	l.last = all
	return all, nil
}

// nameOf returns the name of a tool in the list of a host.
func (l *listedTools) nameOf(key pageKey) string {
	if name := l.names[key]; name != "" {
		return name
	}
	if l.names == nil {
		l.fresh, l.names, l.keys = cmp.Or(l.fresh, &PageNames{}), map[pageKey]string{}, map[string]pageKey{}
	}
	name := l.fresh.Fresh(key.name)
	l.names[key], l.keys[name] = name, key
	return name
}

// listedTool returns the tool of a page by its name in the list of a host, nil if it cannot be such a name.
func (s *Server) listedTool(name string) *tool {
	if !s.ListPageTools || !strings.HasPrefix(name, PagePrefix) {
		return nil
	}
	return &tool{Name: name, Do: onPage(func(ctx context.Context, r *reply, t *browse.Tab, args json.RawMessage) error {
		s.mu.Lock()
		key := s.pages.keys[name]
		s.mu.Unlock()
		all, err := t.PageTools(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(p browse.PageTool) bool { return key.of != nil && keyOf(&p) == key })
		if i >= 0 {
			return r.callPageTool(ctx, t, all[i], args)
		}
		r.page = pageState
		if key.of == nil {
			return fmt.Errorf("no page that this session has shown has a tool %s: tools/list has those of the one "+
				"that is open", name)
		}
		return fmt.Errorf("%s. tools/list has those that it has", goneTool(name, key.of))
	})}
}

// Times between two notifications that a page has other tools. A page may change them for ever.
const (
	listRest  = 100 * time.Millisecond // in which changes become one
	listPause = time.Second
)

// watchTools notifies the host when the page that is open has other tools than before.
func (s *Server) watchTools(b *browse.Browser) {
	rest := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-s.life.Done():
		}
	}
	var told []json.RawMessage
	for state := (browse.ToolState{}); s.life.Err() == nil && b.AwaitTools(s.life, state) == nil; {
		rest(listRest)
		_, state = b.Shown()
		now, err := s.listPage(s.life)
		if err != nil { // it is busy, or has a dialog
			state = browse.ToolState{}
			rest(listPause - listRest)
			continue
		}
		if slices.EqualFunc(told, now, func(a, b json.RawMessage) bool { return string(a) == string(b) }) {
			continue
		}
		told = now
		s.out.Write(jsonrpc.Request(nil, "notifications/tools/list_changed", nil), false)
		rest(listPause - listRest)
	}
	if len(told) > 0 && s.life.Err() == nil { // the browser has gone
		s.out.Write(jsonrpc.Request(nil, "notifications/tools/list_changed", nil), false)
	}
}
