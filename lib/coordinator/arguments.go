package coordinator

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"btools/lib/jsonrpc"
	"btools/lib/spell"
)

// schema is as much of JSON Schema as our own tools use.
type schema struct {
	Type       string            `json:"type"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Enum       []string          `json:"enum"`
	Items      *schema           `json:"items"`
	MinItems   int               `json:"minItems"`
}

// kinds are the types of a schema in words, and how a value of them begins.
var kinds = map[string]struct{ words, first string }{
	"string":  {"a text", `"`},
	"boolean": {"true or false", "tf"},
	"integer": {"a number", "-0123456789"},
	"array":   {"a list", "["},
	"object":  {"an object", "{"},
}

// check says in plain words what is wrong with the arguments of a tool of ours:
// an agent is to get them right the next time.
func (s *schema) check(args json.RawMessage) error {
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	return s.value("", args)
}

// value checks one value. Name is its path among the arguments, "" for all of
// them.
func (s *schema) value(name string, v json.RawMessage) error {
	called := name
	if called == "" {
		called = "what is given as arguments"
	}
	if kind := kinds[s.Type]; !strings.ContainsRune(kind.first, rune(v[0])) {
		return fmt.Errorf("%s must be %s, not %s", called, kind.words, clipped(v))
	}
	switch s.Type {
	case "string":
		if text := jsonrpc.GetString(v); s.Enum != nil && !slices.Contains(s.Enum, text) {
			return fmt.Errorf("%s must be one of %s, not %s", called, strings.Join(s.Enum, ", "), clipped(v))
		}
	case "array":
		n := 0
		for item := range jsonrpc.Elements(v) {
			if s.Items != nil {
				if err := s.Items.value(fmt.Sprintf("%s[%d]", name, n), item); err != nil {
					return err
				}
			}
			n++
		}
		if n < s.MinItems {
			return fmt.Errorf("%s is empty", called)
		}
	case "object":
		if s.Properties != nil {
			return s.object(name, v)
		}
	}
	return nil
}

func (s *schema) object(name string, v json.RawMessage) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(v, &members); err != nil {
		return fmt.Errorf("%s is not an object: %w", name, err)
	}
	known := slices.Sorted(maps.Keys(s.Properties))
	in := ""
	if name != "" {
		in, name = " in "+name, name+"."
	}
	for _, member := range slices.Sorted(maps.Keys(members)) {
		property, ok := s.Properties[member]
		if !ok {
			has := "there are none"
			if len(known) > 0 {
				has = "there are " + strings.Join(known, ", ")
			}
			if near := spell.Nearest(member, known); near != "" {
				has = "did you mean " + near + "?"
			}
			return fmt.Errorf("there is no argument %q%s: %s", member, in, has)
		}
		if err := property.value(name+member, members[member]); err != nil {
			return err
		}
	}
	for _, member := range s.Required {
		if _, ok := members[member]; !ok {
			return fmt.Errorf("the argument %s%s is missing", name, member)
		}
	}
	return nil
}

// clipped is a value, if it is not too long to be shown.
func clipped(v json.RawMessage) string {
	const most = 100
	if len(v) > most {
		return string(v[:most]) + "…"
	}
	return string(v)
}
