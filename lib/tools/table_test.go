package tools

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"btools/lib/agent/agenttool"
	"btools/lib/jsonrpc"
	"btools/lib/searchpage"
)

// Each tool has a valid schema, and each schema a tool.
func TestSchemas(t *testing.T) {
	files, err := schemas.ReadDir("schemas")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name, _, _ := strings.Cut(f.Name(), ".")
		if find(name) == nil {
			t.Errorf("%s is for no tool", f.Name())
		}
		text := agenttool.Schema(schemas, strings.TrimSuffix(f.Name(), ".json"))
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatalf("%s is not JSON: %v", f.Name(), err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(f.Name(), value); err != nil {
			t.Errorf("%s: %v", f.Name(), err)
		} else if _, err := c.Compile(f.Name()); err != nil {
			t.Errorf("%s is not a JSON Schema: %v", f.Name(), err)
		}
	}
}

// maxList is the most that the tools may cost, in characters: less than 6,000 tokens of 4
// characters with those of the coordinator and the arguments that it adds.
const maxList = 19000

func TestCostOfTheList(t *testing.T) {
	n := 0
	for _, tool := range List(nil) { // the groups that are not listed by default cost who chooses them
		n += len([]rune(string(tool)))
	}
	t.Logf("%d characters", n)
	if n > maxList {
		t.Errorf("the list of tools has %d characters, more than %d", n, maxList)
	}
}

// btools-tools(7) has each tool, with all its arguments.
func TestToolsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../man/btools-tools.7")
	if err != nil {
		t.Fatal(err)
	}
	heads := regexp.MustCompile(`(?m)^\.It (browser_\w+)(.*)$`).FindAllStringSubmatch(string(page), -1)
	all, _ := Names("all")
	for _, tool := range List(all) {
		name := jsonrpc.GetString(tool, "name")
		i := slices.IndexFunc(heads, func(h []string) bool { return h[1] == name })
		if i < 0 {
			t.Errorf("btools-tools(7) does not have %s", name)
			continue
		}
		words := regexp.MustCompile(`\w+`).FindAllString(heads[i][2], -1)
		var properties map[string]json.RawMessage
		json.Unmarshal(jsonrpc.Get(tool, "inputSchema", "properties"), &properties)
		for argument := range properties {
			if !slices.Contains(append(words, forPeople...), argument) {
				t.Errorf("btools-tools(7) does not have the argument %s of %s", argument, name)
			}
		}
	}
	for _, h := range heads {
		if find(h[1]) == nil {
			t.Errorf("btools-tools(7) has %s, which is not there", h[1])
		}
	}
}

// forPeople are arguments that only describe others.
var forPeople = []string{"element", "startElement", "endElement"}

func TestNames(t *testing.T) {
	for selection, want := range map[string]string{
		"core":                          "browser_navigate",
		"all":                           "browser_cookie_list",
		"default":                       "browser_pdf_save",
		"core,vision":                   "browser_mouse_click_xy",
		"click,browser_type":            "browser_type",
		"core,browser_pdf_save, resize": "browser_pdf_save",
		"session_stats":                 SessionStats,
	} {
		names, err := Names(selection)
		if err != nil || !slices.Contains(names, want) {
			t.Errorf("%q: %v, %v", selection, names, err)
		}
	}
	if names, _ := Names("core"); slices.Contains(names, "browser_pdf_save") {
		t.Errorf("core has %v", names)
	}
	names, _ := Names("default")
	isChosen := func(name string) bool { return GroupOf(name) != "" }
	if len(List(nil)) != len(List(names)) || slices.ContainsFunc(names, isChosen) {
		t.Errorf("default has %v", names)
	}
	if _, err := Names("browser_clik"); err == nil || !strings.Contains(err.Error(), "did you mean browser_click?") {
		t.Errorf("an unknown name: %v", err)
	}
}

// A search shows lines with what they belong to.
func TestMatches(t *testing.T) {
	outline := "- list:\n  - listitem: one\n  - listitem: two\n  - listitem: three\n- button \"x\":\n  - a\n  - b\n" +
		"  - c\n  - d\n  - e"
	is, err := searched("THREE", "")
	if err != nil {
		t.Fatal(err)
	}
	found, n := matches(outline, is)
	if n != 1 || !strings.HasPrefix(found, "- list:\n  - listitem: one\n") || strings.Contains(found, "\n  - b") {
		t.Errorf("%d: %s", n, found)
	}
	group := "- navigation:\n  - link \"Jobs\":\n    - /url: /jobs\n- main:\n  - text: here\n  - text: there"
	if is, err = searched("here", ""); err != nil {
		t.Fatal(err)
	}
	if found, _ := matches(group, is); found != group { // the URL stands below its link
		t.Errorf("%s", found)
	}
	if is, err = searched("", "/TWO$/i"); err != nil {
		t.Fatal(err)
	}
	if _, n := matches(outline, is); n != 1 {
		t.Errorf("%d lines match the regular expression", n)
	}
	long := "- paragraph [ref=e1]: " + strings.Repeat("word ", 5000) + "The End" + strings.Repeat(" more", 5000)
	if is, err = searched("the  end", ""); err != nil {
		t.Fatal(err)
	}
	found, n = matches(long, is)
	if n != 1 || len(found) > maxLine || !strings.HasPrefix(found, "- paragraph [ref=e1]: word") ||
		!strings.Contains(found, "word The End more") {
		t.Errorf("of a long line there is %d %q", n, found)
	}
	for _, bad := range [][2]string{{"", ""}, {"a", "b"}, {"", "("}} {
		if _, err := searched(bad[0], bad[1]); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// Errors of a search don't show what may be a key in SEARCH_URL.
func TestKeyOfSearch(t *testing.T) {
	const template = "https://a.example/find?q={query}&key=s%2Fcret&lang=en"
	got := hidden(template, "cannot load https://a.example/find?q=cats&key=s%2Fcret&lang=en: no (key=s/cret)")
	if want := "cannot load https://a.example/find?q=cats&key=xxxxx&lang=xxxxx: no (key=xxxxx)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	own := strings.ReplaceAll(searchpage.Default, "{query}", "cats")
	if got := hidden(searchpage.Default, own); got != own {
		t.Errorf("the default engine, which has no key, is shown as %s", got)
	}
}

// Two calls that need the roots of the host at once ask for them once. A host that does
// not answer is not taken for one without roots.
func TestRootsAtOnce(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	from, out := io.Pipe()
	s := &Server{Options: Options{Dir: "/", Second: time.Minute}, out: jsonrpc.NewWriter(out, maxWaiting, nil),
		files: files{canList: true, asked: map[string]*roots{}}}
	s.files.s = s
	got := make(chan []string, 2)
	for range 2 {
		go func() {
			dirs, err := s.allowed(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- dirs
		}()
	}
	requests := make(chan *jsonrpc.Message, 10)
	go func() {
		lines := jsonrpc.NewReader(from)
		for line, err := lines.Line(); err == nil; line, err = lines.Line() {
			m, _ := jsonrpc.Parse(line)
			requests <- m
		}
	}()
	asked := func() *jsonrpc.Message {
		roots := json.RawMessage(`{"roots":[{"uri":"file://` + dir + `"}]}`)
		m, err := jsonrpc.Parse(jsonrpc.Response((<-requests).ID, roots))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	s.handle(t.Context(), asked())
	for range 2 {
		if dirs := <-got; !slices.Equal(dirs, []string{dir}) {
			t.Errorf("got %v, want %s", dirs, dir)
		}
	}
	s.handle(t.Context(), &jsonrpc.Message{Method: "notifications/roots/list_changed"})
	s.Second = time.Millisecond
	const late = "the host has not said within 5ms"
	if dirs, err := s.allowed(t.Context()); err == nil || !strings.Contains(err.Error(), late) {
		t.Errorf("got %v, %v", dirs, err)
	}
	if len(requests) > 1 {
		t.Errorf("the host was asked %d times more", len(requests))
	}
}

// Clients take a text of MCP for broken that has no text.
func TestEmptyResult(t *testing.T) {
	t.Parallel()
	r := (&reply{access: access{server: &Server{}}}).result(t.Context(), nil)
	if !reflect.DeepEqual(r.Content, []mcp.Content{mcp.NewTextContent("### Result\nThe result is empty.")}) {
		t.Errorf("the result is %+v", r)
	}
}
