// Package toolline is the command line of an MCP tool, made from the tool's schema: what the words after its name
// mean, and what a person is told of it. It calls no tool and knows no server.
//
// A word NAME=VALUE is the argument NAME, if the tool has one; each other word is the value of the next argument. That
// is a required one, in the order of the schema's "required"; then the first optional one, in the order of its
// "properties", whose type the word has: the 2 of "tabs select 2" is an index, and no URL. One optional argument at
// most is any text: the words of a text without quotes are a mistake. An argument that is an array takes several words,
// and NAME=VALUE several times. After "--" no word is NAME=VALUE.
package toolline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"btools/lib/exit"
	"btools/lib/jsonrpc"
	"btools/lib/schema"
	"btools/lib/spell"
)

// Tool is a tool as tools/list has it.
type Tool struct {
	Name  string // by which it is called
	Short string // as people write it
	about string
	args  []argument    // in the order in which words fill them, those by name only at the end
	check schema.Schema // of all arguments
	open  bool          // it takes others, too
}

// argument is an argument of a tool.
type argument struct {
	name     string
	about    string
	demanded bool // the server wants it
	required bool // by who writes the line: it has no default
	byName   bool // a word that stands alone is never its value
	schema   schema.Schema
	choices  []string        // the values that it, or each of its elements, can have; nil: any of its type
	unset    json.RawMessage // the value that it has otherwise, if the schema says so
}

// prefix is what the names of tools for browsing begin with, and people leave out.
const prefix = "browser_"

// onlyByName are arguments that describe another one for people, and those that bmcp adds to the tools of its
// children, if they are optional.
var onlyByName = []string{"element", "startElement", "endElement", "session_id", "state", "browser_pool",
	"browser_instance", "instanceId"}

// Tools are the tools of a tools/list, whose names are read once and not for each line.
type Tools struct {
	All         []json.RawMessage
	full, short []string
}

// Of reads the names of tools.
func Of(all []json.RawMessage) *Tools {
	full, short := names(all)
	return &Tools{all, full, short}
}

// Find finds a tool by its name, which may lack browser_, or by the word that another program has for it.
func (s *Tools) Find(name string) (Tool, error) {
	known := []string{name, prefix + name}
	if synonym := synonyms[strings.TrimPrefix(name, prefix)]; synonym != "" {
		known = append(known, prefix+synonym)
	}
	for _, full := range known {
		if i := slices.Index(s.full, full); i >= 0 {
			return read(s.All[i], full, s.short[i]), nil
		}
	}
	return Tool{}, &exit.Error{Code: exit.Usage, Err: unknown(name, slices.Concat(s.short, s.full)),
		Hint: "bmcp call --help lists the tools"}
}

// synonyms are the words that other programs have for our tools. What stands after them means the same.
var synonyms = map[string]string{
	"back": "navigate_back", "console": "console_messages", "content": "get_dom", "cookies": "cookie_list",
	"dom": "get_dom", "eval": "evaluate", "fill": "type", "forward": "navigate_forward", "go_back": "navigate_back",
	"go_forward": "navigate_forward", "goto": "navigate", "refresh": "reload", "scrollintoview": "scroll",
	"html": "get_dom", "js": "evaluate", "markdown": "get_markdown", "open": "navigate", "pdf": "pdf_save",
	"press": "press_key", "requests": "network_requests", "screenshot": "take_screenshot", "select": "select_option",
	"text": "get_markdown", "visit": "navigate",
}

// hints say how our tools do what is a tool of other programs. Each begins with a tool.
var hints = map[string]string{
	"check":    "click toggles a checkbox, and fill_form with type=checkbox and value=true checks it",
	"dblclick": "click with doubleClick=true clicks twice",
	"exit":     "close closes the tab, and bmcp end the session",
	"get":      "evaluate with --raw prints a value, get_markdown the text and get_dom the HTML",
	"keyboard": "press_key presses keys, and type fills a field",
	"quit":     "close closes the tab, and bmcp end the session",
	"read":     "get_markdown has the text of the page, and extract that of a URL",
	"tab":      "tabs lists, opens, selects and closes tabs",
	"title":    "evaluate document.title prints it, with --raw alone",
	"uncheck":  "click toggles a checkbox, and fill_form with type=checkbox and value=false unchecks it",
	"url":      "evaluate location.href prints it, with --raw alone",
	"upload":   "click opens a file chooser, and file_upload gives it files",
	"wait":     "wait_for waits for a text, or by load=load, url=…, function=… or time=SECONDS for that",
}

// UnknownError is the error of a tool that is not there.
type UnknownError struct{ text string }

func (e *UnknownError) Error() string { return e.text }

// unknown returns the error of a tool that is not there.
func unknown(name string, known []string) error {
	word := strings.TrimPrefix(name, prefix)
	if hint := hints[word]; hint != "" && slices.Contains(known, strings.Fields(hint)[0]) {
		return &UnknownError{fmt.Sprintf("there is no tool %q: %s", name, hint)}
	}
	near := spell.Nearest(name, known)
	has := func(k string) bool { return name != "" && strings.Contains(k, name) }
	if i := slices.IndexFunc(known, has); near == "" && i >= 0 {
		near = known[i] // take_screenshot, for screenshot
	}
	if near == "" {
		return &UnknownError{fmt.Sprintf("there is no tool %q", name)}
	}
	return &UnknownError{fmt.Sprintf("there is no tool %q: did you mean %s?", name, near)}
}

// names are the names of tools, and those that people write: without browser_, unless another tool is called that.
func names(tools []json.RawMessage) (full, short []string) {
	for _, raw := range tools {
		full = append(full, jsonrpc.GetString(raw, "name"))
	}
	for _, name := range full {
		cut := strings.TrimPrefix(name, prefix)
		if cut == "" || cut != name && slices.Contains(full, cut) {
			cut = name
		}
		short = append(short, cut)
	}
	return full, short
}

// read reads a tool. What package schema does not know of its schema holds for the server only.
func read(raw json.RawMessage, name, short string) Tool {
	t := Tool{Name: name, Short: short, about: jsonrpc.GetString(raw, "description")}
	input := jsonrpc.Get(raw, "inputSchema")
	var required []string
	if json.Unmarshal(jsonrpc.Get(input, "required"), &required) != nil {
		required = nil
	}
	t.check = schema.Schema{Type: "object", Properties: map[string]schema.Schema{}}
	add := func(name string, raw json.RawMessage) {
		if _, ok := t.check.Properties[name]; ok {
			return
		}
		a := argument{name: name, about: jsonrpc.GetString(raw, "description"), schema: parse(raw),
			choices: choices(raw), unset: jsonrpc.Get(raw, "default")}
		a.demanded = slices.Contains(required, name)
		a.required = a.demanded && a.unset == nil
		a.byName = !a.required && slices.Contains(onlyByName, name)
		t.check.Properties[name] = a.schema
		t.args = append(t.args, a)
	}
	properties, others := jsonrpc.Get(input, "properties"), jsonrpc.Get(input, "additionalProperties")
	t.open = properties == nil && others == nil || string(others) == "true" || len(others) > 0 && others[0] == '{'
	jsonrpc.Members(properties, func(name, raw json.RawMessage) error {
		add(jsonrpc.String(name), raw)
		return nil
	})
	for _, name := range required {
		add(name, nil)
	}
	t.check.Required = slices.DeleteFunc(slices.Clone(required), func(name string) bool {
		return !slices.ContainsFunc(t.args, func(a argument) bool { return a.name == name && a.required })
	})
	place := func(a argument) int {
		switch at := slices.Index(required, a.name); {
		case a.required:
			return at
		case a.demanded:
			return len(required) + at
		case a.byName:
			return 2*len(required) + 1
		}
		return 2 * len(required)
	}
	slices.SortStableFunc(t.args, func(a, b argument) int { return place(a) - place(b) })
	return t
}

// parse reads the schema of a value as far as package schema knows it.
func parse(raw json.RawMessage) (s schema.Schema) {
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var types []string
	if json.Unmarshal(jsonrpc.Get(raw, "type"), &types) == nil { // any of several
		s = schema.Schema{}
		for _, one := range types {
			s.AnyOf = append(s.AnyOf, parse(jsonrpc.Set(raw, "type", jsonrpc.Quote(one))))
		}
		return s
	}
	return schema.Schema{Type: jsonrpc.GetString(raw, "type")}
}

// argument is the argument with a name, nil if there is none. It may be one of an earlier version.
func (t *Tool) argument(name string) *argument {
	name = t.check.Means(name)
	i := slices.IndexFunc(t.args, func(a argument) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &t.args[i]
}

// choices are the values that an argument, or an element of an array, can have; nil: any of its type.
func choices(raw json.RawMessage) (all []string) {
	for v := range jsonrpc.Elements(jsonrpc.Get(raw, "enum")) {
		all = append(all, plain(v))
	}
	for v := range jsonrpc.Elements(jsonrpc.Get(raw, "anyOf")) {
		if all == nil {
			all = choices(v)
		}
	}
	switch {
	case all != nil:
		return all
	case jsonrpc.GetString(raw, "type") == "array":
		return choices(jsonrpc.Get(raw, "items"))
	case jsonrpc.GetString(raw, "type") == "boolean":
		return []string{"true", "false"}
	}
	return nil
}

// plain is a value as people write it: a text without quotes.
func plain(v json.RawMessage) string {
	if len(v) > 0 && v[0] == '"' {
		return jsonrpc.String(v)
	}
	return string(v)
}
