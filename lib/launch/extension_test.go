package launch

import (
	"slices"
	"testing"

	"btools/lib/record"
)

func TestWithExtension(t *testing.T) {
	user := []string{"--disable-extensions", loadSwitch + "/b,/c", exceptSwitch + "/b", "about:blank"}
	for _, c := range []struct {
		browser      record.Browser
		args, byPipe []string
	}{
		{record.Browser{Type: record.Chromium},
			[]string{"--disable-extensions", "about:blank", loadSwitch + "/a,/b,/c", exceptSwitch + "/a,/b,/c"}, nil},
		{record.Browser{Type: record.Chrome, Channel: "testing"},
			[]string{"--disable-extensions", "about:blank", loadSwitch + "/a,/b,/c", exceptSwitch + "/a,/b,/c"}, nil},
		{record.Browser{Type: record.Chrome, Channel: "stable"},
			[]string{"about:blank", "--enable-unsafe-extension-debugging"}, []string{"/a", "/b", "/c"}},
		{record.Browser{Type: record.Edge},
			[]string{"about:blank", "--enable-unsafe-extension-debugging"}, []string{"/a", "/b", "/c"}},
	} {
		args, byPipe := (&Spec{Browser: c.browser}).withExtension(user, "/a")
		if !slices.Equal(args, c.args) || !slices.Equal(byPipe, c.byPipe) {
			t.Errorf("%v: %v, by the pipe %v", c.browser, args, byPipe)
		}
	}
	if user[0] != "--disable-extensions" {
		t.Error("the arguments were changed in place")
	}
}
