package mcphosts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v3"

	"btools/lib/lazy"
)

// Merge returns a host's configuration with the entry in it: in the place of one
// with its name, else beside the others. Comments, order and everything else stay.
// It is an error if the file cannot be parsed, or if the result would say anything
// else than the file and the entry: the text is edited for the usual forms only.
func (h Host) Merge(file []byte, e Entry) ([]byte, error) {
	text := h.Text(e)
	parse, insert := h.format()
	if len(bytes.TrimSpace(file)) == 0 {
		return []byte(text), nil
	}
	before, err := parse(file)
	if err != nil {
		return nil, err
	}
	want, err := parse(file)
	if err != nil {
		return nil, err
	}
	entry, err := parse([]byte(text))
	if err != nil {
		return nil, err
	}
	if want == nil { // nothing but comments
		want = map[string]any{}
	}
	old, err := put(want, entry, h.keys)
	if err != nil {
		return nil, err
	}
	if reflect.DeepEqual(before, want) {
		return file, nil
	}
	after, err := insert(file, text)
	if err != nil {
		return nil, err
	}
	if got, err := parse(after); err == nil && reflect.DeepEqual(got, want) {
		return after, nil
	}
	if old != nil {
		return nil, fmt.Errorf("it has a %s already, in a form that bmcp does not edit", Name)
	}
	return nil, errors.New("it is written in a form that bmcp does not edit")
}

// format returns what reads the file of a host, and what puts an entry into its text.
func (h Host) format() (parse func([]byte) (map[string]any, error), insert func([]byte, string) ([]byte, error)) {
	switch {
	case strings.HasSuffix(h.file, ".toml"):
		return parseTOML, insertTOML
	case strings.HasSuffix(h.file, ".yaml"):
		return parseYAML, insertYAML
	}
	return parseJSON, h.insertJSON
}

// put puts the entry below the keys of from into the object there, which it makes if
// there is none. It returns the entry that was there, or nil.
func put(into, from map[string]any, keys []string) (old any, err error) {
	if len(keys) == 0 {
		old, into[Name] = into[Name], from[Name]
		return old, nil
	}
	if into[keys[0]] == nil {
		into[keys[0]] = map[string]any{}
	}
	inner, is := into[keys[0]].(map[string]any)
	if !is {
		return nil, fmt.Errorf("its %s is not an object", keys[0])
	}
	return put(inner, from[keys[0]].(map[string]any), keys[1:])
}

func parseJSON(b []byte) (v map[string]any, err error) {
	standard, err := hujson.Standardize(bytes.Clone(b))
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(standard))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

func parseTOML(b []byte) (v map[string]any, err error) {
	err = toml.Unmarshal(b, &v)
	return v, err
}

func parseYAML(b []byte) (v map[string]any, err error) {
	d := yaml.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&v); err != nil && err != io.EOF {
		return nil, err
	}
	if err := d.Decode(new(any)); err != io.EOF {
		return nil, errors.New("it has more than one document")
	}
	return v, nil
}

func (h Host) insertJSON(file []byte, text string) ([]byte, error) {
	root, err := hujson.Parse(bytes.Clone(file))
	if err != nil {
		return nil, err
	}
	entry, err := hujson.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	at, from := &root, &entry
	for depth, key := range append(slices.Clone(h.keys), Name) {
		if at, err = member(at, key, depth); err != nil {
			return nil, err
		}
		if from, err = member(from, key, depth); err != nil {
			return nil, err
		}
	}
	at.Value = from.Value
	return root.Pack(), nil
}

func indent(depth int) string { return strings.Repeat("  ", depth) }

// member returns the value of an object's member. One that does not exist is
// made, as an empty object on a line of its own after the others.
func member(of *hujson.Value, name string, depth int) (*hujson.Value, error) {
	object, is := of.Value.(*hujson.Object)
	if !is {
		return nil, errors.New("a member on the way to the servers is not an object")
	}
	for i := range slices.Backward(object.Members) { // of two with one name the last one counts
		if m := &object.Members[i]; m.Name.Value.(hujson.Literal).String() == name {
			return &m.Value, nil
		}
	}
	// A comment behind the last member stays there, and so does a comma.
	before, end := object.AfterExtra, hujson.Extra("\n"+indent(depth))
	if i := bytes.LastIndexByte(before, '\n'); i >= 0 {
		before, end = before[:i], bytes.Clone(before[i:])
	}
	var comma hujson.Extra
	if n := len(object.Members); n > 0 {
		comma = object.Members[n-1].Value.AfterExtra
	}
	object.Members = append(object.Members, hujson.ObjectMember{
		Name: hujson.Value{BeforeExtra: append(bytes.Clone(before), "\n"+indent(depth+1)...),
			Value: hujson.String(name)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" "), Value: &hujson.Object{}, AfterExtra: comma},
	})
	object.AfterExtra = end
	return &object.Members[len(object.Members)-1].Value, nil
}

// Lines of TOML: the head of a table, that of the entry (]) or of a table in it (.), and
// one that says nothing.
var (
	tomlTable = lazy.Regexp(`^[ \t]*\[`)
	tomlOurs  = lazy.Regexp(`^[ \t]*\[[ \t]*` + tomlKey("mcp_servers") + `[ \t]*\.[ \t]*` + tomlKey(Name) +
		`[ \t]*(\]|\.)`)
	tomlBlank = lazy.Regexp(`^[ \t]*(#.*)?\r?\n?$`)
)

func tomlKey(k string) string { return `(?:` + k + `|"` + k + `"|'` + k + `')` }

// insertTOML puts the entry below the head that it has already, or at the end. The
// comment before the next table stays.
func insertTOML(file []byte, text string) ([]byte, error) {
	text = likeLines(file, text)
	lines := strings.SplitAfter(string(file), "\n")
	ours := func(line, end string) bool {
		m := tomlOurs().FindStringSubmatch(line)
		return m != nil && m[1] == end
	}
	start := slices.IndexFunc(lines, func(l string) bool { return ours(l, "]") })
	if start < 0 {
		newline := likeLines(file, "\n")
		return []byte(strings.TrimRight(string(file), "\r\n") + newline + newline + text), nil
	}
	end := start + 1
	for end < len(lines) && (!tomlTable().MatchString(lines[end]) || ours(lines[end], ".")) {
		end++
	}
	for end > start+1 && tomlBlank().MatchString(lines[end-1]) {
		end--
	}
	_, body, _ := strings.Cut(text, "\n")
	return []byte(endLine(strings.Join(lines[:start+1], "")) + body + strings.Join(lines[end:], "")), nil
}

// yamlBlock is the key of the extensions, and the indentation of the first one.
var yamlBlock = lazy.Regexp(`(?m)^["']?extensions["']?[ \t]*:[ \t]*(?:#.*)?\r?\n(?:[ \t]*(?:#.*)?\r?\n)*( *)`)

// insertYAML puts the entry before the other members of a block.
func insertYAML(file []byte, text string) ([]byte, error) {
	whole := endLine(string(file))
	at := yamlBlock().FindStringSubmatchIndex(whole)
	if at == nil {
		return []byte(whole + likeLines(file, text)), nil
	}
	indent := whole[at[2]:at[3]]
	if indent == "" {
		indent = "  "
	}
	var entry strings.Builder
	for line := range strings.Lines(text) {
		if inner, is := strings.CutPrefix(line, "  "); is {
			entry.WriteString(indent + inner)
		}
	}
	begin := at[0] + strings.Index(whole[at[0]:], "\n") + 1
	return []byte(whole[:begin] + likeLines(file, entry.String()) + whole[begin:]), nil
}

// likeLines returns a text with the ends of lines that the file has.
func likeLines(file []byte, text string) string {
	if bytes.Contains(file, []byte("\r\n")) {
		return strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// endLine ends the last line of a text.
func endLine(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + likeLines([]byte(text), "\n")
}
