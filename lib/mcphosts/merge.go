package mcphosts

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"

	"btools/lib/lazy"
)

// Merge returns a host's configuration with the entry in it: in the place of one
// with its name, else after the others. Comments, order and everything else stay.
// A file that cannot be parsed is an error.
func (h Host) Merge(file []byte, e Entry) ([]byte, error) {
	switch {
	case len(bytes.TrimSpace(file)) == 0:
		return []byte(h.Text(e)), nil
	case h.keys != nil:
		return h.mergeJSON(file, e)
	case strings.HasSuffix(h.file, ".toml"):
		return mergeTOML(file, h.text(e))
	}
	return mergeYAML(file, h.text(e))
}

func (h Host) mergeJSON(file []byte, e Entry) ([]byte, error) {
	root, err := hujson.Parse(file)
	if err != nil {
		return nil, err
	}
	at := &root
	for depth, key := range h.keys {
		if at, err = member(at, key, depth); err != nil {
			return nil, err
		}
	}
	if at, err = member(at, Name, len(h.keys)); err != nil {
		return nil, err
	}
	entry, err := hujson.Parse([]byte(strings.TrimSpace(indented(h.entry(e), indent(len(h.keys)+1)))))
	if err != nil {
		return nil, err
	}
	at.Value = entry.Value
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
	for i := range object.Members {
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

// tomlTable is the head of a table.
var tomlTable = lazy.Regexp(`(?m)^\s*\[`)

func mergeTOML(file []byte, text string) ([]byte, error) {
	var any map[string]any
	if err := toml.Unmarshal(file, &any); err != nil {
		return nil, err
	}
	head := text[:strings.Index(text, "\n")+1]
	before, after, found := strings.Cut("\n"+string(file), "\n"+head)
	if !found {
		return []byte(strings.TrimRight(string(file), "\n") + "\n\n" + text), nil
	}
	rest := ""
	if next := tomlTable().FindStringIndex(after); next != nil {
		rest = "\n" + strings.TrimLeft(after[next[0]:], "\n")
	}
	return []byte(strings.TrimPrefix(before+"\n", "\n") + text + rest), nil
}

var (
	yamlEntry = lazy.Regexp(`(?m)^  ` + Name + `:`)
	yamlTop   = lazy.Regexp(`(?m)^extensions:[ \t]*(#.*)?\n`)
)

// mergeYAML adds the entry to a block of the plain form that goose writes.
func mergeYAML(file []byte, text string) ([]byte, error) {
	head, entry, _ := strings.Cut(text, "\n")
	at := yamlTop().FindIndex(file)
	switch {
	case bytes.Contains(file, []byte(entry)):
		return file, nil
	case yamlEntry().Match(file):
		return nil, fmt.Errorf("it has a %s already: edit that one", Name)
	case at != nil:
		return []byte(string(file[:at[1]]) + entry + string(file[at[1]:])), nil
	case bytes.Contains(file, []byte(head[:len(head)-1])):
		return nil, errors.New("its extensions are not a block of lines")
	}
	return []byte(strings.TrimRight(string(file), "\n") + "\n" + text), nil
}
