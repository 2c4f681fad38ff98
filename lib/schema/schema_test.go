package schema

import (
	"encoding/json"
	"testing"
)

// An agent is told in plain words what is wrong with its arguments.
func TestArguments(t *testing.T) {
	s := &Schema{}
	if err := json.Unmarshal([]byte(`{"type":"object","properties":{"kind":{"type":"string","enum":["a","b"]},
		"on":{"type":"boolean"},"n":{"type":"integer","minimum":-1,"maximum":9},
		"x":{"type":"number"},"or":{"anyOf":[{"type":"string","enum":["y"]},{"type":"null"}]},
		"list":{"type":"array","minItems":1,"items":{"type":"object",
		"properties":{"tool":{"type":"string"},"args":{"type":"object"}},"required":["tool"]}}}}`), s); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":     "",
		"null": "",
		`{"kind":"a","on":true,"n":-1,"list":[{"tool":"x","args":{"any":1}}]}`: "",
		`{"Kind":"a"}`:                    `there is no argument "Kind": did you mean kind?`,
		`{"whatever":1}`:                  `there is no argument "whatever": there are kind, list, n, on, or, x`,
		`{"kind":"./evil.sh"}`:            `kind must be one of a, b, not "./evil.sh"`,
		`{"kind":5}`:                      `kind must be a text, not 5`,
		`{"kind":null}`:                   `kind must be a text, not null`,
		`{"on":"true"}`:                   `on must be true or false, not "true"`,
		`{"on":null}`:                     `on must be true or false, not null`,
		`{"n":"1"}`:                       `n must be a whole number, not "1"`,
		`{"n":1.5}`:                       `n must be a whole number, not 1.5`,
		`{"n":10}`:                        `n must be at most 9, not 10`,
		`{"n":-2}`:                        `n must be at least -1, not -2`,
		`{"x":1.5}`:                       "",
		`{"x":"1.5"}`:                     `x must be a number, not "1.5"`,
		`{"or":null}`:                     "",
		`{"or":"y"}`:                      "",
		`{"or":"z"}`:                      `or must be one of y, not "z"`,
		`{"list":"echo"}`:                 `list must be a list, not "echo"`,
		`{"list":[]}`:                     `list is empty`,
		`{"list":[{"tool":"x"},{}]}`:      `the argument list[1].tool is missing`,
		`{"list":[{"tool":"x","ags":1}]}`: `there is no argument "ags" in list[0]: did you mean args?`,
		`{"list":[{"tool":1}]}`:           `list[0].tool must be a text, not 1`,
		`[]`:                              `what is given as arguments must be an object, not []`,
	} {
		err := s.Check(json.RawMessage(args))
		if got := ""; err != nil && err.Error() != want || err == nil && want != got {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	none := &Schema{}
	json.Unmarshal([]byte(`{"type":"object","properties":{}}`), none)
	const want = `there is no argument "x": there are none`
	if err := none.Check(json.RawMessage(`{"x":1}`)); err == nil || err.Error() != want {
		t.Errorf("an argument of a tool without any: %v, want %s", err, want)
	}
}
