package virtual

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ filter, wants, not string }{
		{"", "page iframe worker service_worker", "tab browser"},
		{"null", "page", "tab"},
		{"[]", "", "page tab browser"},
		{"[{}]", "page tab browser", ""},
		{`[{"type":"page"}]`, "page", "tab worker"},
		{`[{"type":"page","exclude":true},{}]`, "tab worker", "page"},
		{`[{},{"type":"page","exclude":true}]`, "page", ""},
		{`[{"type":"page","exclude":true}]`, "", "page tab"},
	} {
		f, err := newFilter(json.RawMessage(test.filter))
		if test.filter == "" {
			f, err = newFilter(nil)
		}
		if err != nil {
			t.Errorf("%s: %v", test.filter, err)
		}
		for _, typ := range strings.Fields(test.wants) {
			if !f.matches(typ) {
				t.Errorf("%s does not want %s", test.filter, typ)
			}
		}
		for _, typ := range strings.Fields(test.not) {
			if f.matches(typ) {
				t.Errorf("%s wants %s", test.filter, typ)
			}
		}
	}
	for _, wrong := range []string{"5", `{"type":"page"}`, `[5]`, `[{"type":5}]`,
		"[" + strings.Repeat("{},", maxFilter) + "{}]"} {
		if _, err := newFilter(json.RawMessage(wrong)); err == nil {
			t.Errorf("%.50s is taken", wrong)
		}
	}
}

func TestObjectWith(t *testing.T) {
	t.Parallel()
	odd := "a\"\\\n\u2028<é"
	if object := objectWith(odd, quote(odd)); !json.Valid(object) {
		t.Errorf("%s", object)
	}
}
