package toolline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"btools/lib/exit"
	"btools/lib/jsonrpc"
	"btools/lib/lazy"
	"btools/lib/schema"
	"btools/lib/shellwords"
	"btools/lib/spell"
)

// Arguments are the arguments that words mean, as tools/call takes them.
func (t Tool) Arguments(words []string) (json.RawMessage, error) {
	given, err := t.assign(words)
	if err != nil {
		return nil, t.wrong(err)
	}
	object := json.RawMessage("{}")
	for _, a := range t.args {
		words, ok := given[a.name]
		if !ok {
			continue
		}
		if len(words) > 1 && a.schema.Type != "array" {
			return nil, t.wrong(fmt.Errorf("%s is given twice", a.name))
		}
		object = jsonrpc.Append(object, a.name, a.value(words))
	}
	return t.accept(object)
}

// JSON are the arguments that a JSON object has, as tools/call takes them.
func (t Tool) JSON(object []byte) (json.RawMessage, error) {
	object = bytes.TrimSpace(object)
	if len(object) == 0 || object[0] != '{' || !json.Valid(object) {
		return nil, exit.Errorf(exit.Data, "%s: the arguments are not a JSON object: %s", t.Short, jsonrpc.Clip(object))
	}
	return t.accept(object)
}

// accept checks arguments. Those that the tool takes without naming them are left as they are.
func (t Tool) accept(object json.RawMessage) (json.RawMessage, error) {
	known, others := object, map[string]json.RawMessage{}
	if t.open {
		jsonrpc.Members(object, func(name, value json.RawMessage) error {
			if name := jsonrpc.String(name); t.argument(name) == nil {
				others[name] = value
				known = jsonrpc.Delete(known, name)
			}
			return nil
		})
	}
	object, err := t.check.Accept(known)
	if err != nil {
		return nil, t.wrong(err)
	}
	for _, a := range t.args {
		if a.demanded && !a.required && jsonrpc.Get(object, a.name) == nil {
			object = jsonrpc.Append(object, a.name, a.unset)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(others)) {
		object = jsonrpc.Append(object, name, others[name])
	}
	return object, nil
}

// wrong is the error of wrong arguments.
func (t Tool) wrong(err error) error {
	return &exit.Error{Code: exit.Usage, Err: fmt.Errorf("%s: %w", t.Short, err), Hint: "usage: " + t.Usage()}
}

// assign gives each argument its words.
func (t Tool) assign(words []string) (map[string][]string, error) {
	given := map[string][]string{}
	var alone []string
	for i, word := range words {
		if word == "--" {
			alone = append(alone, words[i+1:]...)
			break
		}
		a, value, err := t.named(word)
		switch {
		case err != nil:
			return given, err
		case a != nil:
			given[a.name] = append(given[a.name], value)
		default:
			alone = append(alone, word)
		}
	}
	next := t.next(given)
	for i, a := range next {
		if len(alone) == 0 || !a.required {
			break
		}
		n := 1
		if a.schema.Type == "array" { // all but what those after it need
			n = max(1, len(alone)-countRequired(next[i+1:]))
		}
		given[a.name], alone = alone[:n], alone[n:]
	}
	for text := false; len(alone) > 0; {
		next := t.next(given)
		i := slices.IndexFunc(next, func(a *argument) bool {
			return a.takes(alone[0]) && !(text && a.isText())
		})
		if i < 0 {
			return given, t.tooMany(alone[0])
		}
		text = text || next[i].isText()
		n := 1
		for next[i].schema.Type == "array" && n < len(alone) && next[i].takes(alone[n]) {
			n++
		}
		given[next[i].name], alone = alone[:n], alone[n:]
	}
	return given, nil
}

// next are the arguments that words that stand alone can be, in their order, if others are given.
func (t Tool) next(given map[string][]string) (all []*argument) {
	for i, a := range t.args {
		if given[a.name] == nil && !a.byName {
			all = append(all, &t.args[i])
		}
	}
	return all
}

func countRequired(all []*argument) (n int) {
	for _, a := range all {
		if a.required {
			n++
		}
	}
	return n
}

var key = lazy.Regexp(`^[A-Za-z_][\w-]*=`)

// named is the argument that a word gives by its name, nil if it is none: an address may have a "=", too. What
// differs by a letter from the name of an argument is taken for a mistake rather than for a value.
func (t Tool) named(word string) (*argument, string, error) {
	name, value, ok := strings.Cut(word, "=")
	if !ok {
		return nil, "", nil
	}
	if a := t.argument(name); a != nil {
		return a, value, nil
	}
	if key().MatchString(word) {
		if near := spell.Nearest(name, t.names()); near != "" {
			return nil, "", fmt.Errorf("there is no argument %q: did you mean %s=? "+
				"(after --, a word is a value as it is)", name, near)
		}
	}
	return nil, "", nil
}

func (t Tool) names() (all []string) {
	for _, a := range t.args {
		all = append(all, a.name)
	}
	return all
}

// tooMany is the error of a word that no argument takes.
func (t Tool) tooMany(word string) error {
	names := t.names()
	switch {
	case len(names) == 0:
		return fmt.Errorf("%q is too much: it takes no arguments", word)
	case key().MatchString(word):
		name, _, _ := strings.Cut(word, "=")
		return fmt.Errorf("there is no argument %q: there are %s", name, strings.Join(names, ", "))
	}
	return fmt.Errorf("no argument is left for %q: a text that has spaces is put in quotes", word)
}

// takes reports whether a word can be the argument's value.
func (a *argument) takes(word string) bool {
	_, err := a.schema.Accept(a.value([]string{word}))
	return err == nil
}

// isText reports whether any word can be the argument's value.
func (a *argument) isText() bool { return a.schema.Type == "string" && a.choices == nil }

// value is what words mean as the argument's value. Whether it can have it is not looked at.
func (a *argument) value(words []string) json.RawMessage {
	if a.schema.Type != "array" {
		return valueOf(&a.schema, words[0])
	}
	items := a.schema.Items
	if items == nil {
		items = &schema.Schema{}
	}
	var all []json.RawMessage
	for _, word := range words {
		if list := strings.TrimSpace(word); strings.HasPrefix(list, "[") && json.Valid([]byte(list)) {
			all = slices.AppendSeq(all, jsonrpc.Elements([]byte(list)))
		} else {
			all = append(all, valueOf(items, word))
		}
	}
	return jsonrpc.Array(all)
}

// valueOf is what one word means. Accept takes a number or an object from a text.
func valueOf(s *schema.Schema, word string) json.RawMessage {
	text := strings.TrimSpace(word)
	isNull := func(s schema.Schema) bool { return s.Type == "null" }
	switch {
	case s.Type == "null" || text == "null" && slices.ContainsFunc(s.AnyOf, isNull),
		s.Type == "" && len(s.AnyOf) == 0:
		if json.Valid([]byte(text)) {
			return json.RawMessage(text)
		}
	}
	return jsonrpc.Quote(word)
}

// Line reads a line of a batch: words as in a shell, or a JSON object with a name and arguments, as the parameters of
// tools/call. Of an empty line, or one that begins with "#", the tool has no name.
func (s *Tools) Line(line string) (Tool, json.RawMessage, error) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return Tool{}, nil, nil
	}
	if line[0] == '{' {
		return s.object([]byte(line))
	}
	words, err := shellwords.Split(line)
	if err == nil && len(words) == 0 {
		err = errors.New("it has no word")
	}
	if err != nil {
		return Tool{}, nil, exit.Errorf(exit.Usage, "cannot read %s: %w", jsonrpc.Clip([]byte(line)), err)
	}
	t, err := s.Find(words[0])
	if err != nil {
		return Tool{}, nil, err
	}
	args, err := t.Arguments(words[1:])
	return t, args, err
}

// object is a line that is a JSON object.
func (s *Tools) object(line []byte) (Tool, json.RawMessage, error) {
	var call struct {
		Name      string
		Arguments json.RawMessage
	}
	err := json.Unmarshal(line, &call)
	if err == nil && call.Name == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		return Tool{}, nil, exit.Errorf(exit.Usage, "cannot read %s: %w", jsonrpc.Clip(line), err)
	}
	t, err := s.Find(call.Name)
	if err != nil {
		return Tool{}, nil, err
	}
	if call.Arguments == nil || string(call.Arguments) == "null" {
		call.Arguments = json.RawMessage("{}")
	}
	args, err := t.JSON(call.Arguments)
	return t, args, err
}
