package recorder

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	"btools/lib/evidence"
	"btools/lib/record"
	"btools/lib/terminal"
)

// print writes a line of the console.
func (r *Recorder) print(at time.Time, p *page, kind, text string) {
	where := "-"
	if p != nil {
		r.numberLocked(p) // where it is may be told later
		where = fmt.Sprint("page ", p.number)
	}
	time, _ := record.Time{Time: at}.MarshalJSON()
	lines := strings.Split(strings.TrimRight(r.hidden.Mask(text), "\n"), "\n")
	for i, l := range lines {
		lines[i] = terminal.Printable(strings.TrimRight(l, "\r"))
	}
	_, err := fmt.Fprintf(r.console, "%s %s %s: %s\n", strings.Trim(string(time), `"`), where, kind,
		strings.Join(lines, "\n\t"))
	r.torn = cmp.Or(r.torn, err)
}

// remote is a value of a page.
type remote struct {
	Type                string          `json:"type"`
	Subtype             string          `json:"subtype"`
	Value               json.RawMessage `json:"value"`
	UnserializableValue string          `json:"unserializableValue"`
	Description         string          `json:"description"`
	Preview             *struct {
		Description string `json:"description"`
		Overflow    bool   `json:"overflow"`
		Properties  []struct {
			Name, Value string
		} `json:"properties"`
	} `json:"preview"`
}

// text is a value as a console shows it.
func (v remote) text() string {
	var s string
	switch {
	case v.Type == "string" && json.Unmarshal(v.Value, &s) == nil:
		return s
	case v.Preview != nil && v.Subtype != "error" && len(v.Preview.Properties) > 0:
		var parts []string
		for _, p := range v.Preview.Properties {
			if v.Subtype == "array" {
				parts = append(parts, p.Value)
			} else {
				parts = append(parts, p.Name+": "+p.Value)
			}
		}
		if v.Preview.Overflow {
			parts = append(parts, "…")
		}
		return v.Preview.Description + " {" + strings.Join(parts, ", ") + "}"
	case v.Description != "":
		return v.Description
	case v.UnserializableValue != "":
		return v.UnserializableValue
	case len(v.Value) > 0:
		return string(v.Value)
	}
	return v.Type
}

// said returns when and what a page has printed.
func said(method string, params json.RawMessage) (at time.Time, kind, text string) {
	var e struct {
		Type      string   `json:"type"`
		Args      []remote `json:"args"`
		Timestamp float64  `json:"timestamp"` // in milliseconds since 1970
		Stack     *struct {
			CallFrames []position `json:"callFrames"`
		} `json:"stackTrace"`
		Details struct {
			position
			Text      string  `json:"text"`
			Exception *remote `json:"exception"`
		} `json:"exceptionDetails"`
		Entry struct {
			Level     string  `json:"level"`
			Source    string  `json:"source"`
			Text      string  `json:"text"`
			URL       string  `json:"url"`
			Timestamp float64 `json:"timestamp"`
		} `json:"entry"`
	}
	json.Unmarshal(params, &e)
	at = time.UnixMilli(int64(e.Timestamp))
	switch method {
	case "Runtime.consoleAPICalled":
		var words []string
		for _, a := range e.Args {
			words = append(words, a.text())
		}
		kind, text = e.Type, strings.Join(words, " ")
		if e.Stack != nil && len(e.Stack.CallFrames) > 0 {
			text += e.Stack.CallFrames[0].String()
		}
	case "Runtime.exceptionThrown":
		kind, text = "exception", e.Details.Text
		if x := e.Details.Exception; x != nil {
			text += " " + x.text()
		}
		if !strings.Contains(text, "\n") { // a stack has it
			text += e.Details.String()
		}
	default:
		at = time.UnixMilli(int64(e.Entry.Timestamp))
		kind, text = e.Entry.Source+" "+e.Entry.Level, e.Entry.Text
		if e.Entry.URL != "" {
			text += " (" + e.Entry.URL + ")"
		}
	}
	return at, kind, text
}

// position is one in a script; lines and columns are counted from 0.
type position struct {
	URL    string `json:"url"`
	Line   int    `json:"lineNumber"`
	Column int    `json:"columnNumber"`
}

func (p position) String() string {
	if p.URL == "" {
		return ""
	}
	return fmt.Sprintf(" (%s:%d:%d)", p.URL, p.Line+1, p.Column+1)
}

// name is the name of a page's files: its number, and its title or else its address.
func (p *page) name() string {
	text := evidence.Slug(p.title)
	if u, err := url.Parse(p.url); err == nil && (text == "" || p.title == p.url) {
		text = evidence.Slug(u.Host + u.Path)
	}
	if text == "" {
		text = "page"
	}
	return fmt.Sprintf("%d-%s", p.number, text)
}
