package tools

import (
	"context"
	"embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/agent/agenttool"
	"btools/lib/browse"
)

// tool is one line of the table.
type tool = agenttool.Tool[runner]

// runner runs a tool, with arguments that have been checked.
type runner struct {
	run func(ctx context.Context, r *reply, args json.RawMessage) error
	any bool // on Firefox, too
	// most is how long a call may take; 0: runTimeout.
	most time.Duration
}

const (
	reads    = agenttool.Reads
	acts     = agenttool.Acts
	destroys = agenttool.Destroys
)

// schemas has the JSON Schemas of the arguments, in TOOL.json, and those of structured
// results, in TOOL.output.json.
//
//go:embed schemas/*.json
var schemas embed.FS

// with returns the runner of a tool that needs no page, and decodes its arguments.
func with[T any](f func(ctx context.Context, r *reply, args T) error) runner {
	return runner{run: func(ctx context.Context, r *reply, raw json.RawMessage) error {
		var args T
		if err := json.Unmarshal(raw, &args); err != nil {
			return err
		}
		if c, ok := any(&args).(interface{ check(*reply) error }); ok {
			if err := c.check(r); err != nil {
				return err
			}
		}
		return f(ctx, r, args)
	}}
}

// on returns the runner of a tool for what get reaches; its result shows view of the page, and waits for an effect that
// lasts. A tool for a browse.Page or a browse.Driver is one for each browser, others are for Chromium.
func on[P, Q, T any](get func(*access, context.Context) (Q, error), view pageView, lasts bool,
	f func(ctx context.Context, r *reply, p P, args T) error) runner {
	do := with(func(ctx context.Context, r *reply, args T) error {
		p, err := get(&r.access, ctx)
		if err != nil {
			if r.before != nil { // there is a page, which is not as it is to be
				r.page = pageState
			}
			return err
		}
		r.page, r.acts = view, lasts
		return f(ctx, r, any(p).(P), args)
	})
	do.any = any(*new(P)) == nil // an interface
	return do
}

// onPage returns the runner of a tool that cannot work while a dialog is open.
func onPage[P browse.Page, T any](f func(ctx context.Context, r *reply, p P, args T) error) runner {
	return on((*access).act, noPage, false, f)
}

// changes is onPage for a tool whose result shows what has changed.
func changes[P browse.Page, T any](f func(ctx context.Context, r *reply, p P, args T) error) runner {
	return on((*access).act, pageChanges, false, f)
}

// works is changes for a tool whose effect may last.
func works[P browse.Page, T any](f func(ctx context.Context, r *reply, p P, args T) error) runner {
	return on((*access).act, pageChanges, true, f)
}

// uses is onPage for a tool that works while a dialog is open.
func uses[P browse.Page, T any](f func(ctx context.Context, r *reply, p P, args T) error) runner {
	return on((*access).use, noPage, false, f)
}

// onFirefox are the names of the tools that drive Firefox, too.
func onFirefox() (names []string) {
	for _, t := range table() {
		if t.Do.any {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names
}

// prepared returns the table with the schemas of its tools, which are read when the
// first host asks for them: most processes of bmcp serve none.
var prepared = sync.OnceValue(func() []tool {
	all := slices.Clone(table())
	for i := range all {
		all[i].Read(schemas)
	}
	return all
})

func find(name string) *tool {
	all := prepared()
	for i := range all {
		if all[i].Name == name {
			return &all[i]
		}
	}
	return nil
}

// tools returns the five tools for this kind of storage.
func (kind webStorage) tools() []tool {
	name, is := "browser_"+strings.ToLower(string(kind))+"_", string(kind)
	return []tool{
		{Name: name + "list", Title: "List " + is, About: "The " + is + " of the page",
			Group: "storage", Do: onPage(kind.list)},
		{Name: name + "get", Title: "Get of " + is, About: "An item of the " + is + " of the page",
			Group: "storage", Do: onPage(kind.get)},
		{Name: name + "set", Title: "Set in " + is, About: "Set an item of the " + is + " of the page",
			Effect: destroys, Group: "storage", Do: on((*access).touch, noPage, false, kind.set)},
		{Name: name + "delete", Title: "Remove from " + is, About: "Remove an item of the " + is + " of the page",
			Effect: destroys, Group: "storage", Do: on((*access).touch, noPage, false, kind.remove)},
		{Name: name + "clear", Title: "Clear " + is, About: "Remove all of the " + is + " of the page",
			Effect: destroys, Group: "storage", Do: on((*access).touch, noPage, false, kind.clear)},
	}
}

// table returns all tools.
var table = sync.OnceValue(func() []tool {
	return slices.Concat([]tool{
		{Name: "browser_navigate", Title: "Navigate", About: "Open a URL in the current tab", Effect: acts,
			Do: changes(navigate)},
		{Name: "browser_navigate_back", Title: "Go back", About: "Go back in the history", Effect: acts,
			Do: changes(leaves(back, "go back", "Went back"))},
		{Name: "browser_navigate_forward", Title: "Go forward", About: "Go forward in the history", Effect: acts,
			Extra: true, Do: changes(leaves(forward, "go forward", "Went forward"))},
		{Name: "browser_reload", Title: "Reload", About: "Load the page again", Effect: acts, Extra: true,
			Do: changes(leaves(browse.Page.Reload, "load the page again", "Loaded the page again"))},
		{Name: "browser_scroll", Title: "Scroll", About: "Scroll the page, or to an element", Effect: acts, Extra: true,
			Do: works(scroll)},
		{Name: "browser_snapshot", Title: "Page snapshot",
			About: "The accessibility tree of the page with a ref for each element. Better than a screenshot",
			Do:    onPage(snapshot)},
		{Name: "browser_find", Title: "Find in page",
			About: "The lines of the snapshot that have a text, with their surroundings. Cheaper than a snapshot",
			Do:    onPage(findText)},
		{Name: "browser_click", Title: "Click", About: "Click an element", Effect: destroys, Do: works(click)},
		{Name: "browser_hover", Title: "Hover", About: "Move the mouse over an element", Effect: acts,
			Do: works(hover)},
		{Name: "browser_type", Title: "Type text", About: "Replace the text of an editable element",
			Effect: destroys, Do: works(typeText)},
		{Name: "browser_fill_form", Title: "Fill form", About: "Fill several form fields", Effect: destroys,
			Do: works(fillForm)},
		{Name: "browser_select_option", Title: "Select option", About: "Choose options of a select",
			Effect: destroys, Do: works(selectOption)},
		{Name: "browser_press_key", Title: "Press key", About: "Press a key or a combination", Effect: destroys,
			Do: on((*access).touch, pageChanges, true, pressKey)},
		{Name: "browser_drag", Title: "Drag", About: "Drag an element onto another one", Effect: destroys,
			Do: works(drag)},
		{Name: "browser_drop", Title: "Drop", About: "Drop files or data from outside the page onto an element",
			Effect: destroys, Do: onPage(drop)},
		{Name: "browser_file_upload", Title: "Upload files",
			About: "Give the open file chooser files; without paths, cancel it", Effect: destroys, Do: onPage(upload)},
		{Name: "browser_handle_dialog", Title: "Handle dialog", About: "Accept or dismiss the open dialog",
			Effect: destroys, Do: uses(handleDialog)},
		{Name: "browser_evaluate", Title: "Evaluate JavaScript",
			About: "Call a JavaScript function in the page, with the element if a target is given", Effect: destroys,
			Do: onPage(evaluate)},
		{Name: pageToolsList, Title: "Page tools",
			About: "The tools that the page declares for agents, with their schemas", Extra: true,
			Do: onPage(pageTools)},
		{Name: pageToolsCall, Title: "Call page tool", About: "Call a tool that the page declares", Effect: destroys,
			Extra: true, Do: onPage(pageTool)},
		{Name: "browser_wait_for", Title: "Wait", About: "Wait for a text, an address, a function or a time",
			Effect: acts, Do: changes(waitFor)},
		{Name: "browser_tabs", Title: "Tabs", About: "List, open, close or select a tab", Effect: destroys,
			Do: on((*access).reach, noPage, false, tabs)},
		{Name: "browser_take_screenshot", Title: "Screenshot", About: "An image of the page or of an element",
			Do: onPage(screenshot)},
		{Name: "browser_pdf_save", Title: "Save as PDF", About: "Save the page as a PDF", Extra: true,
			Do: onPage(savePDF)},
		{Name: "browser_console_messages", Title: "Console", About: "The messages of the console",
			Do: uses(console)},
		{Name: "browser_network_requests", Title: "Network requests",
			About: "The requests of the page, numbered", Do: uses(networkRequests)},
		{Name: "browser_network_request", Title: "Network request",
			About: "Headers and bodies of a request, by its number in browser_network_requests",
			Do:    uses(networkRequest)},
		{Name: "browser_emulate_media", Title: "Emulate media",
			About: "Emulate CSS media features; what is left out stays, null ends it", Effect: acts,
			Do: onPage(emulateMedia)},
		{Name: "browser_resize", Title: "Resize", About: "Set the size of the viewport", Effect: acts,
			Do: onPage(resize)},
		{Name: "browser_downloads", Title: "Downloads",
			About: "List the downloads, wait for the next one, or save a copy", Effect: acts, Extra: true, Free: true,
			Do: with(manageDownloads)},
		{Name: "browser_state", Title: "Named logins",
			About:  "List the named logins, save that of this session under a name, or load one into it",
			Effect: destroys, Extra: true,
			Do: with(manageStates)},
		{Name: "browser_select_element", Title: "Let a person choose",
			About: "Have a person click an element in the browser's window", Extra: true, Do: onPage(selectElement)},
		{Name: "browser_ask_human", Title: "Ask a person",
			About:  "Have a person do in this browser what you cannot, such as log in, and wait until it is done",
			Effect: acts, Extra: true, Free: true, Task: true,
			Do: runner{run: with(askHuman).run, most: maxAsk}},
		{Name: "browser_view", Title: "Show the browser",
			About: "Show the user this browser in the conversation, live", Extra: true, Free: true,
			UI: map[string]any{"resourceUri": ViewURI}, Do: with(view)},
		{Name: ViewFrame, Title: "Picture of the browser", About: "The picture that browser_view shows", Extra: true,
			Free: true, UI: map[string]any{"resourceUri": ViewURI, "visibility": []string{"app"}}, Do: with(viewFrame)},
		{Name: "browser_close", Title: "Close page", About: "Close the current tab", Effect: destroys,
			Do: on((*access).reach, noPage, false, closePage)},
		{Name: "browser_get_markdown", Title: "Page as Markdown", About: "The text of the page or of an element",
			Extra: true, Do: onPage(getMarkdown)},
		{Name: "browser_get_dom", Title: "DOM", About: "The HTML of the page or of an element, indented",
			Extra: true, Do: onPage(getDOM)},
		{Name: "browser_fetch", Title: "Fetch", About: "Send an HTTP request with the session's cookies",
			Effect: destroys, Extra: true, Free: true, Do: with(fetch)},
		{Name: "browser_extract", Title: "Main text",
			About: "The main text of a URL, opened in no tab", Extra: true, Free: true,
			Do: with(extract)},
		{Name: "browser_scrape", Title: "Scrape",
			About: "All text and links of a URL, opened in no tab", Extra: true, Free: true,
			Do: with(scrape)},
		{Name: "browser_search", Title: "Web search", About: "Search the web: titles, URLs and snippets",
			Extra: true, Free: true, Do: with(searchWeb)},
		{Name: "browser_cookie_list", Title: "List cookies",
			About: "The cookies of the session, or of a domain or path",
			Group: "storage", Do: uses(cookieList)},
		{Name: "browser_cookie_get", Title: "Get a cookie", About: "A cookie with its attributes",
			Group: "storage", Do: uses(cookieGet)},
		{Name: "browser_cookie_set", Title: "Set a cookie", About: "Set a cookie", Effect: destroys,
			Group: "storage", Do: uses(cookieSet)},
		{Name: "browser_cookie_delete", Title: "Remove a cookie",
			About: "Remove the cookies with a name", Effect: destroys,
			Group: "storage", Do: uses(cookieDelete)},
		{Name: "browser_cookie_clear", Title: "Remove all cookies",
			About: "Remove all cookies of the session", Effect: destroys,
			Group: "storage", Do: uses(cookieClear)},
	}, webStorage("localStorage").tools(), webStorage("sessionStorage").tools(), []tool{
		{Name: "browser_storage_state", Title: "Save storage state",
			About: "Save the cookies and the localStorage in a file, as Playwright has it",
			Group: "storage", Do: uses(storageState)},
		{Name: "browser_set_storage_state", Title: "Restore storage state",
			About: "Replace the cookies and the localStorage by those of a file", Effect: destroys,
			Group: "storage", Do: uses(setStorageState)},
		{Name: "browser_route", Title: "Route requests",
			About: "Answer requests for a URL pattern, or change their headers", Effect: destroys,
			Group: "network", Do: uses(addRoute)},
		{Name: "browser_route_list", Title: "List routes", About: "The routes that hold",
			Group: "network", Do: uses(routeList)},
		{Name: "browser_unroute", Title: "Remove routes",
			About: "Remove the routes of a pattern, or all", Effect: acts,
			Group: "network", Do: uses(unroute)},
		{Name: "browser_network_state_set", Title: "Network state",
			About: "Cut the browser off the network, or connect it again", Effect: acts,
			Group: "network", Do: uses(setNetworkState)},
		{Name: "browser_emulate", Title: "Emulate a device",
			About:  "What all pages take their device, place and language for; what is left out stays, \"\" ends it",
			Effect: acts, Group: "network", Do: uses(emulates)},
		{Name: "browser_mouse_move_xy", Title: "Move the mouse",
			About: "Move the mouse to a point of the viewport", Effect: acts,
			Group: "vision", Do: changes(mouseMove)},
		{Name: "browser_mouse_click_xy", Title: "Click at a point",
			About: "Click at a point of the viewport", Effect: destroys,
			Group: "vision", Do: on((*access).touch, pageChanges, true, mouseClick)},
		{Name: "browser_mouse_drag_xy", Title: "Drag by points",
			About: "Drag from one point of the viewport to another", Effect: destroys,
			Group: "vision", Do: on((*access).touch, pageChanges, true, mouseDrag)},
		{Name: "browser_mouse_down", Title: "Press the mouse",
			About: "Press a mouse button where the mouse is", Effect: destroys,
			Group: "vision", Do: on((*access).touch, pageChanges, false, pressMouse(true))},
		{Name: "browser_mouse_up", Title: "Release the mouse", About: "Release a mouse button", Effect: destroys,
			Group: "vision", Do: on((*access).touch, pageChanges, false, pressMouse(false))},
		{Name: "browser_mouse_wheel", Title: "Turn the wheel", About: "Turn the mouse wheel, in pixels", Effect: acts,
			Group: "vision", Do: changes(mouseWheel)},
		{Name: "browser_verify_element_visible", Title: "Verify an element",
			About: "Fail unless an element with a role and a name is visible",
			Group: "testing", Do: onPage(verifyElement)},
		{Name: "browser_verify_text_visible", Title: "Verify a text", About: "Fail unless a text is visible",
			Group: "testing", Do: onPage(verifyText)},
		{Name: "browser_verify_list_visible", Title: "Verify a list",
			About: "Fail unless an element has all of some texts",
			Group: "testing", Do: onPage(verifyList)},
		{Name: "browser_verify_value", Title: "Verify a value", About: "Fail unless a field has a value",
			Group: "testing", Do: onPage(verifyValue)},
		{Name: "browser_generate_locator", Title: "Locator", About: "A locator of an element for tests of Playwright",
			Group: "testing", Do: onPage(generateLocator)},
	})
})
