package results

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"btools/lib/jsonrpc"
)

// MetaForm is the Form of a call's result, in the _meta of the call. MetaValue are the parts of content that are the
// result's value alone, in the _meta of the result, and MetaPage the page that is open then.
const (
	MetaForm  = "btools/form"
	MetaValue = "btools/value"
	MetaPage  = "btools/page"
)

// PageState is a page as a result describes it.
type PageState struct {
	URL    string `json:"url"`
	Title  string `json:"title"`
	Status int    `json:"status,omitempty"` // of HTTP; 0: unknown
}

// MetaMissing says why tools of children are missing, in the _meta of tools/list. MetaExit is the exit code that fits a
// failed call, in the _meta of a result in a form that was asked for.
const (
	MetaMissing = "btools/missing"
	MetaExit    = "btools/exit"
)

// CutMark begins the part of a result that says where the rest of a text is.
const CutMark = "[Cut: "

// Form is how much of a result its reader takes.
type Form struct {
	Text int `json:"text"` // bytes of text; 0: any number
	Data int `json:"data"` // bytes of data that is not kept as a blob; 0: any number
	// Value says that the reader wants the value alone, whole.
	Value bool `json:"value,omitempty"`
	// JSON says that a value that is JSON stays so: a text that a script returns has its quotes.
	JSON bool `json:"json,omitempty"`
	// Command is how the reader's shell begins a call, such as "bmcp call"; "": it has no shell. One with a shell gets
	// the result first, and is told of the page when that is another one than it was told of.
	Command string `json:"command,omitempty"`
	// Snapshot says that a reader with a shell wants to see what an action has changed in the page.
	Snapshot bool `json:"snapshot,omitempty"`
}

// FormOf returns the form that the parameters of a call ask for, false if they ask for none.
func FormOf(params json.RawMessage) (f Form, ok bool) {
	raw := jsonrpc.Get(params, "_meta", MetaForm)
	return f, raw != nil && json.Unmarshal(raw, &f) == nil
}

// AddTo returns the parameters of a call that asks for the form.
func (f Form) AddTo(params json.RawMessage) json.RawMessage {
	raw, _ := json.Marshal(f) // which numbers and texts never fail
	return jsonrpc.Set(params, "_meta", jsonrpc.Set(jsonrpc.Get(params, "_meta"), MetaForm, raw))
}

// Cut returns a result with the beginning of its text, if that is longer than the reader takes. The rest is lost.
func (f Form) Cut(result json.RawMessage) json.RawMessage {
	var texts, all []json.RawMessage
	whole := ""
	for item := range jsonrpc.Elements(jsonrpc.Get(result, "content")) {
		if jsonrpc.GetString(item, "type") == "text" {
			texts = append(texts, item)
			whole += jsonrpc.GetString(item, "text") + "\n"
		} else {
			all = append(all, item)
		}
	}
	if len(whole)-1 <= limit(f.Text) {
		return result
	}
	beginning := head(whole, f.Text)
	note := fmt.Sprintf(CutMark+"these are the first %d of %d characters, and the server keeps no rest: the same "+
		"call with --max-inline 0 prints all, with --save FILE writes it]", utf8.RuneCountInString(beginning),
		utf8.RuneCountInString(whole)-1)
	first := jsonrpc.Set(texts[0], "text", jsonrpc.Quote(beginning))
	last := jsonrpc.Set(texts[0], "text", jsonrpc.Quote(note))
	return jsonrpc.Set(result, "content", jsonrpc.Array(slices.Concat([]json.RawMessage{first}, all,
		[]json.RawMessage{last})))
}

// limit is a number of bytes, of which 0 is any number.
func limit(bytes int) int {
	if bytes <= 0 {
		return math.MaxInt
	}
	return bytes
}
