package tools

import (
	"fmt"
	"slices"

	"btools/lib/browse"
	"btools/lib/schema"
	"btools/lib/spell"
)

// What an agent was told of one document is never used on another: a page may go to another one by itself, which has a
// tool of the same name. So a tool is called only if a result has named it, as one of the document that declares it
// now, before the call came.

// toldTools are the tools that results have named, the latest first. They are not changed.
type toldTools []browse.PageTool

// maxTold bounds how many of them are remembered.
const maxTold = 5000

// has reports whether all of these tools were named.
func (told *toldTools) has(all []browse.PageTool) bool {
	for _, p := range all {
		if told.find(func(q *browse.PageTool) bool { return keyOf(q) == keyOf(&p) }) == nil {
			return false
		}
	}
	return true
}

// find returns the first tool of which is holds, nil if it holds of none.
func (told *toldTools) find(is func(*browse.PageTool) bool) *browse.PageTool {
	if told == nil {
		return nil
	}
	for i := range *told {
		if p := &(*told)[i]; is(p) {
			return p
		}
	}
	return nil
}

// tell records that a result names these tools.
func (s *Server) tell(all []browse.PageTool) {
	now := toldTools(slices.Clone(all))
	if old := s.told.Load(); old != nil {
		for _, p := range *old {
			if len(now) < maxTold && now.find(func(q *browse.PageTool) bool { return keyOf(q) == keyOf(&p) }) == nil {
				now = append(now, p)
			}
		}
	}
	s.told.Store(&now)
}

// chosenTool returns the tool with a name, in a frame if one is named, that an agent was told of. If that is not there,
// but another one of that name is, it is returned with the error: the agent is told of it then.
func chosenTool(told *toldTools, all []browse.PageTool, name, frame string) (p browse.PageTool, err error) {
	is := func(p *browse.PageTool) bool {
		return (p.Name == name || schema.Words(p.Name, maxToolWord) == name) && (frame == "" || frame == p.Frame)
	}
	meant, known := told.find(is), toldTools(all)
	if meant != nil {
		if now := known.find(func(p *browse.PageTool) bool { return keyOf(p) == keyOf(meant) }); now != nil {
			return *now, nil
		}
	}
	if other := known.find(is); other != nil {
		words, _ := toolWords([]browse.PageTool{*other})
		why := "no result has named this tool of the page yet, and it was not called"
		if meant != nil {
			why = goneTool(name, meant.Of) + ". It has another one of that name"
		}
		about := ""
		if other.Description != "" {
			about = ", of which the page says: " + schema.Words(other.Description, maxToolText)
		}
		return *other, fmt.Errorf("%s: %s%s. The same call once more calls it", why, words, about)
	}
	if meant != nil {
		return p, fmt.Errorf("%s. browser_page_tools lists those that it has", goneTool(name, meant.Of))
	}
	var names []string
	for _, p := range all {
		names = append(names, schema.Words(p.Name, maxToolWord))
	}
	where := ""
	if frame != "" {
		where = " in the frame " + clipped(frame, maxToolWord)
	}
	if near := spell.Nearest(name, names); near != "" && near != name {
		return p, fmt.Errorf("the page has no tool %q%s: did you mean %s?", name, where, near)
	}
	return p, fmt.Errorf("the page has no tool %q%s: browser_page_tools lists those that it has", name, where)
}

// goneTool says of which document a tool was that is not there any more.
func goneTool(name string, of *browse.ToolDocument) string {
	return fmt.Sprintf("the page has no tool %q any more: it was one of %s, and nothing was called",
		schema.Words(name, maxToolWord), address(browse.Redacted(of.Page)))
}
