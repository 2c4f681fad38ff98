package tasks

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// All tasks of the suite can be read, and their calls are JSON with known
// placeholders.
func TestSuite(t *testing.T) {
	all := All()
	if len(all) < 30 {
		t.Errorf("%d tasks", len(all))
	}
	for _, task := range all {
		if task.About == "" || !strings.HasSuffix(task.About, ".") {
			t.Errorf("%s: what it is about is no sentence: %q", task.Name, task.About)
		}
		known := map[string]string{"site": "s", "other": "o", "files": "f"}
		for _, c := range task.calls {
			args := element.ReplaceAllString(replace(c.args, known), `"e1"`)
			if !json.Valid([]byte(args)) {
				t.Errorf("%s: the arguments of %s are not JSON: %s", task.Name, c.tool, args)
			}
			for _, w := range c.wants {
				if name, _, ok := strings.Cut(w.text, " "); w.verb == "take" && ok {
					known[name] = "1"
				}
			}
		}
	}
}

func TestRefOf(t *testing.T) {
	snapshot := "- main:\n  - button \"Send\" [disabled] [ref=e3]\n  - 'link \"a: b\" [ref=f1e4]':\n"
	for what, want := range map[string]string{`button "Send"`: "e3", `link "a: b"`: "f1e4", `link "none"`: ""} {
		if got := refOf(snapshot, what); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

// What is wrong with a task is told.
func TestBadTasks(t *testing.T) {
	for text, want := range map[string]string{
		"About.\n":                              "has no sections",
		"About.\n-- a.html --\nx\n":             "has no calls",
		"About.\n-- calls --\n\thas x\n":        `begins with "\thas x`,
		"About.\n-- calls --\ntool {}\n\t\"x\"": "",
	} {
		_, err := parse("bad", text)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	down := errors.New("the server is down")
	tools := func(name, _ string) (json.RawMessage, error) {
		switch name {
		case "gone":
			return nil, down
		case "browser_snapshot":
			return json.RawMessage(`{"content":[{"type":"text","text":"- link \"a\" [ref=e1]"}]}`), nil
		}
		return json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"refused"},` +
			`{"type":"image","data":"eA=="}]}`), nil
	}
	for _, c := range []struct{ tool, args, want string }{
		{"gone", "{}", "the server is down"},
		{"fails", "{}", "failed: refused\n[: image: unknown format]"},
		{"any", `{"target":<button "b">}`, `there is no <button "b"> in`},
		{"any", `{"target":<link "a">`, "arguments are not JSON"},
	} {
		err := call{tool: c.tool, args: c.args}.run(tools, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v, want %s", c.tool, c.args, err, c.want)
		}
	}
}

// A result is judged by its text, its error, its value and its images.
func TestWants(t *testing.T) {
	const image = `{"type":"image","mimeType":"image/png","data":"` +
		`iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAYAAAC56t6BAAAAC0lEQVR4nGNgwAcAAB4AAVCb/8sAAAAASUVORK5CYII="}`
	tools := func(name, _ string) (json.RawMessage, error) {
		return map[string]json.RawMessage{
			"fine":   json.RawMessage(`{"content":[{"type":"text","text":"### Result\n[1, \"a\"]\n### Page\nx"}]}`),
			"failed": json.RawMessage(`{"isError":true,"content":[{"type":"text","text":"no such thing"}]}`),
			"image":  json.RawMessage(`{"content":[` + image + `]}`),
		}[name], nil
	}
	for _, c := range []struct {
		tool, verb, text string
		met              bool
	}{
		{"fine", "has", "### Page", true}, {"fine", "has", "### Tabs", false},
		{"fine", "lacks", "y", true}, {"fine", "lacks", "x", false},
		{"fine", "is", `[1,"a"]`, true}, {"fine", "is", `[1,"b"]`, false}, {"fine", "fails", "x", false},
		{"fine", "take", `n \[(\d)`, true}, {"fine", "take", `n \[(z)`, false},
		{"failed", "fails", "no such", true}, {"failed", "fails", "such no", false}, {"failed", "has", "no", false},
		{"image", "has", "[image/png 2 × 3]", true}, {"image", "has", "[image/png 3 × 2]", false},
	} {
		err := call{tool: c.tool, args: "{}", wants: []want{{c.verb, c.text}}}.run(tools, map[string]string{})
		if (err == nil) != c.met {
			t.Errorf("%s %s %s: %v, want it met: %v", c.tool, c.verb, c.text, err, c.met)
		}
	}
}
