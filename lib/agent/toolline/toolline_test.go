package toolline

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"btools/lib/exit"
	"btools/lib/jsonrpc"
	"btools/lib/tools"
)

// builtin are all tools of builtin.
func builtin(t testing.TB) []json.RawMessage {
	t.Helper()
	all, err := tools.Names("all")
	if err != nil {
		t.Fatal(err)
	}
	return tools.List(all)
}

// others are tools as other servers have them: of chrome-devtools-mcp, of @playwright/mcp, also an earlier one, and
// with schemas that lib/schema does not know.
var others = []json.RawMessage{
	json.RawMessage(`{"name":"fill","description":"Type text into an input, or select an option. ALWAYS prefer ` +
		`fill_form.","inputSchema":{"type":"object","properties":{"uid":{"type":"string"},"value":{"type":"string"},` +
		`"includeSnapshot":{"type":"boolean"},"pageId":{"type":"number"}},"required":["pageId","uid","value"],` +
		`"additionalProperties":false,"$schema":"http://json-schema.org/draft-07/schema#"}}`),
	json.RawMessage(`{"name":"navigate_page","inputSchema":{"type":"object","properties":{"type":{"type":"string",` +
		`"enum":["url","back","forward","reload"]},"url":{"type":"string"},"ignoreCache":{"type":"boolean"},` +
		`"timeout":{"type":"integer"},"pageId":{"type":"number"}},"required":["pageId"]}}`),
	json.RawMessage(`{"name":"await","inputSchema":{"type":"object","properties":{"text":{"type":"array",` +
		`"minItems":1,"items":{"type":"string"}},"timeout":{"type":"integer"}},"required":["text"]}}`),
	json.RawMessage(`{"name":"old_click","inputSchema":{"type":"object","properties":{"element":{"type":"string"},` +
		`"ref":{"type":"string"},"doubleClick":{"type":"boolean"}},"required":["element","ref"]}}`),
	json.RawMessage(`{"name":"shoot","inputSchema":{"type":"object","properties":{"target":{"type":"string"},` +
		`"scale":{"type":"string","enum":["css","device"],"default":"css"}},"required":["scale"]}}`),
	json.RawMessage(`{"name":"browser_click","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}`),
	json.RawMessage(`{"name":"click","inputSchema":{"type":"object","properties":{"uid":{"type":"string"}}}}`),
	json.RawMessage(`{"name":"odd","inputSchema":{"type":"object","properties":{"level":{"type":["integer","null"]},` +
		`"which":{"enum":[1,2,"many"]},"any":{},"list":{"type":"array"},` +
		`"points":{"type":"array","items":{"type":"number"}},"map":{"type":"object",` +
		`"properties":{"a":{"type":"string"}}},"none":{"anyOf":[]}},` +
		`"required":["level","ghost"],"additionalProperties":{"type":"string"}}}`),
	json.RawMessage(`{"name":"free","inputSchema":{"type":"object"}}`),
	json.RawMessage(`{"name":"evil\u001b[2J","description":"One\u001b]0;x\u0007\ntwo. three. Four",` +
		`"inputSchema":{"type":"object","properties":{"a\u001b[1m":{"type":"string","description":"\u202ex"}}}}`),
	json.RawMessage(`{"name":"bare"}`),
	json.RawMessage(`[]`),
}

func TestArguments(t *testing.T) {
	t.Parallel()
	all := slices.Concat(builtin(t), others[:5])
	for _, c := range []struct{ line, want string }{
		{`navigate https://example.com`, `{"url":"https://example.com"}`},
		{`goto https://example.com`, `{"url":"https://example.com"}`},
		{`browser_html h1`, `{"selector":"h1"}`},
		{`scroll down`, `{"direction":"down"}`},
		{`scroll down 500`, `{"direction":"down","pixels":500}`},
		{`scroll e5`, `{"target":"e5"}`},
		{`press Enter`, `{"key":"Enter"}`},
		{`browser_navigate https://example.com`, `{"url":"https://example.com"}`},
		{`navigate https://example.com/?url=1&x=2`, `{"url":"https://example.com/?url=1\u0026x=2"}`},
		{`navigate example.com?a=b`, `{"url":"example.com?a=b"}`},
		{`navigate url=https://example.com/?a=b`, `{"url":"https://example.com/?a=b"}`},
		{`click e5`, `{"target":"e5"}`},
		{`click text=Submit`, `{"target":"text=Submit"}`},
		{`click 'role=button[name="Go"]'`, `{"target":"role=button[name=\"Go\"]"}`},
		{`click '[name=q]'`, `{"target":"[name=q]"}`},
		{`click ref=e5`, `{"target":"e5"}`},
		{`click e5 element='the button' doubleClick=true`, `{"target":"e5","doubleClick":true,"element":"the button"}`},
		{`click e5 right`, `{"target":"e5","button":"right"}`},
		{`click e5 Shift Alt right`, `{"target":"e5","button":"right","modifiers":["Shift","Alt"]}`},
		{`click modifiers=Shift e5 modifiers=Alt`, `{"target":"e5","modifiers":["Shift","Alt"]}`},
		{`click e5 modifiers='["Shift","Alt"]'`, `{"target":"e5","modifiers":["Shift","Alt"]}`},
		{`type e3 'my text' submit=true`, `{"target":"e3","text":"my text","submit":true}`},
		{`type submit=true e3 -- text=5`, `{"target":"e3","text":"text=5","submit":true}`},
		{`type e3 ''`, `{"target":"e3","text":""}`},
		{`type e3 true`, `{"target":"e3","text":"true"}`},
		{`type e3 12 true`, `{"target":"e3","text":"12","submit":true}`},
		{`type target=text=Search 'x y'`, `{"target":"text=Search","text":"x y"}`},
		{`evaluate document.title`, `{"function":"document.title"}`},
		{`evaluate 'document.title == "x=1"' e3`, `{"function":"document.title == \"x=1\"","target":"e3"}`},
		{`select_option e5 red blue`, `{"target":"e5","values":["red","blue"]}`},
		{`select_option e5 '[red]'`, `{"target":"e5","values":["[red]"]}`},
		{`file_upload a.txt b.txt`, `{"paths":["a.txt","b.txt"]}`},
		{`file_upload`, `{}`},
		{`drop e5 a.txt b.txt data='{"text/plain":"x"}'`,
			`{"target":"e5","paths":["a.txt","b.txt"],"data":{"text/plain":"x"}}`},
		{`fill_form '{"target":"e1","name":"n","type":"textbox","value":"v"}'`,
			`{"fields":[{"target":"e1","name":"n","type":"textbox","value":"v"}]}`},
		{`fill_form '[{"target":"e1","name":"n","type":"textbox","value":5}]'`,
			`{"fields":[{"target":"e1","name":"n","type":"textbox","value":"5"}]}`},
		{`wait_for 3`, `{"time":3}`},
		{`wait_for Welcome`, `{"text":"Welcome"}`},
		{`wait_for textGone=Loading…`, `{"textGone":"Loading…"}`},
		{`tabs`, `{}`},
		{`tabs list`, `{"action":"list"}`},
		{`tabs select 2`, `{"action":"select","index":2}`},
		{`tabs new https://example.com`, `{"action":"new","url":"https://example.com"}`},
		{`take_screenshot fullPage=true`, `{"fullPage":true}`},
		{`take_screenshot e5`, `{"target":"e5"}`},
		{`handle_dialog true Anna`, `{"accept":true,"promptText":"Anna"}`},
		{`network_request 3 response-body`, `{"index":3,"part":"response-body"}`},
		{`network_requests /api/`, `{"filter":"/api/"}`},
		{`console_messages error`, `{"level":"error"}`},
		{`mouse_wheel 0 -100`, `{"deltaX":0,"deltaY":-100}`},
		{`mouse_click_xy 1.5 20 right`, `{"x":1.5,"y":20,"button":"right"}`},
		{`emulate_media dark print contrast=null`, `{"colorScheme":"dark","contrast":null,"media":"print"}`},
		{`fetch https://example.com POST headers='{"A":"b"}' body=x=y`,
			`{"url":"https://example.com","method":"POST","headers":{"A":"b"},"body":"x=y"}`},
		{`cookie_set name=a b expires=1e9`, `{"name":"a","value":"b","expires":1e9}`},
		{`state save work overwrite=true`, `{"action":"save","name":"work","overwrite":true}`},
		{`get_markdown target=main`, `{"selector":"main"}`},
		{`fill 1 1_5 hello`, `{"pageId":1,"uid":"1_5","value":"hello"}`},
		{`navigate_page 1 https://example.com`, `{"pageId":1,"url":"https://example.com"}`},
		{`navigate_page 1 reload ignoreCache=true`, `{"pageId":1,"type":"reload","ignoreCache":true}`},
		{`await one two timeout=5`, `{"text":["one","two"],"timeout":5}`},
		{`shoot`, `{"scale":"css"}`},
		{`shoot device e5`, `{"scale":"device","target":"e5"}`},
		{`shoot target=e5`, `{"target":"e5","scale":"css"}`},
		{`old_click 'the button' e5`, `{"element":"the button","ref":"e5"}`},
	} {
		tool, got, err := Of(all).Line(c.line)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v, want %s", c.line, got, err, c.want)
		}
		if again, err := tool.JSON(got); string(again) != c.want {
			t.Errorf("%s as JSON: %s, %v", got, again, err)
		}
	}
}

// Wrong words get what is wrong in plain words, the tool's usage and the exit code of wrong usage.
func TestWrongWords(t *testing.T) {
	t.Parallel()
	all := slices.Concat(builtin(t), others[:5])
	for _, c := range []struct{ line, want, usage string }{
		{`clik e5`, `there is no tool "clik": did you mean click?`, ""},
		{`browser_clik e5`, `there is no tool "browser_clik": did you mean browser_click?`, ""},
		{`screensh`, `there is no tool "screensh": did you mean take_screenshot?`, ""},
		{`check e3`, `there is no tool "check": click toggles a checkbox, and fill_form with type=checkbox and ` +
			`value=true checks it`, ""},
		{`fly`, `there is no tool "fly"`, ""},
		{`click`, `click: the argument target is missing`, "click TARGET [doubleClick=true|false] " +
			"[button=left|right|middle] [ARGUMENT=VALUE…]"},
		{`type e3`, `type: the argument text is missing`,
			"type TARGET TEXT [submit=true|false] [slowly=true|false] [element=TEXT]"},
		{`type e3 my text`, `type: no argument is left for "text": a text that has spaces is put in quotes`, ""},
		{`wait_for Order placed`,
			`wait_for: no argument is left for "placed": a text that has spaces is put in quotes`, ""},
		{`type e3 x submt=true`, `type: there is no argument "submt": did you mean submit=? ` +
			`(after --, a word is a value as it is)`, ""},
		{`type e3 x colour=red`,
			`type: there is no argument "colour": there are target, text, submit, slowly, element`, ""},
		{`type e3 x submit=maybe`, `type: submit must be true or false, not "maybe"`, ""},
		{`type e3 x text=y target=e4`,
			`type: no argument is left for "e3": a text that has spaces is put in quotes`, ""},
		{`click target=e5 target=e6`, `click: target is given twice`, ""},
		{`click e5 button=lft`, `click: button must be one of left, right, middle, not "lft"`, ""},
		{`network_request one`, `network_request: index must be a whole number, not "one"`, ""},
		{`resize 0 5`, `resize: width must be at least 1, not 0`, ""},
		{`close now`, `close: "now" is too much: it takes no arguments`, "close"},
		{`fill_form x`, `fill_form: fields[0] must be an object, not "x"`, ""},
		{`drop e5 data='{'`, `drop: data must be an object, not "{"`, ""},
		{`{"name":"browser_type","arguments":{"target":"e3","txt":"x"}}`,
			`type: there is no argument "txt": did you mean text?`, ""},
		{`{"arguments":{}}`, `cannot read "{\"arguments\":{}}": it has no name`, ""},
		{`{`, `cannot read "{": unexpected end of JSON input`, ""},
		{`click "e5`, `cannot read "click \"e5": a quote in it is not closed`, ""},
	} {
		_, got, err := Of(all).Line(c.line)
		var e *exit.Error
		if !errors.As(err, &e) || e.Code != exit.Usage || err.Error() != c.want {
			t.Errorf("%s: %s, %v, want %s", c.line, got, err, c.want)
		} else if c.usage != "" && e.Hint != "usage: bmcp call "+c.usage {
			t.Errorf("%s: the hint is %q, want %s", c.line, e.Hint, c.usage)
		}
	}
	click, _ := Of(all).Find("click")
	for _, text := range []string{"", "[]", `{"target":`, `{} {}`} {
		var e *exit.Error
		if _, err := click.JSON([]byte(text)); !errors.As(err, &e) || e.Code != exit.Data {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":               "",
		"  ":             "",
		"# click e5":     "",
		"click e5":       `browser_click {"target":"e5"}`,
		" click 'e 5'\n": `browser_click {"target":"e 5"}`,
		`{"name":"browser_click","arguments":{"target":"e5"}}`:      `browser_click {"target":"e5"}`,
		` {"name":"click","arguments":{"target":"e5"},"id":7} `:     `browser_click {"target":"e5"}`,
		`{"name":"browser_snapshot"}`:                               `browser_snapshot {}`,
		`{"name":"browser_snapshot","arguments":null}`:              `browser_snapshot {}`,
		`{"name":"browser_wait_for","arguments":{"time": "1"}}`:     `browser_wait_for {"time": 1}`,
		`{"name":"browser_click","arguments":{ "ref" : "e5" }}`:     `browser_click {"target":"e5"}`,
		`{"name":"browser_evaluate","arguments":{"function":"é"}}`:  `browser_evaluate {"function":"é"}`,
		`{"name":"browser_press_key","arguments":{"key":"\u0041"}}`: `browser_press_key {"key":"\u0041"}`,
	} {
		tool, args, err := Of(builtin(t)).Line(line)
		got := strings.TrimSpace(tool.Name + " " + string(args))
		if err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", line, got, err, want)
		}
	}
}

// A name that two tools have, with and without browser_, is that of the one that is called so. What a schema has that
// lib/schema does not know is left to the server.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, name, want string }{
		{`click 1_5`, "click", `{"uid":"1_5"}`},
		{`browser_click 5`, "browser_click", `{"n":5}`},
		{`odd 3 here 2 which=many`, "odd", `{"level":3,"ghost":"here","which":"many","any":2}`},
		{`odd null 5 list='{"a":1}' list=x points=1 points='[2,3]' none=[]`, "odd",
			`{"level":null,"ghost":5,"list":[{"a":1},"x"],"points":[1,2,3],"none":[]}`},
		{`{"name":"odd","arguments":{"level":1,"ghost":0,"more":"x","map":{"a":1}}}`, "odd",
			`{"level":1,"ghost":0,"map":{"a":"1"},"more":"x"}`},
		{`{"name":"free","arguments":{"a":[1]}}`, "free", `{"a":[1]}`},
		{`bare`, "bare", `{}`},
	} {
		tool, got, err := Of(others).Line(c.line)
		if err != nil || tool.Name != c.name || string(got) != c.want {
			t.Errorf("%s: %s, %s, %v, want %s %s", c.line, tool.Name, got, err, c.name, c.want)
		}
	}
	list := List(others, 0)
	for _, line := range []string{"  click [UID]\n", "  browser_click\n", "  navigate_page PAGE_ID\n",
		"  fill PAGE_ID UID VALUE  Type text into an input, or select an option\n"} {
		if !strings.Contains(list, line) {
			t.Errorf("the list lacks %q:\n%s", line, list)
		}
	}
}

var row = regexp.MustCompile(`^  \S.{0,77}$`)

// All tools have a line of at most 80 columns, and no text of theirs is a command to a terminal.
func TestHelp(t *testing.T) {
	t.Parallel()
	all := slices.Concat(builtin(t), others)
	lines := strings.Split(strings.TrimSuffix(List(all, Width), "\n"), "\n")
	if len(lines) != len(all) {
		t.Errorf("%d lines for %d tools", len(lines), len(all))
	}
	for _, line := range lines[:len(lines)-1] {
		if !row.MatchString(line) {
			t.Errorf("%q", line)
		}
	}
	full, _ := names(all)
	for _, name := range full {
		tool, err := Of(all).Find(name)
		if err != nil {
			t.Fatal(err)
		}
		help := tool.Help()
		if strings.ContainsAny(help+tool.Usage(), "\x1b\a\u202e") {
			t.Errorf("%q has commands to a terminal", help)
		}
		for line := range strings.Lines(help) {
			n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
			if !strings.HasPrefix(line, "usage: ") && n > Width && strings.Contains(line[40:], " ") {
				t.Errorf("%d columns: %s", n, line)
			}
		}
		if strings.Contains(tool.Usage(), "\n") {
			t.Errorf("the usage has lines: %s", tool.Usage())
		}
	}
	for name, want := range map[string]string{
		"type": `usage: bmcp call type TARGET TEXT [submit=true|false] [slowly=true|false] [element=TEXT]

Replace the text of an editable element

Arguments, as NAME=VALUE, or values in this order:
  target=TEXT        Ref or selector (required)
  text=TEXT          (required)
  submit=true|false  Press Enter afterwards
  slowly=true|false  Key by key, after what is there

Only as NAME=VALUE:
  element=TEXT
`,
		"fill_form": `usage: bmcp call fill_form FIELDS…

Fill several form fields

Arguments, as NAME=VALUE, or values in this order:
  fields=JSON  {target: TEXT, name: TEXT, type:
               textbox|checkbox|radio|combobox|slider, value: TEXT, element?:
               TEXT} (required, repeatable)
`,
		"close": `usage: bmcp call close

Close the current tab
`,
	} {
		tool, _ := Of(builtin(t)).Find(name)
		if got := tool.Help(); got != want {
			t.Errorf("the help of %s is\n%s", name, got)
		}
	}
}

func TestComplete(t *testing.T) {
	t.Parallel()
	all := builtin(t)
	for _, c := range []struct{ before, word, want string }{
		{"", "navi", "navigate navigate_back navigate_forward"},
		{"", "browser_navi", "browser_navigate browser_navigate_back browser_navigate_forward"},
		{"click", "", "target= doubleClick= button= modifiers= element="},
		{"click e5", "b", "button="},
		{"click e5", "r", "right"},
		{"click e5", "button=", "button=left button=right button=middle"},
		{"click e5 button=left", "b", ""},
		{"click e5 modifiers=Alt", "m", "middle modifiers="},
		{"click e5", "doubleClick=t", "doubleClick=true"},
		{"tabs", "", "list new close select action= index= url= label="},
		{"tabs select", "", "index= url= label="},
		{"emulate_media", "contrast=", "contrast=more contrast=no-preference"},
		{"emulate_media", "d", "dark"},
		{"fly", "", ""},
		{"navigate https://example.com", "", ""},
	} {
		var got []string
		for _, choice := range Complete(all, strings.Fields(c.before), c.word) {
			got = append(got, choice.Word)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q, %q: %q, want %s", c.before, c.word, got, c.want)
		}
	}
	click, _ := Of(all).Find("click")
	if next := click.Next(nil); !slices.Equal(next, []string{"target"}) {
		t.Errorf("the first word of click is %q", next)
	}
	drag, _ := Of(all).Find("drag")
	if next := drag.Next([]string{"e1"}); !slices.Equal(next, []string{"endTarget"}) {
		t.Errorf("the second word of drag is %q", next)
	}
}

// Whatever the words and the schema are, arguments are valid JSON that the schema accepts, or an error.
func FuzzLine(f *testing.F) {
	f.Add("click e5 button=left", `{"type":"object"}`)
	f.Add(`type a "b c" submit=true`, `{"type":"string","enum":["a"]}`)
	f.Add(`{"name":"browser_click","arguments":{"target":"e5"}}`, `{"type":["string","null"]}`)
	f.Add(`fuzz x=1 [1,2] {"a":1}`, `{"type":"array","items":{"anyOf":[{"type":"integer"},{"type":"null"}]}}`)
	f.Add(`fuzz null x=null`, `{"anyOf":[],"AnyOf":[{"type":"boolean"}]}`)
	all := builtin(f)
	f.Fuzz(func(t *testing.T, line, schema string) {
		all := all
		if json.Valid([]byte(schema)) {
			all = append(slices.Clone(all), json.RawMessage(`{"name":"fuzz","inputSchema":{"properties":{"x":`+schema+
				`,"y":`+schema+`},"required":["y"]}}`),
				json.RawMessage(`{"name":"whole","description":`+string(jsonrpc.Quote(schema))+
					`,"inputSchema":`+schema+`}`))
		}
		tool, args, err := Of(all).Line(line)
		words := strings.Fields(line)
		for i := range words {
			Complete(all, words[:i], words[i])
		}
		for _, name := range []string{"fuzz", "whole"} {
			if tool, err := Of(all).Find(name); err == nil {
				tool.Help()
				tool.Arguments(words)
			}
		}
		if err != nil || tool.Name == "" {
			return
		}
		if !json.Valid(args) {
			t.Fatalf("%q: %s", line, args)
		}
		if again, err := tool.check.Accept(args); !tool.open && err != nil {
			t.Errorf("%q: %s is not accepted again: %s, %v", line, args, again, err)
		}
	})
}
