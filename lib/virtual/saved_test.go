package virtual

import (
	"strings"
	"testing"
)

var snapshots = map[string]string{ // errors, by what they are about
	`{"state":{"cookies":[],"origins":[]},"tabs":[{"url":"http://a/","page":{"origin":"http://a","items":[]}}]}`: "",
	`{"state":{},"tabs":[],"later":1}`: "", `{"state":{},"tabs":null}`: "",
	``: "form", `{`: "form", `[]`: "form", `{"tabs":[]}`: "JSON", `{"state":{"cookies":[{}]},"tabs":[]}`: "cookies[0]",
	`{"state":{},"tabs":[{"url":1}]}`: "form", `{"state":{},"tabs":{}}`: "form", `{"state":1,"tabs":[]}`: "form",
	`{"state":{},"tabs":[` + strings.Repeat(`{},`, maxTabs) + `{}]}`: "1001 tabs",
}

// What another program has saved is checked; errors say nothing of it.
func TestReadSnapshot(t *testing.T) {
	for text, want := range snapshots {
		s, err := ReadSnapshot([]byte(text))
		switch {
		case err == nil && (want != "" || s.State == nil || s.State.Cookies == nil):
			t.Errorf("%.80s is taken", text)
		case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
			t.Errorf("%.80s: %v", text, err)
		}
	}
}

func FuzzReadSnapshot(f *testing.F) {
	for text := range snapshots {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ReadSnapshot(b)
		if err != nil {
			return
		}
		saved, err := s.Save(t.TempDir(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := saved.Load(); err != nil {
			t.Error(err)
		}
	})
}
