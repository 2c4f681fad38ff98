// Package schema checks the arguments of a tool against its JSON Schema and says in
// plain words what is wrong: an agent is to get them right the next time. What can mean
// only one thing is taken for that: a number in quotes, a list as a text.
package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"btools/lib/jsonrpc"
	"btools/lib/spell"
)

// Schema is as much of JSON Schema as our own tools use.
type Schema struct {
	Type       string            `json:"type"` // "": of any type
	Properties map[string]Schema `json:"properties"`
	Required   []string          `json:"required"`
	Enum       []string          `json:"enum"`
	Items      *Schema           `json:"items"`
	MinItems   int               `json:"minItems"`
	Minimum    *float64          `json:"minimum"`
	Maximum    *float64          `json:"maximum"`
	AnyOf      []Schema          `json:"anyOf"`
	// Additional is true in the JSON of a schema that allows arguments which it does not name.
	Additional json.RawMessage `json:"additionalProperties"`
}

// kinds are the types of a schema in words, and how a value of them begins.
var kinds = map[string]struct{ words, first string }{
	"string":  {"a text", `"`},
	"boolean": {"true or false", "tf"},
	"integer": {"a whole number", "-0123456789"},
	"number":  {"a number", "-0123456789"},
	"null":    {"null", "n"},
	"array":   {"a list", "["},
	"object":  {"an object", "{"},
}

// Accept returns the arguments of a tool as they are meant, or what is wrong with them.
// That names others, too, which the tool's host takes out before.
func (s *Schema) Accept(args json.RawMessage, others ...string) (json.RawMessage, error) {
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	v, err := s.value("", args)
	if e, ok := err.(*UnknownError); ok && e.in == "" {
		e.known = slices.Compact(slices.Sorted(slices.Values(slices.Concat(e.known, others))))
	}
	return v, err
}

// UnknownError is the error of an argument that is not there.
type UnknownError struct {
	Member string // its name
	Mode   string // " without pools": why it is not there; "": it never is
	in     string
	known  []string
}

func (e *UnknownError) Error() string {
	has := "there are none"
	if len(e.known) > 0 {
		has = "there are " + strings.Join(e.known, ", ")
	}
	where := e.in
	if where == "" {
		where = e.Mode
	}
	if near := spell.Nearest(e.Member, e.known); near != "" && (where == "" || where == e.in) {
		has = "did you mean " + near + "?"
	}
	return fmt.Sprintf("there is no argument %q%s: %s", e.Member, where, has)
}

// value accepts one value. Name is its path among the arguments, "" for all of
// them.
func (s *Schema) value(name string, v json.RawMessage) (json.RawMessage, error) {
	if len(s.AnyOf) > 0 {
		return s.anyOf(name, v)
	}
	v = s.meant(v)
	if s.Type == "object" && v[0] == '{' && s.Properties != nil {
		return s.object(name, v)
	}
	if s.Type == "array" && v[0] == '[' {
		return s.array(name, v)
	}
	return v, s.check(name, v)
}

// meant is a value as it is meant, if it is not of the schema's type and can be that in
// one way only.
func (s *Schema) meant(v json.RawMessage) json.RawMessage {
	if s.Type == "string" {
		if s.Enum == nil && strings.ContainsRune(kinds["number"].first, rune(v[0])) {
			v, _ = json.Marshal(string(v))
		}
		return v
	}
	kind, ok := kinds[s.Type]
	if !ok || v[0] != '"' {
		return v
	}
	text := strings.TrimSpace(jsonrpc.GetString(v))
	switch {
	case text != "" && strings.ContainsRune(kind.first, rune(text[0])) && json.Valid([]byte(text)) && s.Type != "null":
		return json.RawMessage(text)
	case s.Type == "array" && s.Items != nil && s.Items.Type == "string":
		return jsonrpc.Array([]json.RawMessage{v})
	}
	return v
}

// check says what is wrong with a value, nil if nothing is.
func (s *Schema) check(name string, v json.RawMessage) error {
	called := calledFor(name)
	if kind, ok := kinds[s.Type]; ok && !strings.ContainsRune(kind.first, rune(v[0])) {
		return fmt.Errorf("%s must be %s, not %s", called, kind.words, clipped(v))
	}
	switch s.Type {
	case "integer", "number":
		n, err := strconv.ParseFloat(string(v), 64)
		if err != nil || s.Type == "integer" && n != math.Trunc(n) {
			return fmt.Errorf("%s must be %s, not %s", called, kinds[s.Type].words, clipped(v))
		}
		if s.Minimum != nil && n < *s.Minimum {
			return fmt.Errorf("%s must be at least %v, not %s", called, *s.Minimum, clipped(v))
		}
		if s.Maximum != nil && n > *s.Maximum {
			return fmt.Errorf("%s must be at most %v, not %s", called, *s.Maximum, clipped(v))
		}
	case "string":
		if text := jsonrpc.GetString(v); s.Enum != nil && !slices.Contains(s.Enum, text) {
			return fmt.Errorf("%s must be one of %s, not %s", called, strings.Join(s.Enum, ", "), clipped(v))
		}
	}
	return nil
}

func calledFor(name string) string {
	if name == "" {
		return "what is given as arguments"
	}
	return name
}

func (s *Schema) array(name string, v json.RawMessage) (json.RawMessage, error) {
	var all []json.RawMessage
	for item := range jsonrpc.Elements(v) {
		if s.Items != nil {
			var err error
			if item, err = s.Items.value(fmt.Sprintf("%s[%d]", name, len(all)), item); err != nil {
				return nil, err
			}
		}
		all = append(all, item)
	}
	if len(all) < s.MinItems {
		return nil, fmt.Errorf("%s is empty", calledFor(name))
	}
	return jsonrpc.Array(all), nil
}

// anyOf accepts a value that one of several schemas allows. The error is that of the
// first one, which is what the value is to be; others are exceptions such as null.
func (s *Schema) anyOf(name string, v json.RawMessage) (json.RawMessage, error) {
	got, first := s.AnyOf[0].value(name, v)
	for _, one := range s.AnyOf[1:] {
		if other, err := one.value(name, v); first != nil && err == nil {
			return other, nil
		}
	}
	return got, first
}

// older are the names of arguments in earlier versions of @playwright/mcp, which prompts
// still have, and in tools that have another name for the same.
var older = map[string]string{"ref": "target", "startRef": "startTarget", "endRef": "endTarget",
	"selector": "target", "target": "selector"}

// Means is the argument that a name means, which it may have had in an earlier version; "": there is none.
func (s *Schema) Means(name string) string {
	if _, ok := s.Properties[name]; ok {
		return name
	}
	if _, ok := s.Properties[older[name]]; ok {
		return older[name]
	}
	return ""
}

func (s *Schema) object(name string, v json.RawMessage) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(v, &members); err != nil {
		return nil, fmt.Errorf("%s is not an object: %w", name, err)
	}
	in := ""
	if name != "" {
		in, name = " in "+name, name+"."
	}
	for _, member := range slices.Sorted(maps.Keys(members)) {
		if _, ok := s.Properties[member]; !ok && string(s.Additional) == "true" {
			continue
		}
		now := s.Means(member)
		if now != "" && now != member && members[now] != nil && strings.HasSuffix(strings.ToLower(member), "ref") {
			v = jsonrpc.Delete(v, member) // a model that knows both forms gives both
			continue
		}
		if now != "" && now != member && members[now] == nil {
			v = jsonrpc.Set(jsonrpc.Delete(v, member), now, members[member])
			members[now] = members[member]
			member = now
		}
		property, ok := s.Properties[member]
		if !ok {
			return nil, &UnknownError{Member: member, in: in, known: slices.Sorted(maps.Keys(s.Properties))}
		}
		got, err := property.value(name+member, members[member])
		switch {
		case err == nil:
			v = jsonrpc.Set(v, member, got)
		case string(members[member]) == "null" && !slices.Contains(s.Required, member): // it is left out
			v = jsonrpc.Delete(v, member)
		default:
			return nil, err
		}
	}
	for _, member := range s.Required {
		if _, ok := members[member]; !ok {
			return nil, fmt.Errorf("the argument %s%s is missing", name, member)
		}
	}
	return v, nil
}

// clipped is a value, if it is not too long to be shown.
func clipped(v json.RawMessage) string {
	const most = 100
	if len(v) > most {
		return string(v[:most]) + "…"
	}
	return string(v)
}
