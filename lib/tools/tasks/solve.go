package tasks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	_ "image/jpeg" // sizes of screenshots
	_ "image/png"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

// Tools calls a tool and returns the result, as of MCP's tools/call.
type Tools func(name, arguments string) (json.RawMessage, error)

// Solve solves a task with the tools. It puts the task's files into dir. An
// error says which call had which result.
func (s *Site) Solve(t Task, tools Tools, dir string) error {
	known := addresses(s.server.Listener.Addr().String(), t.Name)
	known["files"] = filepath.Join(dir, t.Name)
	if err := os.MkdirAll(known["files"], 0o700); err != nil {
		return err
	}
	for name, text := range t.files {
		if err := os.WriteFile(filepath.Join(known["files"], name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	for _, c := range t.calls {
		if err := c.run(tools, known); err != nil {
			return fmt.Errorf("%s %s: %w", c.tool, c.args, err)
		}
	}
	return nil
}

// element is a role and a name in arguments.
var element = regexp.MustCompile(`<([a-z]+ "[^"]*")>`)

func (c call) run(tools Tools, known map[string]string) error {
	args := replace(c.args, known)
	if element.MatchString(args) {
		snapshot, err := do(tools, "browser_snapshot", "{}")
		if err != nil {
			return err
		}
		if snapshot.IsError {
			return fmt.Errorf("no snapshot: %s", snapshot.text())
		}
		missing := ""
		args = element.ReplaceAllStringFunc(args, func(e string) string {
			ref := refOf(snapshot.text(), e[1:len(e)-1])
			if ref == "" {
				missing = e
			}
			return `"` + ref + `"`
		})
		if missing != "" {
			return fmt.Errorf("there is no %s in\n%s", missing, snapshot.text())
		}
	}
	if !json.Valid([]byte(args)) {
		return fmt.Errorf("arguments are not JSON: %s", args)
	}
	r, err := do(tools, c.tool, args)
	if err != nil {
		return err
	}
	text, failing := r.text(), false
	for _, w := range c.wants {
		failing = failing || w.verb == "fails"
		if !w.met(r, text, known) {
			return fmt.Errorf("not “%s %s” but (isError %v)\n%.4000s", w.verb, w.text, r.IsError, text)
		}
	}
	if r.IsError && !failing {
		return fmt.Errorf("failed: %.4000s", text)
	}
	return nil
}

// refOf is the ref of the first element in a snapshot that begins so.
func refOf(snapshot, what string) string {
	line := regexp.MustCompile(`(?m)^\s*- '?` + regexp.QuoteMeta(what) + `.*?\[ref=(\w+)\]`)
	if m := line.FindStringSubmatch(snapshot); m != nil {
		return m[1]
	}
	return ""
}

func (w want) met(r result, text string, known map[string]string) bool {
	switch w.verb {
	case "has":
		return strings.Contains(text, w.text)
	case "lacks":
		return !strings.Contains(text, w.text)
	case "fails":
		return r.IsError && strings.Contains(text, w.text)
	case "is":
		var got, wanted any
		return json.Unmarshal([]byte(w.text), &wanted) == nil &&
			json.NewDecoder(strings.NewReader(value(text))).Decode(&got) == nil && reflect.DeepEqual(got, wanted)
	case "take":
		name, expression, _ := strings.Cut(w.text, " ")
		m := regexp.MustCompile(expression).FindStringSubmatch(text)
		if len(m) < 2 {
			return false
		}
		known[name] = m[1]
		return true
	}
	return false
}

// value is the text after the heading "### Result".
func value(text string) string {
	_, text, _ = strings.Cut(text, "### Result\n")
	return text
}

// result is what a tool returned.
type result struct {
	IsError bool
	Content []struct {
		Type, Text, MimeType string
		Data                 []byte
	}
}

func do(tools Tools, name, args string) (r result, err error) {
	raw, err := tools(name, args)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(raw, &r)
}

func (r result) text() string {
	var b strings.Builder
	for _, c := range r.Content {
		if c.Type != "image" {
			b.WriteString(c.Text + "\n")
			continue
		}
		size, _, err := image.DecodeConfig(bytes.NewReader(c.Data))
		if err != nil {
			fmt.Fprintf(&b, "[%s: %v]\n", c.MimeType, err)
			continue
		}
		fmt.Fprintf(&b, "[%s %d × %d]\n", c.MimeType, size.Width, size.Height)
	}
	return b.String()
}
