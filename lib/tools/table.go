package tools

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"btools/lib/schema"
)

// tool is one line of the table.
type tool struct {
	name, title, description string
	effect                   effect
	extra                    bool   // not one of those that @playwright/mcp lists by default
	group                    string // of those that are listed only if they are chosen; "": it is one of the others
	free                     bool   // it does not use the page, and takes no turn
	run                      runner

	// Made by prepared:
	input  *schema.Schema
	listed json.RawMessage
}

// runner runs a tool with arguments that have been checked.
type runner func(ctx context.Context, r *reply, args json.RawMessage) error

// effect is what a host is told of a tool's effect.
type effect int

const (
	reads effect = iota
	acts
	destroys
)

// schemas has the JSON Schemas of the arguments, in TOOL.json, and those of structured
// results, in TOOL.output.json.
//
//go:embed schemas/*.json
var schemas embed.FS

// with is a tool's function with its arguments decoded.
func with[T any](f func(ctx context.Context, r *reply, args T) error) runner {
	return func(ctx context.Context, r *reply, raw json.RawMessage) error {
		var args T
		if err := json.Unmarshal(raw, &args); err != nil {
			return err
		}
		return f(ctx, r, args)
	}
}

func schemaFile(name string) json.RawMessage {
	b, err := schemas.ReadFile("schemas/" + name + ".json")
	if err != nil {
		return nil
	}
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		panic(err) // it is ours
	}
	return out.Bytes()
}

// prepared returns the table with the schemas of its tools, which are read when the
// first host asks for them: most processes of bmcp serve none.
var prepared = sync.OnceValue(func() []tool {
	for i := range table {
		t := &table[i]
		input := schemaFile(t.name)
		t.input = &schema.Schema{}
		if err := json.Unmarshal(input, t.input); err != nil {
			panic(t.name + ": " + err.Error()) // it is ours
		}
		hints := map[string]any{"title": t.title}
		switch t.effect {
		case reads:
			hints["readOnlyHint"] = true
		case acts:
			hints["destructiveHint"] = false
		}
		listed := map[string]any{"name": t.name, "description": t.description, "inputSchema": input,
			"annotations": hints}
		if output := schemaFile(t.name + ".output"); output != nil {
			listed["outputSchema"] = output
		}
		t.listed, _ = json.Marshal(listed)
	}
	return table
})

func find(name string) *tool {
	all := prepared()
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// table is what there is.
var table = slices.Concat(first, webStorage("localStorage").tools(), webStorage("sessionStorage").tools(), others)

// tools are those for the localStorage, or for the sessionStorage.
func (kind webStorage) tools() []tool {
	name, is := "browser_"+strings.ToLower(string(kind))+"_", string(kind)
	return []tool{
		{name: name + "list", title: "List " + is, description: "The " + is + " of the page",
			group: "storage", run: with(kind.list)},
		{name: name + "get", title: "Get of " + is, description: "An item of the " + is + " of the page",
			group: "storage", run: with(kind.get)},
		{name: name + "set", title: "Set in " + is, description: "Set an item of the " + is + " of the page",
			effect: destroys, group: "storage", run: with(kind.set)},
		{name: name + "delete", title: "Remove from " + is, description: "Remove an item of the " + is + " of the page",
			effect: destroys, group: "storage", run: with(kind.remove)},
		{name: name + "clear", title: "Clear " + is, description: "Remove all of the " + is + " of the page",
			effect: destroys, group: "storage", run: with(kind.clear)},
	}
}

// first are those before them in the list.
var first = []tool{
	{name: "browser_navigate", title: "Navigate", description: "Open a URL in the current tab", effect: acts,
		run: with(navigate)},
	{name: "browser_navigate_back", title: "Go back", description: "Go back in the history", effect: acts,
		run: with(back)},
	{name: "browser_snapshot", title: "Page snapshot",
		description: "The accessibility tree of the page with a ref for each element. Better than a screenshot",
		run:         with(snapshot)},
	{name: "browser_find", title: "Find in page",
		description: "The lines of the snapshot that have a text, with their surroundings. Cheaper than a snapshot",
		run:         with(findText)},
	{name: "browser_click", title: "Click", description: "Click an element", effect: destroys, run: with(click)},
	{name: "browser_hover", title: "Hover", description: "Move the mouse over an element", effect: acts,
		run: with(hover)},
	{name: "browser_type", title: "Type text", description: "Replace the text of an editable element",
		effect: destroys, run: with(typeText)},
	{name: "browser_fill_form", title: "Fill form", description: "Fill several form fields", effect: destroys,
		run: with(fillForm)},
	{name: "browser_select_option", title: "Select option", description: "Choose options of a select",
		effect: destroys, run: with(selectOption)},
	{name: "browser_press_key", title: "Press key", description: "Press a key or a combination", effect: destroys,
		run: with(pressKey)},
	{name: "browser_drag", title: "Drag", description: "Drag an element onto another one", effect: destroys,
		run: with(drag)},
	{name: "browser_drop", title: "Drop", description: "Drop files or data from outside the page onto an element",
		effect: destroys, run: with(drop)},
	{name: "browser_file_upload", title: "Upload files",
		description: "Give the open file chooser files; without paths, cancel it", effect: destroys, run: with(upload)},
	{name: "browser_handle_dialog", title: "Handle dialog", description: "Accept or dismiss the open dialog",
		effect: destroys, run: with(handleDialog)},
	{name: "browser_evaluate", title: "Evaluate JavaScript",
		description: "Call a JavaScript function in the page, with the element if a target is given", effect: destroys,
		run: with(evaluate)},
	{name: "browser_wait_for", title: "Wait", description: "Wait for a text to appear or to disappear, or for a time",
		run: with(waitFor)},
	{name: "browser_tabs", title: "Tabs", description: "List, open, close or select a tab", effect: destroys,
		run: with(tabs)},
	{name: "browser_take_screenshot", title: "Screenshot", description: "An image of the page or of an element",
		run: with(screenshot)},
	{name: "browser_pdf_save", title: "Save as PDF", description: "Save the page as a PDF", extra: true,
		run: with(savePDF)},
	{name: "browser_console_messages", title: "Console", description: "The messages of the console",
		run: with(console)},
	{name: "browser_network_requests", title: "Network requests",
		description: "The requests of the page, numbered", run: with(networkRequests)},
	{name: "browser_network_request", title: "Network request",
		description: "Headers and bodies of a request, by its number in browser_network_requests",
		run:         with(networkRequest)},
	{name: "browser_emulate_media", title: "Emulate media",
		description: "Emulate CSS media features; what is left out stays, null ends it", effect: acts,
		run: with(emulateMedia)},
	{name: "browser_resize", title: "Resize", description: "Set the size of the viewport", effect: acts,
		run: with(resize)},
	{name: "browser_downloads", title: "Downloads",
		description: "List the downloads, wait for the next one, or save a copy", effect: acts, extra: true, free: true,
		run: with(manageDownloads)},
	{name: "browser_state", title: "Named logins",
		description: "List the named logins, save that of this session under a name, or load one into it",
		effect:      destroys, extra: true,
		run: with(manageStates)},
	{name: "browser_select_element", title: "Let a person choose",
		description: "Have a person click an element in the browser's window", extra: true, run: with(selectElement)},
	{name: "browser_close", title: "Close page", description: "Close the current tab", effect: destroys,
		run: with(closePage)},
	{name: "browser_get_markdown", title: "Page as Markdown", description: "The text of the page or of an element",
		extra: true, run: with(getMarkdown)},
	{name: "browser_get_dom", title: "DOM", description: "The HTML of the page or of an element, indented",
		extra: true, run: with(getDOM)},
	{name: "browser_fetch", title: "Fetch", description: "Send an HTTP request with the session's cookies",
		effect: destroys, extra: true, free: true, run: with(fetch)},
	{name: "browser_extract", title: "Main text",
		description: "The main text of a URL, opened in no tab", extra: true, free: true,
		run: with(extract)},
	{name: "browser_scrape", title: "Scrape",
		description: "All text and links of a URL, opened in no tab", extra: true, free: true,
		run: with(scrape)},
	{name: "browser_search", title: "Web search", description: "Search the web: titles, URLs and snippets",
		extra: true, free: true, run: with(searchWeb)},
	{name: "browser_cookie_list", title: "List cookies",
		description: "The cookies of the session, or of a domain or path",
		group:       "storage", run: with(cookieList)},
	{name: "browser_cookie_get", title: "Get a cookie", description: "A cookie with its attributes",
		group: "storage", run: with(cookieGet)},
	{name: "browser_cookie_set", title: "Set a cookie", description: "Set a cookie", effect: destroys,
		group: "storage", run: with(cookieSet)},
	{name: "browser_cookie_delete", title: "Remove a cookie",
		description: "Remove the cookies with a name", effect: destroys,
		group: "storage", run: with(cookieDelete)},
	{name: "browser_cookie_clear", title: "Remove all cookies",
		description: "Remove all cookies of the session", effect: destroys,
		group: "storage", run: with(cookieClear)},
}

// others are those after them.
var others = []tool{
	{name: "browser_storage_state", title: "Save storage state",
		description: "Save the cookies and the localStorage in a file, as Playwright has it",
		group:       "storage", run: with(storageState)},
	{name: "browser_set_storage_state", title: "Restore storage state",
		description: "Replace the cookies and the localStorage by those of a file", effect: destroys,
		group: "storage", run: with(setStorageState)},
	{name: "browser_route", title: "Route requests",
		description: "Answer requests for a URL pattern, or change their headers", effect: destroys,
		group: "network", run: with(addRoute)},
	{name: "browser_route_list", title: "List routes", description: "The routes that hold",
		group: "network", run: with(routeList)},
	{name: "browser_unroute", title: "Remove routes",
		description: "Remove the routes of a pattern, or all", effect: acts,
		group: "network", run: with(unroute)},
	{name: "browser_network_state_set", title: "Network state",
		description: "Cut the browser off the network, or connect it again", effect: acts,
		group: "network", run: with(setNetworkState)},
	{name: "browser_mouse_move_xy", title: "Move the mouse",
		description: "Move the mouse to a point of the viewport", effect: acts,
		group: "vision", run: with(mouseMove)},
	{name: "browser_mouse_click_xy", title: "Click at a point",
		description: "Click at a point of the viewport", effect: destroys,
		group: "vision", run: with(mouseClick)},
	{name: "browser_mouse_drag_xy", title: "Drag by points",
		description: "Drag from one point of the viewport to another", effect: destroys,
		group: "vision", run: with(mouseDrag)},
	{name: "browser_mouse_down", title: "Press the mouse",
		description: "Press a mouse button where the mouse is", effect: destroys,
		group: "vision", run: with(mouseDown)},
	{name: "browser_mouse_up", title: "Release the mouse", description: "Release a mouse button", effect: destroys,
		group: "vision", run: with(mouseUp)},
	{name: "browser_mouse_wheel", title: "Turn the wheel", description: "Turn the mouse wheel, in pixels", effect: acts,
		group: "vision", run: with(mouseWheel)},
	{name: "browser_verify_element_visible", title: "Verify an element",
		description: "Fail unless an element with a role and a name is visible",
		group:       "testing", run: with(verifyElement)},
	{name: "browser_verify_text_visible", title: "Verify a text", description: "Fail unless a text is visible",
		group: "testing", run: with(verifyText)},
	{name: "browser_verify_list_visible", title: "Verify a list",
		description: "Fail unless an element has all of some texts",
		group:       "testing", run: with(verifyList)},
	{name: "browser_verify_value", title: "Verify a value", description: "Fail unless a field has a value",
		group: "testing", run: with(verifyValue)},
	{name: "browser_generate_locator", title: "Locator", description: "A locator of an element for tests of Playwright",
		group: "testing", run: with(generateLocator)},
}
