package tokens

import (
	"crypto/sha256"
	"reflect"
	"strings"
	"testing"
)

func one(name, token string, line int) Token {
	return Token{Name: name, Line: line, sum: sha256.Sum256([]byte(token))}
}

// A file has a token a line, and a single word is a token, too.
func TestParse(t *testing.T) {
	t.Parallel()
	all, err := Parse("# of the team\r\nci  ci-ci-ci-ci-ci-ci pools=chrome,firefox max=20 # nightly\r\n\r\n" +
		"ops ops-ops-ops-ops-ops admin trust\n")
	if err != nil {
		t.Fatal(err)
	}
	ci := one("ci", "ci-ci-ci-ci-ci-ci", 2)
	ci.Pools, ci.Max = []string{"chrome", "firefox"}, 20
	ops := one("ops", "ops-ops-ops-ops-ops", 4)
	ops.Admin, ops.Trust = true, true
	if want := []Token{ci, ops}; !reflect.DeepEqual(all, want) {
		t.Errorf("%+v", all)
	}
	f := &File{}
	f.all.Store(&all)
	if got := f.Find([]string{"x", "ops-ops-ops-ops-ops"}); got == nil || got.Name != "ops" || !f.Has(got) {
		t.Errorf("found %+v", got)
	}
	if f.Find([]string{"", "ci"}) != nil || f.Has(new(one("ci", "another", 2))) {
		t.Error("a word that is no token is one")
	}
	if all, err := Parse(" sesame\n"); err != nil || all[0].Name != "default" {
		t.Errorf("one word: %+v, %v", all, err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const token = "sixteen-characters"
	for text, want := range map[string]string{
		"":                                    "no token",
		"\n# nothing\n":                       "no token",
		"a&b":                                 "line 1",
		"ci " + token + "\nci other-" + token: "line 2: the name ci is there already",
		"ci " + token + "\n\nx " + token:      "line 3: x has the token of ci",
		"ci short":                            "less than 16 characters",
		token + " ci":                         "less than 16 characters", // the wrong way round
		"c/i " + token:                        "line 1: a name has letters",
		"ci " + token + " max=0":              "max is a number from 1 on",
		"ci " + token + " max=1 max=2":        "max is there twice",
		"ci " + token + " root":               "after the token come",
		"ci " + token + " pools=":             "after the token come",
		"ci " + token + " admin=yes":          "after the token come",
		"ci " + token + "&x":                  "has an &",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(),
			token) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
