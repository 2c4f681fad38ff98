//go:build linux

package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"btools/lib/cmdtest"
)

// stored is what a result says of its parts that are kept.
type stored struct {
	Key     string  `json:"cache_key"`
	URI     string  `json:"uri"`
	SizeKB  float64 `json:"_size_kb"`
	Type    string  `json:"_mime_type"`
	Expires string  `json:"_expires_at"`
}

// keptOf are the parts of a result that are kept.
func keptOf(t *testing.T, r *cmdtest.RPC) []stored {
	t.Helper()
	var x struct {
		Meta struct {
			Stored []stored `json:"btools/stored"`
		} `json:"_meta"`
	}
	r.Into(t, &x)
	return x.Meta.Stored
}

// item is an item of content.
type item struct {
	Type, Text, Data, MIMEType, URI string
	Resource                        struct{ URI, Blob, Text string }
}

func itemsOf(t *testing.T, r *cmdtest.RPC) []item {
	t.Helper()
	var x struct{ Content []item }
	r.Into(t, &x)
	return x.Content
}

// give has the fake child return a result.
func give(result string) string { return `{"result":` + result + `}` }

func textResult(texts ...string) string {
	var all []string
	for _, text := range texts {
		q, _ := json.Marshal(text)
		all = append(all, `{"type":"text","text":`+string(q)+`}`)
	}
	return `{"content":[` + strings.Join(all, ",") + `]}`
}

func giver() []string { return []string{"FAKE_TOOLS=give,big,echo"} }

// Without --max-inline, the results of children are passed on as they are.
func TestLargeResultsUnchanged(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(giver(), "--mcp", "a="+cmdtest.FakeChild())
	if names := m.Tools(); slices.Contains(names, "browser_result") || slices.Contains(names, "browser_get_blob") {
		t.Errorf("there are tools for what is never kept: %v", names)
	}
	if text := m.Tool("big", `{"n":200000}`).Text(t); len(text) != 200_000 {
		t.Errorf("of 200,000 characters %d came", len(text))
	}
	m.End()
	w.Clean()
}

// A text that is too large is cut; the rest is read by page, by pattern, as a list
// of nodes or by a query, also in bulk.
func TestLargeResults(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(giver(), "--mcp", "a="+cmdtest.FakeChild(), "--max-inline", "2KiB")
	m.AwaitTools("give", "browser_result", "browser_get_blob")
	read := func(t *testing.T, args string) string {
		t.Helper()
		r := m.Tool("browser_result", args)
		if strings.Contains(r.Line, `"isError":true`) {
			t.Fatalf("%s: %s", args, r.Line)
		}
		return itemsOf(t, r)[0].Text
	}

	t.Run("small", func(t *testing.T) {
		if r := m.Tool("give", give(textResult(strings.Repeat("x", 2048)))); strings.Contains(r.Line, "btools/stored") {
			t.Errorf("a result of 2 KiB is cut: %.300s", r.Line)
		}
	})
	t.Run("pages", func(t *testing.T) {
		whole := strings.Repeat("日本語 text\n", 900) + "end"
		r := m.Tool("give", give(textResult(whole)))
		kept, items := keptOf(t, r), itemsOf(t, r)
		if len(kept) != 1 || !regexp.MustCompile(`^nav_[0-9a-f]{8}$`).MatchString(kept[0].Key) ||
			kept[0].Type != "text/plain" || kept[0].SizeKB != 13.2 || kept[0].Expires == "" {
			t.Fatalf("got %+v: %.300s", kept, r.Line)
		}
		if len(items) != 2 || len(items[0].Text) > 2048 || !strings.HasPrefix(whole, items[0].Text) ||
			!strings.Contains(items[1].Text, kept[0].Key) {
			t.Fatalf("got %+v", items)
		}
		all := items[0].Text
		for total := utf8.RuneCountInString(whole); utf8.RuneCountInString(all) < total; {
			all += read(t, fmt.Sprintf(`{"cache_key":%q,"offset":%d,"limit":1000}`, kept[0].Key,
				utf8.RuneCountInString(all)))
		}
		if all != whole {
			t.Error("the pages are not the text")
		}
		if got := read(t, fmt.Sprintf(`{"cache_key":%q,"pattern":"^e","context":1}`, kept[0].Key)); got !=
			"900-日本語 text\n901:end\n" {
			t.Errorf("the lines are %q", got)
		}
	})
	t.Run("snapshot", func(t *testing.T) {
		var lines strings.Builder
		for i := range 200 {
			fmt.Fprintf(&lines, "  - link \"Page %d\" [ref=e%d]:\n    - /url: /%d\n", i, i+2, i)
		}
		r := m.Tool("give", give(textResult("### Page\n```yaml\n- list [ref=e1]:\n"+lines.String()+"```\n")))
		if text := itemsOf(t, r)[0].Text; strings.Count(text, "```") != 2 {
			t.Errorf("the block of the beginning does not end: %q", text)
		}
		key := keptOf(t, r)[0].Key
		got := read(t, fmt.Sprintf(`{"cache_key":%q,"flatten":true,"limit":200}`, key))
		if !strings.HasPrefix(got, `{"_index":0,"_depth":0,"role":"list","ref":"e1"}`+"\n"+
			`{"_index":1,"_depth":1,"_parent_role":"list","role":"link","name":"Page 0","ref":"e2","url":"/0"}`) {
			t.Errorf("the nodes are %s", got)
		}
		got = read(t, fmt.Sprintf(`{"cache_key":%q,"flatten":true,"query":"[?name=='Page 150'].ref"}`, key))
		if got != "[\n\"e152\"\n]" {
			t.Errorf("the query finds %s", got)
		}
	})
	t.Run("structured", func(t *testing.T) {
		var all []string
		for i := range 500 {
			all = append(all, fmt.Sprintf(`{"n":%d}`, i))
		}
		r := m.Tool("give", give(`{"content":[{"type":"text","text":"few"}],"structuredContent":{"all":[`+
			strings.Join(all, ",")+`]}}`))
		if strings.Contains(r.Line, "structuredContent\":") || itemsOf(t, r)[0].Text != "few" {
			t.Errorf("got %.300s", r.Line)
		}
		got := read(t, fmt.Sprintf(`{"cache_key":%q,"query":"all[-1].n"}`, keptOf(t, r)[0].Key))
		if got != "499" {
			t.Errorf("the query finds %s", got)
		}
	})
	t.Run("bulk", func(t *testing.T) {
		command := `{"tool":"big","args":{"n":1500},"return_result":true}`
		r := m.Tool("browser_execute_bulk", `{"commands":[`+command+`,`+command+`,`+command+`]}`)
		keys := regexp.MustCompile(`nav_[0-9a-f]{8}`).FindAllString(r.Line, -1)
		slices.Sort(keys)
		if keys = slices.Compact(keys); len(keys) != 2 {
			t.Fatalf("of three results of 1,500 bytes %d are cut: %.500s", len(keys), r.Line)
		}
		r = m.Tool("browser_execute_bulk", fmt.Sprintf(`{"commands":[{"tool":"browser_result","args":`+
			`{"cache_key":%q,"offset":1490},"return_result":true}]}`, keys[0]))
		if !strings.Contains(r.Line, `"text":"xxxxxxxxxx"`) || r.Tool(t).Struct["success"] != true {
			t.Errorf("in bulk: %s", r.Line)
		}
	})
	t.Run("wrong", func(t *testing.T) {
		for args, want := range map[string]string{
			`{"cache_key":"nav_00000000"}`:                    "there is no result with cache_key",
			`{}`:                                              "cache_key is missing",
			`{"cache_key":"x","offest":1}`:                    "did you mean offset?",
			`{"cache_key":"x","offset":"one"}`:                "offset must be a whole number",
			`{"cache_key":"x","offset":1.5}`:                  "offset must be a whole number",
			`{"cache_key":"x","offset":99999999999999999999}`: "too large a number",
		} {
			r := m.Tool("browser_result", args)
			r.MustFail(t, want)
		}
	})
	t.Run("size of the schemas", func(t *testing.T) {
		size := 0
		var x struct{ Tools []json.RawMessage }
		m.Call("tools/list", "{}").Into(t, &x)
		for _, tool := range x.Tools {
			if bytes.Contains(tool, []byte(`"name":"browser_result"`)) ||
				bytes.Contains(tool, []byte(`"name":"browser_get_blob"`)) {
				size += len(tool)
			}
		}
		if size == 0 || size > 1200 {
			t.Errorf("the two tools take %d characters of the list", size)
		}
	})
	m.End()
	w.Clean()
}

// A key is valid whichever pool and instance a call names.
func TestLargeResultsOfPools(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	m := w.MCP(append(giver(), "PW_MCP_PROXY_BROWSER="+cmdtest.Bin+"/fakebrowser", "PW_MCP_PROXY__A_INSTANCES=1",
		"PW_MCP_PROXY__A_IS_DEFAULT=1", "PW_MCP_PROXY__B_INSTANCES=1"), "--mcp", "a="+cmdtest.FakeChild(),
		"--max-inline", "2KiB")
	m.AwaitTools("big", "browser_result")
	kept := keptOf(t, m.Tool("big", `{"n":5000,"browser_pool":"B"}`))
	if len(kept) != 1 {
		t.Fatal("the result is not cut")
	}
	for _, place := range []string{"", `,"browser_pool":"A"`, `,"browser_pool":"B","browser_instance":0`} {
		r := m.Tool("browser_result", fmt.Sprintf(`{"cache_key":%q,"offset":4990%s}`, kept[0].Key, place))
		if !strings.Contains(r.Line, `"text":"xxxxxxxxxx"`) {
			t.Errorf("with%s: %s", place, r.Line)
		}
	}
	m.End()
	w.Clean()
}

// A host reads its own results and nobody else's, whatever key it guesses.
func TestLargeResultsOfHosts(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	url, stop := w.ServeMCP(slices.Concat(giver(), []string{"BTOOLS_BROWSER=" + cmdtest.Bin + "/fakebrowser"}),
		"--mcp", "a="+cmdtest.FakeChild(), "--max-inline", "2KiB")
	defer stop()
	key := regexp.MustCompile(`nav_[0-9a-f]{8}`)
	call := func(h *cmdtest.WebHost, tool, args string) string {
		return asks(h, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
	}
	const gone = "there is no result with cache_key"
	one, other := cmdtest.NewWebHost(t, url), cmdtest.NewWebHost(t, url)
	k := key.FindString(call(one, "big", `{"n":5000}`))
	read := func(key, session string) string {
		return fmt.Sprintf(`{"cache_key":%q,"offset":4990%s}`, key, session)
	}
	if got := call(one, "browser_result", read(k, "")); !strings.Contains(got, `"text":"xxxxxxxxxx"`) {
		t.Errorf("the host's own result: %s", got)
	}
	if got := call(one, "browser_result", read(k, `,"session_id":"b"`)); !strings.Contains(got, "xxxxxxxxxx") {
		t.Errorf("with another session_id of the host: %s", got)
	}
	if got := call(other, "browser_result", read(k, "")); !strings.Contains(got, gone) {
		t.Errorf("another host reads %s", got)
	}

	// Hosts of the stateless protocol have one session together.
	k = key.FindString(callStateless(t, url, "big", `{"n":5000,"session_id":"mine"}`).Line)
	if k == "" {
		t.Fatal("a stateless host gets no key")
	}
	for session, want := range map[string]string{`,"session_id":"mine"`: `"text":"xxxxxxxxxx"`,
		`,"session_id":"yours"`: gone, "": gone} {
		got := callStateless(t, url, "browser_result", read(k, session)).Line
		if !strings.Contains(got, want) {
			t.Errorf("with%s: %s, want %s", session, got, want)
		}
	}
}

// The tools of bmcp itself bound their results without being told to: the snapshot of
// a large page is read in parts, a PDF is a blob, a screenshot is seen.
func TestLargeResultsOfBuiltin(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := cmdtest.Serve(t, func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/data" {
			out.Header().Set("Content-Type", "application/zip")
			out.Write([]byte("PK\x03\x04\x00\xff"))
			return
		}
		out.Header().Set("Content-Type", "text/html")
		fmt.Fprint(out, "<title>Many</title><h1>Many</h1><ul>")
		for i := range 1500 {
			fmt.Fprintf(out, `<li><a href="/%d">Article %d</a></li>`, i, i)
		}
	})
	m := w.StartMCP([]string{"HOME=" + w.Dir}, "--mcp", "builtin")
	m.Initialize(`{}`)
	m.AwaitTools("browser_navigate", "browser_result", "browser_get_blob")

	m.Tool("browser_navigate", `{"url":"`+site+`"}`)
	r := m.Tool("browser_snapshot", `{}`)
	kept := keptOf(t, r)
	if len(kept) != 1 || len(r.Line) > 15_000 || !strings.Contains(r.Text(t), "Page URL: "+site) {
		t.Fatalf("the result of a large page has %d bytes, and %+v is kept", len(r.Line), kept)
	}
	read := func(args string) []item {
		return itemsOf(t, m.Tool("browser_result", fmt.Sprintf(`{"cache_key":%q,%s}`, kept[0].Key, args)))
	}
	if got := read(`"pattern":"Article 1499"`)[0].Text; !strings.Contains(got, `link "Article 1499" [ref=`) ||
		strings.Count(got, "\n") != 1 {
		t.Errorf("the pattern finds %q", got)
	}
	if got := read(`"flatten":true,"query":"length([?role=='link'])"`)[0].Text; got != "1500" {
		t.Errorf("of 1,500 links there are %s", got)
	}
	ref := read(`"flatten":true,"query":"[?name=='Article 1234'].ref | [0]"`)[0].Text
	r = m.Tool("browser_execute_bulk", `{"commands":[{"tool":"browser_click","args":{"target":`+ref+
		`}},{"tool":"browser_evaluate","args":{"function":"location.pathname"},"return_result":true}]}`)
	if !strings.Contains(r.Line, `/1234`) || strings.Contains(r.Line, "downloads_begun") {
		t.Errorf("a click on ref %s of the kept snapshot: %.500s", ref, r.Line)
	}

	r = m.Tool("browser_pdf_save", "{}")
	kept = keptOf(t, r)
	if len(kept) != 1 || kept[0].Type != "application/pdf" || len(r.Line) > 4000 {
		t.Fatalf("a PDF: %.500s", r.Line)
	}
	var x struct{ Contents []struct{ Blob []byte } }
	m.Call("resources/read", `{"uri":"`+kept[0].URI+`"}`).Into(t, &x)
	if !bytes.HasPrefix(x.Contents[0].Blob, []byte("%PDF-")) {
		t.Errorf("the PDF is %.20q", x.Contents[0].Blob)
	}
	m.Tool("browser_evaluate", `{"function":"fetch('/data').then(r => r.arrayBuffer()).then(b => b.byteLength)"}`)
	index := regexp.MustCompile(`(\d+)\. \[GET\] [^ ]*/data `).FindStringSubmatch(
		m.Tool("browser_network_requests", "{}").Text(t))
	if index == nil {
		t.Fatal("the request is not listed")
	}
	r = m.Tool("browser_network_request", `{"index":`+index[1]+`,"part":"response-body"}`)
	if kept := keptOf(t, r); len(kept) != 1 || !strings.HasSuffix(kept[0].URI, ".zip") {
		t.Errorf("a body of binary data: %.500s", r.Line)
	}
	if items := itemsOf(t, m.Tool("browser_take_screenshot", "{}")); !slices.ContainsFunc(items,
		func(i item) bool { return i.Type == "image" && len(i.Data) > 1000 }) {
		t.Errorf("the screenshot is not in its result: %d items", len(items))
	}
	m.End()
	w.Clean()
}
