package toolline

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"btools/lib/schema"
	"btools/lib/terminal"
)

// The widest that lines are, in columns: those of a help as in that of a program without a terminal, and a usage.
const (
	Width      = 80
	usageWidth = 100
)

// Usage is how the tool is called, in one line, with as many of its options as that has room for.
func (t Tool) Usage() string {
	const more, room = " [ARGUMENT=VALUE…]", usageWidth - len("usage: ")
	line := printable("bmcp call " + t.head())
	cut := line + more
	for _, a := range t.args {
		if a.required {
			continue
		}
		line += " [" + printable(a.pair()) + "]"
		if utf8.RuneCountInString(line+more) <= room {
			cut = line + more
		}
	}
	if utf8.RuneCountInString(line) > room && strings.Contains(line, " [") {
		return cut
	}
	return line
}

// head is the tool's name and the words that it needs.
func (t Tool) head() string {
	words := []string{t.Short}
	for _, a := range t.args {
		if a.required {
			words = append(words, a.word())
		}
	}
	return strings.Join(words, " ")
}

// summary is head. Of a tool that needs no argument it has the first one that is a text.
func (t Tool) summary() string {
	head := t.head()
	isText := func(a argument) bool {
		return !a.byName && slices.Contains([]string{"string", "array", ""}, a.schema.Type)
	}
	if i := slices.IndexFunc(t.args, isText); i >= 0 && !t.args[0].required {
		head += " [" + t.args[i].word() + "]"
	}
	return printable(head)
}

// word stands for a value that stands alone.
func (a *argument) word() string {
	const most = 30
	if all := strings.Join(a.choices, "|"); all != "" && len(all) <= most {
		return all
	}
	var word strings.Builder
	for i, r := range a.name {
		if unicode.IsUpper(r) && i > 0 {
			word.WriteByte('_')
		}
		word.WriteRune(unicode.ToUpper(r))
	}
	if a.schema.Type == "array" {
		word.WriteString("…")
	}
	return word.String()
}

// pair is NAME=VALUE.
func (a *argument) pair() string {
	if a.choices != nil {
		return a.name + "=" + strings.Join(a.choices, "|")
	}
	return a.name + "=" + kind(&a.schema)
}

// kind stands for a value of a schema.
func kind(s *schema.Schema) string {
	switch {
	case len(s.AnyOf) > 0:
		return kind(&s.AnyOf[0])
	case s.Type == "array" && s.Items != nil && s.Items.Type != "array":
		return kind(s.Items)
	case s.Type == "string":
		return "TEXT"
	case s.Type == "number" || s.Type == "integer":
		return "NUMBER"
	case s.Type == "boolean":
		return "true|false"
	}
	return "JSON"
}

// Help is what a person is told of the tool: what it does, and its arguments.
func (t Tool) Help() string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n", t.Usage())
	if about := terminal.Printable(strings.TrimSpace(t.about)); about != "" {
		b.WriteByte('\n')
		for line := range strings.Lines(about) {
			b.WriteString(wrap(line, 0) + "\n")
		}
	}
	for _, group := range []struct {
		head   string
		byName bool
	}{{"Arguments, as NAME=VALUE, or values in this order:", false}, {"Only as NAME=VALUE:", true}} {
		var rows [][2]string
		for _, a := range t.args {
			if a.byName == group.byName {
				rows = append(rows, [2]string{printable(a.pair()), printable(a.description())})
			}
		}
		if rows != nil {
			fmt.Fprintf(&b, "\n%s\n%s", group.head, table(rows))
		}
	}
	return b.String()
}

// description is what an argument is, and what it is if it is not given.
func (a *argument) description() string {
	parts := []string{}
	if a.about != "" {
		parts = append(parts, a.about)
	}
	if s := a.schema.Items; a.schema.Type == "array" && s != nil && s.Properties != nil {
		parts = append(parts, members(s))
	}
	var notes []string
	if a.required {
		notes = append(notes, "required")
	}
	if a.schema.Type == "array" {
		notes = append(notes, "repeatable")
	}
	if a.unset != nil {
		notes = append(notes, "default: "+plain(a.unset))
	}
	if notes != nil {
		parts = append(parts, "("+strings.Join(notes, ", ")+")")
	}
	return strings.Join(parts, " ")
}

// members are those of an object, in JSON.
func members(s *schema.Schema) string {
	var all []string
	names := slices.Clone(s.Required)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		property := s.Properties[name]
		value := kind(&property)
		if property.Enum != nil {
			value = strings.Join(property.Enum, "|")
		}
		if !slices.Contains(s.Required, name) {
			name += "?"
		}
		all = append(all, name+": "+value)
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// List are the tools, a line each: their words, and what they do. Lines are cut that are wider than that; 0: none.
func List(tools []json.RawMessage, width int) string {
	full, short := names(tools)
	var rows [][2]string
	for i, raw := range tools {
		t := read(raw, full[i], short[i])
		rows = append(rows, [2]string{t.summary(), t.sentence()})
	}
	var b strings.Builder
	first := firstColumn(rows)
	for _, row := range rows {
		line := []rune(strings.TrimRight(pad("  "+row[0], first+2)+"  "+row[1], " "))
		if width > 0 && len(line) > width {
			line = append(line[:width-1], '…')
		}
		b.WriteString(string(line) + "\n")
	}
	return b.String()
}

// sentence is the first sentence of what the tool does.
func (t Tool) sentence() string {
	text := printable(t.about)
	for i := range text {
		rest, ok := strings.CutPrefix(text[i:], ". ")
		if next, _ := utf8.DecodeRuneInString(rest); ok && !unicode.IsLower(next) {
			return text[:i]
		}
	}
	return strings.TrimSuffix(text, ".")
}

// printable is a text in one line, which a terminal takes for nothing else.
func printable(s string) string {
	return terminal.Printable(strings.Join(strings.Fields(s), " "))
}

// column is the widest that the first column of a table is; what is wider stands alone.
const column = 30

// table is rows of two columns, the second one on as many lines as it needs.
func table(rows [][2]string) string {
	var b strings.Builder
	first := firstColumn(rows)
	for _, row := range rows {
		line := "  " + row[0]
		if row[1] != "" {
			if utf8.RuneCountInString(row[0]) > first {
				b.WriteString(line + "\n")
				line = ""
			}
			line = pad(line, first+4) + wrap(row[1], first+4)
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// firstColumn is the width of the first column.
func firstColumn(rows [][2]string) (n int) {
	for _, row := range rows {
		if w := utf8.RuneCountInString(row[0]); w <= column {
			n = max(n, w)
		}
	}
	return n
}

func pad(s string, to int) string {
	return s + strings.Repeat(" ", max(0, to-utf8.RuneCountInString(s)))
}

// wrap is a text in lines, all but the first indented.
func wrap(text string, indent int) string {
	return strings.Join(terminal.Fill(text, Width-indent), "\n"+strings.Repeat(" ", indent))
}
