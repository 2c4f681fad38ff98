package schema

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"btools/lib/jsonrpc"
)

// Bounds of a schema that others have written: its bytes, its levels, the properties of an object, and the characters
// of a text in it.
const (
	maxSchema     = 64 << 10
	maxDepth      = 8
	maxProperties = 100
	maxText       = 1000
)

// Plain is the schema of an object that others have written, such as a web page, as far as it is understood here: it is
// a valid JSON Schema that reads into a Schema and that hosts take, and its texts are cut. What is not understood is
// left out, and is not checked.
func Plain(raw json.RawMessage) json.RawMessage {
	if len(raw) <= maxSchema && json.Valid(raw) {
		if out := plain(raw, 0); jsonrpc.GetString(out, "type") == "object" {
			return out
		}
	}
	return json.RawMessage(`{"type":"object","additionalProperties":true}`)
}

func plain(raw json.RawMessage, depth int) json.RawMessage {
	out := json.RawMessage("{}")
	if depth > maxDepth || len(raw) == 0 || raw[0] != '{' {
		return out
	}
	kind := kindOf(jsonrpc.Get(raw, "type"))
	if kind == "" && jsonrpc.Get(raw, "properties") != nil {
		kind = "object"
	}
	if kind != "" {
		out = jsonrpc.Append(out, "type", jsonrpc.Quote(kind))
	}
	for _, name := range []string{"title", "description"} {
		if text := Words(jsonrpc.GetString(raw, name), maxText); text != "" {
			out = jsonrpc.Append(out, name, jsonrpc.Quote(text))
		}
	}
	if values := choices(raw); values != nil && (kind == "" || kind == "string") {
		out = jsonrpc.Set(jsonrpc.Append(out, "enum", jsonrpc.Array(values)), "type", json.RawMessage(`"string"`))
	}
	for _, name := range []string{"minimum", "maximum"} {
		n := new(float64)
		if v := jsonrpc.Get(raw, name); v != nil && json.Unmarshal(v, &n) == nil && n != nil {
			out = jsonrpc.Append(out, name, v)
		}
	}
	switch kind {
	case "object":
		return plainObject(out, raw, depth)
	case "array":
		out = jsonrpc.Append(out, "items", plain(jsonrpc.Get(raw, "items"), depth+1)) // some hosts take none without
	}
	return out
}

// plainObject adds to a schema what an object is to have.
func plainObject(out, raw json.RawMessage, depth int) json.RawMessage {
	properties := json.RawMessage("{}")
	var names []string
	open := string(jsonrpc.Get(raw, "additionalProperties")) != "false"
	jsonrpc.Members(jsonrpc.Get(raw, "properties"), func(quoted, value json.RawMessage) error {
		switch name := jsonrpc.String(quoted); {
		case slices.Contains(names, name):
		case len(names) == maxProperties, !isName(name):
			open = true // it may be given
		default:
			names = append(names, name)
			properties = jsonrpc.Append(properties, name, plain(value, depth+1))
		}
		return nil
	})
	out = jsonrpc.Append(out, "properties", properties)
	var required []json.RawMessage
	for value := range jsonrpc.Elements(jsonrpc.Get(raw, "required")) {
		if name := jsonrpc.String(value); slices.Contains(names, name) {
			required = append(required, jsonrpc.Quote(name))
			names = slices.DeleteFunc(names, func(n string) bool { return n == name })
		}
	}
	if required != nil {
		out = jsonrpc.Append(out, "required", jsonrpc.Array(required))
	}
	return jsonrpc.Append(out, "additionalProperties", strconv.AppendBool(nil, open))
}

// kindOf is the one type that a schema allows besides null, "" if it is not one.
func kindOf(raw json.RawMessage) (kind string) {
	all := []json.RawMessage{raw}
	if len(raw) > 0 && raw[0] == '[' {
		all = slices.Collect(jsonrpc.Elements(raw))
	}
	for _, one := range all {
		name := jsonrpc.String(one)
		if _, ok := kinds[name]; !ok || kind != "" && name != "null" {
			return ""
		}
		if name != "null" {
			kind = name
		}
	}
	return kind
}

// choices are the texts of which a value is to be one, nil if it may be another: an enum, a const, or several of these,
// as a page has them for a select element.
func choices(raw json.RawMessage) (all []json.RawMessage) {
	add := func(v json.RawMessage) bool {
		ok := len(v) > 0 && v[0] == '"' && len(v) <= maxText && len(all) < 10*maxProperties
		if text := jsonrpc.Quote(jsonrpc.String(v)); ok && !slices.ContainsFunc(all,
			func(had json.RawMessage) bool { return string(had) == string(text) }) {
			all = append(all, text)
		}
		return ok
	}
	if value := jsonrpc.Get(raw, "const"); value != nil {
		add(value)
		return all
	}
	for value := range jsonrpc.Elements(jsonrpc.Get(raw, "enum")) {
		if !add(value) {
			return nil
		}
	}
	if all != nil {
		return all
	}
	for _, name := range []string{"oneOf", "anyOf"} {
		for one := range jsonrpc.Elements(jsonrpc.Get(raw, name)) {
			if !add(jsonrpc.Get(one, "const")) {
				return nil
			}
		}
	}
	return all
}

// isName reports whether hosts and models take a name of an argument.
func isName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz"+
		"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == ""
}

// Words is a text that others have written in one line of at most so many characters, without those that are not seen
// or that change the order of others.
func Words(text string, most int) string {
	if len(text) > 8*most { // the rest is not looked at
		text = text[:8*most]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.Is(unicode.C, r) || r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, text)
	said := []rune(strings.Join(strings.Fields(text), " "))
	if len(said) > most {
		said = append(said[:most], '…')
	}
	return string(said)
}
