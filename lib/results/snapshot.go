package results

import (
	"encoding/json"
	"strconv"
	"strings"

	"btools/lib/lazy"
)

// nodeOrder is the order of the members of a node.
var nodeOrder = []string{"_index", "_depth", "_parent_role", "role", "name", "ref", "text"}

// maxLevels bounds the depth of a tree of nodes: deeper ones are their ancestor's
// children.
const maxLevels = 500

// node is a node of a snapshot: its role, name, ref and text, its attributes and
// properties by their names, and its children.
type node map[string]any

// yamlBlock is the beginning of a block of YAML. It has as many ticks as its end.
var yamlBlock = lazy.Regexp("(?m)^(`{3,})yaml\n")

// snapshot returns the nodes of a text's snapshot: a block of YAML, or the whole
// text, in which each line is a node:
//
//   - button "Save" [disabled] [ref=e7]: text
//   - /url: https://example.com/
func snapshot(text string) (roots []node, ok bool) {
	if m := yamlBlock().FindStringSubmatchIndex(text); m != nil {
		text, _, _ = strings.Cut(text[m[1]:], "\n"+text[m[2]:m[3]])
	} else if !strings.HasPrefix(text, "- ") {
		return nil, false
	}
	type level struct {
		indent int
		node   node
	}
	var open []level
	for line := range strings.Lines(text) {
		item := strings.TrimLeft(line, " ")
		indent := len(line) - len(item)
		item, isItem := strings.CutPrefix(strings.TrimRight(item, "\r\n"), "- ")
		if !isItem {
			continue
		}
		for len(open) > 0 && open[len(open)-1].indent >= indent {
			open = open[:len(open)-1]
		}
		var parent node
		if len(open) > 0 {
			parent = open[len(open)-1].node
		}
		key, value := cutItem(item)
		if name, isProperty := strings.CutPrefix(key, "/"); isProperty && parent != nil {
			parent[name] = value
			continue
		}
		n := parseNode(key, value)
		if parent == nil {
			roots = append(roots, n)
		} else {
			children, _ := parent["children"].([]any)
			parent["children"] = append(children, map[string]any(n))
		}
		if len(open) < maxLevels {
			open = append(open, level{indent, n})
		}
	}
	return roots, len(roots) > 0
}

// cutItem splits an item at its colon. Its key may be in single quotes, its value
// in double ones.
func cutItem(item string) (key, value string) {
	if strings.HasPrefix(item, "'") {
		for i := 1; i < len(item); i++ {
			if item[i] != '\'' {
				continue
			}
			if i+1 < len(item) && item[i+1] == '\'' {
				i++
				continue
			}
			key, value = strings.ReplaceAll(item[1:i], "''", "'"), strings.TrimPrefix(item[i+1:], ":")
			return key, unquote(strings.TrimSpace(value))
		}
	}
	quoted := false
	for i := 0; i < len(item); i++ {
		switch c := item[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ':' && !quoted && (i+1 == len(item) || item[i+1] == ' '):
			return item[:i], unquote(strings.TrimSpace(item[i+1:]))
		}
	}
	return item, ""
}

// unquote is a value without the quotes of YAML.
func unquote(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] {
		return s
	}
	switch s[0] {
	case '"':
		var out string
		if json.Unmarshal([]byte(s), &out) == nil {
			return out
		}
		if out, err := strconv.Unquote(s); err == nil { // \x00
			return out
		}
	case '\'':
		return strings.ReplaceAll(s[1:len(s)-1], "''", "'")
	}
	return s
}

// parseNode reads role "name" [attribute] [attribute=value].
func parseNode(key, text string) node {
	n := node{}
	role, rest, _ := strings.Cut(key, " ")
	n["role"] = role
	if text != "" {
		n["text"] = text
	}
	if strings.HasPrefix(rest, `"`) {
		end := endOfString(rest)
		n["name"] = unquote(rest[:end])
		rest = rest[end:]
	}
	for {
		var attribute string
		var ok bool
		if _, rest, ok = strings.Cut(rest, "["); !ok {
			return n
		}
		if attribute, rest, ok = strings.Cut(rest, "]"); !ok {
			return n
		}
		name, value, has := strings.Cut(attribute, "=")
		if _, taken := n[name]; taken || name == "children" {
			continue
		}
		number, err := strconv.Atoi(value)
		switch {
		case !has:
			n[name] = true
		case err == nil:
			n[name] = float64(number) // as JSON has it
		default:
			n[name] = value
		}
	}
}

// endOfString is the index after the string in double quotes with which a text
// begins.
func endOfString(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

// anys are nodes as a query takes them.
func anys(nodes []node) []any {
	all := make([]any, len(nodes))
	for i, n := range nodes {
		all[i] = map[string]any(n)
	}
	return all
}

// flatten returns all nodes in the order of the snapshot, each without its
// children but with its place: _index, _depth and _parent_role.
func flatten(roots []node) []any {
	type place struct {
		node   map[string]any
		depth  int
		parent string
	}
	var open []place
	push := func(nodes []any, depth int, parent string) {
		for i := len(nodes) - 1; i >= 0; i-- {
			n, _ := nodes[i].(map[string]any)
			open = append(open, place{n, depth, parent})
		}
	}
	push(anys(roots), 0, "")
	var all []any
	for len(open) > 0 {
		p := open[len(open)-1]
		open = open[:len(open)-1]
		one := map[string]any{}
		for name, v := range p.node {
			if name != "children" {
				one[name] = v
			}
		}
		one["_index"], one["_depth"] = float64(len(all)), float64(p.depth)
		if p.parent != "" {
			one["_parent_role"] = p.parent
		}
		all = append(all, one)
		children, _ := p.node["children"].([]any)
		role, _ := p.node["role"].(string)
		push(children, p.depth+1, role)
	}
	return all
}
