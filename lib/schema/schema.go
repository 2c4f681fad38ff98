// Package schema checks the arguments of a tool against its JSON Schema and says in
// plain words what is wrong: an agent is to get them right the next time.
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

// Check says what is wrong with the arguments of a tool, nil if nothing is.
func (s *Schema) Check(args json.RawMessage) error {
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	return s.value("", args)
}

// value checks one value. Name is its path among the arguments, "" for all of
// them.
func (s *Schema) value(name string, v json.RawMessage) error {
	called := name
	if called == "" {
		called = "what is given as arguments"
	}
	if s.AnyOf != nil {
		return s.anyOf(name, v)
	}
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

// anyOf checks a value that one of several schemas allows. The error is that of the
// first one, which is what the value is to be; others are exceptions such as null.
func (s *Schema) anyOf(name string, v json.RawMessage) error {
	first := s.AnyOf[0].value(name, v)
	for _, one := range s.AnyOf[1:] {
		if first != nil && one.value(name, v) == nil {
			return nil
		}
	}
	return first
}

func (s *Schema) object(name string, v json.RawMessage) error {
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
