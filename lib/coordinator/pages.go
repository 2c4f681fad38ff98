package coordinator

import (
	"encoding/json"
	"slices"
	"strings"

	"btools/lib/jsonrpc"
	"btools/lib/mcp"
	"btools/lib/mcp/catalog"
	"btools/lib/tools"
)

// The tools that a page declares are listed to the host whose page it is: the current one of the browser that the host
// has used last. Hosts of the stateless protocol share what they are given, and are given none.

// listsPages reports whether the child lists the tools of a page with its own.
func (sup *supervisor) listsPages() bool {
	return sup.host.server.ListPageTools && sup.child.Builtin && sup.audience == mcp.OfHandshake
}

// listPages records what builtin lists for a browser: its own tools, and then those of the page.
func (h *Host) listPages(sup *supervisor, all []json.RawMessage) {
	n := slices.IndexFunc(all, func(tool json.RawMessage) bool {
		return strings.HasPrefix(jsonrpc.GetString(tool, "name"), tools.PagePrefix)
	})
	if n < 0 {
		n = len(all)
	}
	_, _, err := h.server.catalog.Update(sup.child, sup.audience.Askable(h.hostParams()), slices.Clone(all[:n]))
	if err != nil {
		h.server.catalog.Failed(sup.child, err)
		return
	}
	h.current.CompareAndSwap(nil, sup)
	h.setPages(sup, all[n:])
}

// setPages records the tools of the page that a browser shows.
func (h *Host) setPages(sup *supervisor, all []json.RawMessage) {
	if !sup.listsPages() {
		return
	}
	sup.mu.Lock()
	sup.pages = all
	sup.mu.Unlock()
	if h.current.Load() == sup {
		h.showPages()
	}
}

// pageRoute returns the route of a tool that a page had: builtin says what has become of it.
func (h *Host) pageRoute(tool string, to mcp.Audience) (r catalog.Route, ok bool) {
	if !h.server.ListPageTools || to != mcp.OfHandshake || !strings.HasPrefix(tool, tools.PagePrefix) {
		return r, false
	}
	r, ok = h.tools(to).Route("browser_navigate")
	r.Name = tool
	return r, ok && r.Child.Builtin
}

// usePages notes which browser the host uses.
func (h *Host) usePages(sup *supervisor) {
	if sup.listsPages() && h.current.Swap(sup) != sup {
		h.showPages()
	}
}

// showPages lists the tools of the page that the host's browser shows, and notifies the host if its list changes.
func (h *Host) showPages() {
	h.paging.Lock()
	defer h.paging.Unlock()
	sup := h.current.Load()
	sup.mu.Lock()
	all := slices.Concat(tools.List(h.server.Tools), sup.pages)
	sup.mu.Unlock()
	h.list.Set(sup.child, sup.audience, all)
	h.toolsChanged()
}
