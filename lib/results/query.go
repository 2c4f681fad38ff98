package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jmespath/go-jmespath"

	"btools/lib/lazy"
)

const (
	maxQuery  = 1000      // bytes of an expression
	maxAnswer = 16 << 20  // bytes of what a query finds
	maxValues = 8 << 20   // values that a query may make
	maxBytes  = 256 << 20 // bytes of strings that a query may make
	maxDepth  = 1000      // of values within values that are shown
)

// One query is answered at a time: each may need many times the memory of its
// text.
var querying = make(chan struct{}, 1)

func begin(ctx context.Context) error {
	select {
	case querying <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// query returns what a JMESPath expression finds in the document of a text: in its
// JSON, or in the nodes of its snapshot, which flat makes a list.
func query(ctx context.Context, text, expression string, flat bool) (string, error) {
	if len(expression) > maxQuery {
		return "", fmt.Errorf("query has at most %d bytes, not %d", maxQuery, len(expression))
	}
	compiled, err := compile(expression)
	if err != nil {
		return "", fmt.Errorf("query is not a JMESPath expression: %w", err)
	}
	if err := begin(ctx); err != nil {
		return "", err
	}
	defer func() { <-querying }()
	doc, err := document(text, flat)
	if err != nil {
		return "", err
	}
	if n := growth(expression); n*float64(count(doc)) > maxValues || n*float64(len(text)) > maxBytes {
		return "", errors.New("query may make too much of this result: list or call fewer things in it")
	}
	v, err := evaluate(compiled, doc)
	if err != nil {
		return "", fmt.Errorf("query cannot be answered: %w", err)
	}
	return render(v)
}

// flattened writes the nodes of a text's snapshot, one a line.
func flattened(ctx context.Context, text string, out *window) error {
	if err := begin(ctx); err != nil {
		return err
	}
	defer func() { <-querying }()
	doc, err := document(text, true)
	if err != nil {
		return err
	}
	var line []byte
	for _, node := range doc.([]any) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if line, err = appendJSON(line[:0], node, maxDepth); err != nil {
			return err
		}
		line = append(line, '\n')
		out.add(line)
	}
	return nil
}

// document is what queries search in a text: its JSON, the nodes of its snapshot,
// or the JSON of its section "### Result".
func document(text string, flat bool) (any, error) {
	if nodes, ok := snapshot(text); ok {
		if flat {
			return flatten(nodes), nil
		}
		return anys(nodes), nil
	}
	if flat {
		return nil, errors.New("flatten is for snapshots, which this result has none of")
	}
	for _, part := range []string{text, section(text, "### Result\n")} {
		var doc any
		if part != "" && json.Unmarshal([]byte(part), &doc) == nil {
			return doc, nil
		}
	}
	return nil, errors.New("query is for JSON and snapshots, and this result is neither: use pattern")
}

// anyBlock is the beginning of a block of code.
var anyBlock = lazy.Regexp("^(`{3,})[a-z]*\n")

// section is the text between a heading and the next one, or the block of code
// there.
func section(text, heading string) string {
	if !strings.HasPrefix(text, heading) {
		_, rest, ok := strings.Cut(text, "\n"+heading)
		if !ok {
			return ""
		}
		text = heading + rest
	}
	text, _, _ = strings.Cut(text[len(heading):], "\n### ")
	if m := anyBlock().FindStringSubmatch(text); m != nil {
		text, _, _ = strings.Cut(text[len(m[0]):], "\n"+m[1])
	}
	return text
}

// compile parses an expression.
func compile(expression string) (q *jmespath.JMESPath, err error) {
	defer func() {
		if r := recover(); r != nil { // the library's parser trusts its input
			q, err = nil, fmt.Errorf("%v", r)
		}
	}()
	return jmespath.Compile(expression)
}

func evaluate(q *jmespath.JMESPath, doc any) (v any, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, fmt.Errorf("%v", r)
		}
	}()
	return q.Search(doc)
}

// growth is how many times as much as there is an expression may make of it. An
// expression can't be interrupted, and [@,@][] doubles what it is applied to.
// Only several things beside each other in brackets grow: that makes a factor
// of their number, and to_string one for the characters that it escapes.
func growth(expression string) float64 {
	n := 1.0
	var open []int // things in each of the brackets that are open
	for i := 0; i < len(expression); i++ {
		switch c := expression[i]; c {
		case '\'', '"', '`':
			for i++; i < len(expression) && expression[i] != c; i++ {
				if expression[i] == '\\' {
					i++
				}
			}
		case '[', '{', '(':
			open = append(open, 1)
			if c == '(' && strings.HasSuffix(expression[:i], "to_string") {
				n *= 6
			}
		case ',':
			if len(open) > 0 {
				open[len(open)-1]++
			}
		case ']', '}', ')':
			if len(open) > 0 {
				n *= float64(open[len(open)-1])
				open = open[:len(open)-1]
			}
		}
	}
	return n
}

// count returns the number of values in a document.
func count(v any) (n int) {
	for rest := []any{v}; len(rest) > 0; n++ {
		last := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		switch v := last.(type) {
		case []any:
			rest = append(rest, v...)
		case map[string]any:
			for _, member := range v {
				rest = append(rest, member)
			}
		}
	}
	return n
}

// render is JSON with a line for each element of an array.
func render(v any) (string, error) {
	all, ok := v.([]any)
	if !ok || len(all) == 0 {
		b, err := appendJSON(nil, v, maxDepth)
		return string(b), err
	}
	b := []byte("[\n")
	for i, one := range all {
		var err error
		if b, err = appendJSON(b, one, maxDepth); err != nil {
			return "", err
		}
		if i < len(all)-1 {
			b = append(b, ',')
		}
		b = append(b, '\n')
	}
	return string(append(b, ']')), nil
}

// appendJSON writes a value that may contain the same one many times: it ends when
// there is too much.
func appendJSON(b []byte, v any, depth int) ([]byte, error) {
	if len(b) > maxAnswer {
		return nil, fmt.Errorf("what is asked for has more than %d MiB: ask for less", maxAnswer>>20)
	}
	if depth == 0 {
		return nil, fmt.Errorf("what is asked for has more than %d levels", maxDepth)
	}
	var err error
	switch v := v.(type) {
	case []any:
		b = append(b, '[')
		for i, one := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, one, depth-1); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	case map[string]any:
		b = append(b, '{')
		for i, name := range sortedNames(v) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendText(b, name), ':')
			if b, err = appendJSON(b, v[name], depth-1); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case string:
		return appendText(b, v), nil
	}
	one, err := json.Marshal(v)
	return append(b, one...), err
}

// appendText writes a string without the escapes of HTML.
func appendText(b []byte, s string) []byte {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] >= ' ' && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\'
	}
	if plain {
		return append(append(append(b, '"'), s...), '"')
	}
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.Encode(s) // which a string never fails
	return append(b, strings.TrimSuffix(out.String(), "\n")...)
}

// sortedNames are the names of an object's members: what a node is, the rest, and its
// children.
func sortedNames(object map[string]any) []string {
	names := make([]string, 0, len(object))
	for _, name := range nodeOrder {
		if _, ok := object[name]; ok {
			names = append(names, name)
		}
	}
	first := len(names)
	for name := range object {
		if name != "children" && !slices.Contains(nodeOrder, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names[first:])
	if _, ok := object["children"]; ok {
		names = append(names, "children")
	}
	return names
}
