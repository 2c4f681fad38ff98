package firefox

import (
	"context"
	"net/http"

	"btools/lib/browse"
)

// sight is what the page of a tab has told of itself.
type sight struct {
	t    *Tab
	told browse.Shown
}

// noting returns what keeps what the page says of itself, unless it has another document by then.
func (s *sight) noting() func(browse.Shown) {
	document := s.t.Document()
	return func(now browse.Shown) {
		if s.t.Document() == document {
			s.note(now)
		}
	}
}

// note keeps what the page says of itself.
func (s *sight) note(now browse.Shown) {
	s.t.b.mu.Lock()
	defer s.t.b.mu.Unlock()
	s.told = now
}

// ask returns what the page says of itself; its address alone if it says nothing soon, and if Firefox does not either,
// what the page has said before.
func (s *sight) ask(ctx context.Context) (now browse.Shown) {
	short, cancel := context.WithTimeout(ctx, s.t.b.of(browse.AnswerPatience))
	defer cancel()
	if s.t.Dialog() != "" || s.t.b.run(short, s.t.id, "page", nil, &now) != nil {
		now = browse.Shown{URL: s.address(ctx)}
	}
	if now.URL != "" {
		s.note(now)
	}
	return now
}

// address returns the address of the tab; "": Firefox does not tell it soon.
func (s *sight) address(ctx context.Context) string {
	short, cancel := context.WithTimeout(ctx, s.t.b.of(browse.AnswerPatience))
	defer cancel()
	var tree struct{ Contexts []node }
	err := s.t.b.conn.Call(short, "browsingContext.getTree", map[string]any{"root": s.t.id, "maxDepth": 0}, &tree)
	if err != nil || len(tree.Contexts) != 1 {
		return ""
	}
	return tree.Contexts[0].URL
}

// Address is that of the page.
func (s *sight) Address(ctx context.Context) string { return s.State(ctx).URL }

// State asks the page for its state.
func (s *sight) State(ctx context.Context) browse.State {
	s.ask(ctx)
	return s.Seen()
}

// Seen is the state that the page has told last.
func (s *sight) Seen() browse.State {
	s.t.b.mu.Lock()
	defer s.t.b.mu.Unlock()
	now := browse.State{URL: s.told.URL, Title: s.told.Title,
		Status: browse.Status{Code: s.told.Status, Text: http.StatusText(s.told.Status)}}
	if s.t.leaving != nil {
		now.Leaving = browse.Redacted(*s.t.leaving)
	}
	return now
}
