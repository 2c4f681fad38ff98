package tools

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What differs is shown with what it belongs to, what is gone is named, and all is shown if it is the larger part.
func TestDifference(t *testing.T) {
	t.Parallel()
	lines := []string{"- paragraph: Required", "- list [ref=e1]:"}
	for i := range 30 {
		lines = append(lines, fmt.Sprintf("  - listitem [ref=e%d]:", 10+2*i),
			fmt.Sprintf("    - button \"Buy\" [ref=e%d]", 11+2*i))
	}
	lines = append(lines, `- textbox "Name" [ref=e2]: old`, "- paragraph: Required", `- link "Next" [active] [ref=e3]`)
	old := strings.Join(lines, "\n")
	change := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(old) }
	for what, c := range map[string]struct{ now, text, state string }{
		"nothing": {now: old},
		"a value": {now: change("]: old", "]: new"), text: `- textbox "Name" [ref=e2]: new`, state: ", now: new"},
		"a value, with the focus": {change("[ref=e2]: old", "[active] [ref=e2]: new", " [active]", ""),
			`- textbox "Name" [active] [ref=e2]: new`, ", now: new"},
		"no value":          {change("]: old", "]"), `- textbox "Name" [ref=e2]`, ", now empty"},
		"one of two equal":  {change("- paragraph: Required\n- link", "- link"), "# gone: paragraph: Required", ""},
		"the focus is lost": {now: change(" [active]", "")},
		"a state": {change(`"Buy" [ref=e31]`, `"Buy" [disabled] [ref=e31]`),
			"- list [ref=e1]:\n  - listitem [ref=e30]:\n    - button \"Buy\" [disabled] [ref=e31]", ", now [disabled]"},
		"a name": {change(`"Next"`, `"Last]: [ref=e1]"`), `- link "Last]: [ref=e1]" [active] [ref=e3]`,
			`, now link "Last]: [ref=e1]"`},
		"two places": {change("[ref=e14]", "[checked] [ref=e14]", "]: old", "]: new"), "- list [ref=e1]:\n" +
			"  - listitem [checked] [ref=e14]:\n- textbox \"Name\" [ref=e2]: new", ", now [checked], now: new"},
		"an item less": {change("  - listitem [ref=e14]:\n    - button \"Buy\" [ref=e15]\n", ""),
			"- list [ref=e1]:\n  # gone: listitem [ref=e14]", ""},
		"an item moved": {change("  - listitem [ref=e14]:\n    - button \"Buy\" [ref=e15]\n", "",
			`- textbox "Name"`, "  - listitem [ref=e14]:\n    - button \"Buy\" [ref=e15]\n- textbox \"Name\""),
			"- list [ref=e1]:\n  - listitem [ref=e14]:\n    - button \"Buy\" [ref=e15]", ""},
	} {
		d := difference(lines, strings.Split(c.now, "\n"))
		if c.text != "" {
			c.text = "# what has changed:\n" + c.text
		}
		if d.text != c.text || d.whole {
			t.Errorf("%s: whole %v,\n%s\nnot\n%s", what, d.whole, d.text, c.text)
		}
		state := ""
		for _, l := range d.lines {
			state += l.state()
		}
		if state != c.state {
			t.Errorf("%s: %q, not %q", what, state, c.state)
		}
	}
	if d := difference([]string{"- a", "- b"}, []string{"- c"}); !d.whole || d.text != "- c" {
		t.Errorf("all: %+v", d)
	}
	if d := difference(lines, append(slices.Clone(lines[:len(lines)-1]), `- link "Next" [ref=e3]`)); d.text != "" {
		t.Errorf("the focus is lost: %+v", d)
	}
}

// The value of a call for what is new of a snapshot is that, or that nothing is.
func TestValueOfChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d    delta
		want string
	}{{delta{text: "# what has changed:"}, "# what has changed:"}, {delta{}, unchanged},
		{delta{text: "- button", whole: true}, "- button"}} {
		r := reply{page: pageSnapshot, onlyNew: true}
		if r.saySnapshot(func(string, ...string) {}, c.d, false); r.value == nil || *r.value != c.want {
			t.Errorf("%+v has the value %v", c.d, r.value)
		}
	}
}

// What a result says of a page is said again if that was cut off.
func TestPageThatWasCut(t *testing.T) {
	t.Parallel()
	section := func(string, ...string) {}
	for text, want := range map[string]bool{"short": false, strings.Repeat("long", 100): true} {
		s := &Server{}
		first := &reply{access: access{server: s}, output: output{results: []string{text}}}
		first.form.Text = 200
		first.sayPage(section, "document", []string{pageURL + "http://a.example/"})
		second := &reply{access: access{server: s}}
		if isNew := second.sayPage(section, "document", []string{pageURL + "http://a.example/"}); isNew != want {
			t.Errorf("after %d characters the page is new: %v", len(text), isNew)
		}
	}
}

// Of too many lines the headings are shown, and the first others.
func TestBeginning(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf(`- link "Go to number %d"`, i))
		if i%100 == 99 {
			lines = append(lines, fmt.Sprintf(`- heading "Part %d"`, i))
		}
	}
	got := strings.Join(beginning(lines), "\n")
	if len(got) > maxView || !strings.HasPrefix(got, lines[0]) || !strings.HasSuffix(got, `- heading "Part 999"`) ||
		!strings.Contains(got, "number 250\"") {
		t.Errorf("%d characters: %s", len(got), got)
	}
}
