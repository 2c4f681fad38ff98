package upstream

import (
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		"http://h":                       "http://h:80",
		"https://u:p@h":                  "https://h:443",
		"socks5://u:p@[::1]:9":           "socks5://[::1]:9",
		"socks5h://h":                    "socks5://h:1080",
		"http://a%40b:p%3A%2F@h:3128/":   "http://h:3128",
		"direct://":                      "direct://",
		"HTTP://H:1":                     "http://H:1",
		"":                               "not the URL",
		"h:8080":                         "not the URL",
		"ftp://s3cret@h":                 "not the URL",
		"http://":                        "not the URL",
		"http://u:s3cret@h:port":         "not the URL",
		"http://u:s3cret%zz@h":           "not the URL",
		"http://u:s3cret@h/path":         "no path",
		"http://u:s3cr?et@h":             "not the URL",
		"socks5://s3cret@h":              "1 to 255",
		"socks5://:s3cret@h":             "1 to 255",
		"http://u:s3cret@h:80\nX: y":     "not the URL",
		"http://u:p@h:80/?q":             "no path",
		"socks5://u:" + long + "@h:1080": "1 to 255",
	} {
		u, err := Parse(s)
		got := fmt.Sprintf("%v %+v %#v %s", u, u, u, u)
		if err != nil {
			if got = err.Error(); !strings.Contains(got, want) {
				t.Errorf("%q: %v, want %q", s, err, want)
			}
		} else if got != strings.Join([]string{want, want, want, want}, " ") {
			t.Errorf("%q prints as %s, want %s", s, got, want)
		}
		if strings.Contains(got, "s3cret") || strings.Contains(got, "p@") {
			t.Errorf("%q: the password is in %q", s, got)
		}
		if err == nil && u != nil {
			if again, err := Parse(u.Secret()); err != nil || again.Secret() != u.Secret() {
				t.Errorf("%q: its secret form is %q", s, u.Secret())
			}
		}
	}
}

var long = strings.Repeat("x", 256)
