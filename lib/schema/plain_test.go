package schema

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema that a page has written is made one that hosts take; what is not understood in it is not checked.
func TestPlain(t *testing.T) {
	t.Parallel()
	const any = `{"type":"object","additionalProperties":true}`
	for raw, want := range map[string]string{
		``:                                 any,
		`null`:                             any,
		`{"type":"string"}`:                any,
		`{"$ref":"#/x","oneOf":[{}]}`:      any,
		`{"type":["object","string"]}`:     any,
		`{"type":"object","properties":5}`: `{"type":"object","properties":{},"additionalProperties":true}`,
		`{"properties":{"id":{"type":["string","null"],"description":"The\nid\u001b[2J","pattern":"("},
			"a b":{"type":"string"},"n":{"type":"integer","minimum":1,"maximum":"x"},"deep":{"type":"array",
			"items":{"type":"object","properties":{"x":{"$ref":"#"}}}},"any":{"type":"array","maximum":null}},
			"required":["id","id","none"],"additionalProperties":false}`: `{"type":"object","properties":{` +
			`"id":{"type":"string","description":"The id[2J"},"n":{"type":"integer","minimum":1},` +
			`"deep":{"type":"array","items":{"type":"object","properties":{"x":{}},"additionalProperties":true}},` +
			`"any":{"type":"array","items":{}}},"required":["id"],"additionalProperties":true}`, // a b may be given
		`{"type":"object","properties":{"a":{}},"additionalProperties":false}`: `{"type":"object",` +
			`"properties":{"a":{}},"additionalProperties":false}`,
		// As Chromium has it for a select element.
		`{"type":"object","properties":{"size":{"type":"string","oneOf":[{"const":"s","title":"Small"},
			{"const":"l","title":"Large"}]},"n":{"enum":[1,2]},"color":{"enum":["red","blue"]}}}`: `{"type":"object",` +
			`"properties":{"size":{"type":"string","enum":["s","l"]},"n":{},` +
			`"color":{"type":"string","enum":["red","blue"]}},"additionalProperties":true}`,
	} {
		if got := string(Plain(json.RawMessage(raw))); got != want {
			t.Errorf("of %s:\n%s\nwant\n%s", raw, got, want)
		}
	}
	s := parse(t, string(Plain(json.RawMessage(`{"type":"object","properties":{"id":{"type":"integer"}},
		"required":["id"]}`))))
	for args, want := range map[string]string{
		`{}`:                  "the argument id is missing",
		`{"id":"x"}`:          `id must be a whole number, not "x"`,
		`{"id":"5"}`:          "",
		`{"id":5}`:            "",
		`{"id":5,"ref":"e1"}`: "", // which it does not forbid
	} {
		got, err := s.Accept(json.RawMessage(args))
		if err == nil && want == "" {
			continue
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s: %s, %v, want %s", args, got, err, want)
		}
	}
	if got := Words("a\tb\u202e\x00 c"+strings.Repeat("d", 9), 6); got != "a b cd…" {
		t.Errorf("the words are %q", got)
	}
}

// Whatever a page has written, the result is a JSON Schema, is read as one here, and stays the same.
func FuzzPlain(f *testing.F) {
	f.Add([]byte(tool))
	f.Add([]byte(`{"type":"object","properties":{"a":{"oneOf":[{"const":"x"}]},"a":{"const":1}}}`))
	f.Add([]byte(`{"properties":{"a":{"type":"number","minimum":1e999}},"required":{"a":1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		plain := Plain(raw)
		s := &Schema{}
		if err := json.Unmarshal(plain, s); err != nil || s.Type != "object" || !utf8.Valid(plain) {
			t.Fatalf("%v of %s: %s", err, raw, plain)
		}
		if again := Plain(plain); string(again) != string(plain) {
			t.Fatalf("%s becomes %s", plain, again)
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(plain)))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource("plain.json", value); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Compile("plain.json"); err != nil {
			t.Fatalf("%s is not a JSON Schema: %v", plain, err)
		}
	})
}
