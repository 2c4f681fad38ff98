package schema

import (
	"encoding/json"
	"testing"
)

func parse(t *testing.T, text string) *Schema {
	t.Helper()
	s := &Schema{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

const tool = `{"type":"object","properties":{"kind":{"type":"string","enum":["a","b"]},
	"on":{"type":"boolean"},"n":{"type":"integer","minimum":-1,"maximum":9},
	"x":{"type":"number"},"or":{"anyOf":[{"type":"string","enum":["y"]},{"type":"null"}]},
	"text":{"type":"string"},"target":{"type":"string"},"words":{"type":"array","items":{"type":"string"}},
	"list":{"type":"array","minItems":1,"items":{"type":"object",
	"properties":{"tool":{"type":"string"},"args":{"type":"object"}},"required":["tool"]}}}}`

// An agent is told in plain words what is wrong with its arguments.
func TestArguments(t *testing.T) {
	s := parse(t, tool)
	const has = "there are kind, list, n, on, or, target, text, words, x"
	for args, want := range map[string]string{
		`{"Kind":"a"}`:                    `there is no argument "Kind": did you mean kind?`,
		`{"whatever":1}`:                  `there is no argument "whatever": ` + has,
		`{"kind":"./evil.sh"}`:            `kind must be one of a, b, not "./evil.sh"`,
		`{"kind":5}`:                      `kind must be a text, not 5`,
		`{"on":"perhaps"}`:                `on must be true or false, not "perhaps"`,
		`{"on":"truely"}`:                 `on must be true or false, not "truely"`,
		`{"on":1}`:                        `on must be true or false, not 1`,
		`{"n":"1.5"}`:                     `n must be a whole number, not 1.5`,
		`{"n":"one"}`:                     `n must be a whole number, not "one"`,
		`{"n":""}`:                        `n must be a whole number, not ""`,
		`{"n":1.5}`:                       `n must be a whole number, not 1.5`,
		`{"n":10}`:                        `n must be at most 9, not 10`,
		`{"n":-2}`:                        `n must be at least -1, not -2`,
		`{"or":"z"}`:                      `or must be one of y, not "z"`,
		`{"list":"echo"}`:                 `list must be a list, not "echo"`,
		`{"list":"[1"}`:                   `list must be a list, not "[1"`,
		`{"list":[]}`:                     `list is empty`,
		`{"list":[{"tool":"x"},{}]}`:      `the argument list[1].tool is missing`,
		`{"list":[{"tool":"x","ags":1}]}`: `there is no argument "ags" in list[0]: did you mean args?`,
		`{"list":[{"tool":true}]}`:        `list[0].tool must be a text, not true`,
		`{"list":[{"tool":null}]}`:        `list[0].tool must be a text, not null`,
		`[]`:                              `what is given as arguments must be an object, not []`,
	} {
		if got, err := s.Accept(json.RawMessage(args)); err == nil || err.Error() != want {
			t.Errorf("%s: %s, %v, want %s", args, got, err, want)
		}
	}
	const want = `there is no argument "x": there are none`
	_, err := parse(t, `{"type":"object","properties":{}}`).Accept(json.RawMessage(`{"x":1}`))
	if err == nil || err.Error() != want {
		t.Errorf("an argument of a tool without any: %v, want %s", err, want)
	}
	const near = `there is no argument "sesion_id": did you mean session_id?`
	if _, err := s.Accept(json.RawMessage(`{"sesion_id":1}`), "session_id"); err == nil || err.Error() != near {
		t.Errorf("an argument that the host has added: %v, want %s", err, near)
	}
}

// What can mean only one thing is taken for that.
func TestMeantArguments(t *testing.T) {
	s := parse(t, tool)
	for args, want := range map[string]string{
		"":     "{}",
		"null": "{}",
		`{"kind":"a","on":true,"n":-1,"x":1.5,"list":[{"tool":"x","args":{"any":1}}]}`: "",
		`{"or":null}`:                         "",
		`{"or":"y"}`:                          "",
		`{"kind":null,"text":null,"on":null}`: `{}`,
		`{"on":"true","n":" 7 ","x":"1.5"}`:   `{"on":true,"n":7,"x":1.5}`,
		`{"text":12345678901234567890}`:       `{"text":"12345678901234567890"}`,
		`{"text":"7"}`:                        "",
		`{"list":"[{\"tool\":\"x\",\"args\":\"{\\\"a\\\":1}\"}]"}`: `{"list":[{"tool":"x","args":{"a":1}}]}`,
		`{"words":"one"}`:            `{"words":["one"]}`,
		`{"words":"[\"one\"]"}`:      `{"words":["one"]}`,
		`{"ref":"e1"}`:               `{"target":"e1"}`,
		`{"ref":"e1","target":"e2"}`: `{"target":"e2"}`,
	} {
		if want == "" {
			want = args
		}
		if got, err := s.Accept(json.RawMessage(args)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", args, got, err, want)
		}
	}
}
