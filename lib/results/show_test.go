package results

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const saved = `### Page
- Page URL: http://127.0.0.1/
### Snapshot
` + "```yaml" + `
- navigation "Main: top" [ref=e2]:
  - link "Home" [ref=e3]:
    - /url: /home
  - 'link "a: \"b\" it''s" [ref=e4]':
    - /url: "/b: c"
- main [ref=e5]:
  - heading "News" [level=1] [ref=e6]
  - checkbox "All" [checked] [ref=e7]
  - text: "plain: text"
  - paragraph [ref=e8]: One line
` + "```" + `
`

func show(t *testing.T, text string, r Request) string {
	t.Helper()
	p, err := Show(t.Context(), text, r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	return p.Text
}

func TestPages(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("日本語\n", 40) + "end"
	for _, limit := range []int{1, 3, 7, 50, 1000} {
		var all strings.Builder
		for at, n := 0, 0; ; n++ {
			p, err := Show(t.Context(), text, Request{Offset: at, Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			if p.Offset != at || p.Total != 163 || !utf8.ValidString(p.Text) ||
				utf8.RuneCountInString(p.Text) > limit || p.End == at && at < p.Total {
				t.Fatalf("limit %d, offset %d: %+v", limit, at, p)
			}
			all.WriteString(p.Text)
			if at = p.End; at == p.Total {
				break
			}
		}
		if all.String() != text {
			t.Errorf("the pages of %d characters are not the text", limit)
		}
	}
	if p, _ := Show(t.Context(), text, Request{Limit: 50}); !strings.HasSuffix(p.Text, "\n") {
		t.Errorf("a page does not end with a line: %q", p.Text)
	}
}

func TestPattern(t *testing.T) {
	t.Parallel()
	text := "one\ntwo\nthree\nfour\nfive\nsix\nseven\n"
	for _, one := range []struct {
		r    Request
		want string
	}{
		{Request{Pattern: "t"}, "2:two\n3:three\n"},
		{Request{Pattern: "(?i)^F", Context: 1}, "3-three\n4:four\n5:five\n6-six\n"},
		{Request{Pattern: "one|five", Context: 1}, "1:one\n2-two\n--\n4-four\n5:five\n6-six\n"},
		{Request{Pattern: "one|six"}, "1:one\n--\n6:six\n"},
		{Request{Pattern: "e", Offset: 9, Limit: 8}, "3:three\n"},
	} {
		if got := show(t, text, one.r); got != one.want {
			t.Errorf("%+v: %q, want %q", one.r, got, one.want)
		}
	}
	long := strings.Repeat("日", 4000) + "needle" + strings.Repeat("本", 4000)
	got := show(t, long, Request{Pattern: "ne+dle"})
	if !strings.Contains(got, "needle") || len(got) > 600 || !utf8.ValidString(got) {
		t.Errorf("of a long line: %q", got)
	}
}

// A search that would take minutes ends with the call.
func TestPatternEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Show(ctx, strings.Repeat("a", 8<<20), Request{Pattern: "(.{0,30}){30}b"})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v", err)
	}
}

func TestQuery(t *testing.T) {
	t.Parallel()
	list := `[{"a":1,"b":"<x>"},{"a":2,"b":"y"}]`
	for _, one := range []struct{ text, query, want string }{
		{list, "[?a>`1`].b", "[\n\"y\"\n]"},
		{list, "[0]", `{"a":1,"b":"<x>"}`},
		{list, "length(@)", "2"},
		{list, "[].{x: a, y: b}", "[\n{\"x\":1,\"y\":\"<x>\"},\n{\"x\":2,\"y\":\"y\"}\n]"},
		{list, "nothing", "null"},
		{"### Result\n" + list + "\n### Code\nreturn 1", "[].a", "[\n1,\n2\n]"},
		{"### Result\n````\n" + list + "\n````", "[1].a", "2"},
		{strings.ReplaceAll(saved, "```", "````"), "length(@)", "2"},
		{saved, "[].role", "[\n\"navigation\",\n\"main\"\n]"},
		{saved, "[0].children[].url", "[\n\"/home\",\n\"/b: c\"\n]"},
		{saved, "[1].children[?checked].ref", "[\n\"e7\"\n]"},
	} {
		if got := show(t, one.text, Request{Query: one.query}); got != one.want {
			t.Errorf("%s: %s, want %s", one.query, got, one.want)
		}
	}
	if got := show(t, saved, Request{Query: "[?role=='heading'].level", Flatten: true}); got != "[\n1\n]" {
		t.Errorf("of the flat list: %s", got)
	}
}

func TestFlatten(t *testing.T) {
	t.Parallel()
	got := show(t, saved, Request{Flatten: true})
	want := `{"_index":0,"_depth":0,"role":"navigation","name":"Main: top","ref":"e2"}
{"_index":1,"_depth":1,"_parent_role":"navigation","role":"link","name":"Home","ref":"e3","url":"/home"}
{"_index":2,"_depth":1,"_parent_role":"navigation","role":"link","name":"a: \"b\" it's","ref":"e4","url":"/b: c"}
{"_index":3,"_depth":0,"role":"main","ref":"e5"}
{"_index":4,"_depth":1,"_parent_role":"main","role":"heading","name":"News","ref":"e6","level":1}
{"_index":5,"_depth":1,"_parent_role":"main","role":"checkbox","name":"All","ref":"e7","checked":true}
{"_index":6,"_depth":1,"_parent_role":"main","role":"text","text":"plain: text"}
{"_index":7,"_depth":1,"_parent_role":"main","role":"paragraph","ref":"e8","text":"One line"}
`
	pages := ""
	for end, total := 0, 1; end < total; {
		p, err := Show(t.Context(), saved, Request{Flatten: true, Offset: end, Limit: 70})
		if err != nil || p.Offset != end || p.End <= end {
			t.Fatalf("%+v, %v", p, err)
		}
		pages += p.Text
		end, total = p.End, p.Total
	}
	if pages != want {
		t.Errorf("the pages of the flat list are\n%s", pages)
	}
	if got != want {
		t.Errorf("the flat list is\n%s\nwant\n%s", got, want)
	}
}

// What is wrong is said with the argument's name.
func TestWrongRequests(t *testing.T) {
	t.Parallel()
	for _, one := range []struct {
		text string
		r    Request
		want string
	}{
		{"text", Request{Offset: 5}, "offset is at most 4"},
		{"text", Request{Limit: maxLimit + 1}, "limit is 1 to 100000"},
		{"text", Request{Pattern: "("}, "pattern is not a regular expression"},
		{"text", Request{Pattern: "z"}, "no line matches pattern"},
		{"text", Request{Pattern: "x", Query: "y"}, "give one of them"},
		{"text", Request{Context: 2}, "pattern, which is missing"},
		{"text", Request{Pattern: "t", Context: -1}, "context is 0 to 100"},
		{"text", Request{Query: "a"}, "neither: use pattern"},
		{"text", Request{Flatten: true}, "flatten is for snapshots"},
		{"[]", Request{Query: "[?"}, "query is not a JMESPath expression"},
		{"[1]", Request{Query: "abs('x')"}, "query cannot be answered"},
	} {
		if _, err := Show(t.Context(), one.text, one.r); err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%+v: %v, want %q", one.r, err, one.want)
		}
	}
}

// A short expression may not make gigabytes of a result.
func TestQueryBombs(t *testing.T) {
	t.Parallel()
	data, _ := json.Marshal(strings.Split(strings.Repeat(`"`, 1000), ""))
	for _, bomb := range []string{
		strings.Repeat("[@,@][]|", 60) + "@",
		strings.Repeat("[@,@]|", 60) + "@",
		strings.Repeat("[", 40) + "@" + strings.Repeat(",@]", 40),
		strings.Repeat("to_string(", 60) + "@" + strings.Repeat(")", 60),
		"[*].{" + strings.TrimSuffix(strings.Repeat("a:[@,@,@,@,@,@][],", 50), ",") + "}|[].[@,@,@,@,@,@,@,@]",
	} {
		if _, err := Show(t.Context(), string(data), Request{Query: bomb}); err == nil {
			t.Errorf("%.40s… is answered", bomb)
		}
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	if _, err := Show(t.Context(), deep, Request{Query: "@"}); err == nil {
		t.Error("9,000 levels are shown")
	}
	var nested strings.Builder
	for i := range 4_000 {
		fmt.Fprintf(&nested, "%s- generic [ref=e%d]:\n", strings.Repeat(" ", i%3000), i)
	}
	got := show(t, nested.String(), Request{Flatten: true, Limit: maxLimit})
	if !strings.Contains(got, `"_depth":499`) {
		t.Errorf("a deep snapshot: %.200s", got)
	}
}

// Whatever a page has written, each answer is valid and within its limit.
func FuzzShow(f *testing.F) {
	f.Add(saved, "[].role", "link", 3, 20, 1, true)
	f.Add(`{"a":[1,2,{"b":null}]}`, "a[?b].{x:@,y:to_string(@)}", "(?s).", 0, 5, 0, false)
	f.Add("- 'x: \"y\" [a=b]': \"\\x41\"\n  - /url: z", "[0][::-1]", "$", 1, 2, 3, true)
	f.Fuzz(func(t *testing.T, text, query, pattern string, offset, limit, around int, flat bool) {
		if len(text) > 20_000 || len(pattern) > 50 || len(query) > 100 {
			return
		}
		text = strings.ToValidUTF8(text, "?")
		for _, r := range []Request{{Offset: offset, Limit: limit}, {Offset: offset, Limit: limit, Flatten: flat},
			{Offset: offset, Limit: limit, Pattern: pattern, Context: around},
			{Offset: offset, Limit: limit, Query: query, Flatten: flat}} {
			p, err := Show(t.Context(), text, r)
			if err != nil {
				continue
			}
			most := limit
			if limit == 0 {
				most = defaultLimit
			}
			n := utf8.RuneCountInString(p.Text)
			if !utf8.ValidString(p.Text) || n > most || p.End != p.Offset+n || p.End > p.Total {
				t.Fatalf("%+v: %d characters, %+v", r, n, p)
			}
		}
	})
}
