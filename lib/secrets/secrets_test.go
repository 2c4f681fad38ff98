package secrets

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"btools/lib/exit"
)

const file = `# for tests
# origins: https://shop.example https://*.shop.example
PASS='p+ss "w/rd" <&>\%41é'
export USER=anna@shop.example # who
# origins: http://localhost:3000, *.test
TOKEN=tok_0123456789abcdef
`

func read(t *testing.T, text string) (*Set, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets.env")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(path)
	if err != nil {
		if e, ok := err.(*exit.Error); !ok || e.Code != exit.Config {
			t.Errorf("%v has not the exit code of a configuration", err)
		}
		err = fmt.Errorf("%s", strings.ReplaceAll(err.Error(), path, "FILE"))
	}
	return s, err
}

// A file that cannot be used names the line and the way out, and shows none of its text.
func TestBadFiles(t *testing.T) {
	for text, want := range map[string]string{
		"A=hidden-1\n":                                              "FILE:1: no line before A says where",
		"# origins: https://a.b\nhidden text\n":                     "FILE:2: its text is not NAME=VALUE",
		"# origins: https://a.b\nA=\"hidden\n":                      "FILE:2: the quote before its text is not closed",
		"# origins: https://a.b\nA='hidden1' hidden2\n":             "FILE:2: its text follows the closing quote",
		"# origins: https://a.b\nA=\n":                              "FILE:2: a name without a value",
		"# origins: https://a.b\n# Origin: https://b.c\nA=hidden-1": `FILE:2: write "# origins:"`,
		"# origins: https://a.b\n\nA=' hid  d '\n":                  "FILE:3: A has fewer than 6 characters",
		"# origins: https://a.b\nA=hidden-1\nA=hidden-22\n":         "FILE:3: A stands before, too",
		"# origins: ftp://a.b\nA=hidden-1":                          "FILE:1: the origin ftp://a.b has the scheme",
		"# origins: https://a.b/login\nA=hidden-1":                  "FILE:1: the origin https://a.b/login has a path",
		"# origins:\nA=hidden-1":                                    `FILE:1: there is no origin after "origins:"`,
		"# nothing":                                                 "FILE: there is no NAME=VALUE",
		"# origins: a.b\nA=hidden\xff1":                             "FILE:2: A is not UTF-8",
	} {
		_, err := read(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hid") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "secrets.env")
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
	os.WriteFile(path, []byte(file), 0o640)
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "whose mode is 0640: chmod 600 "+path) {
		t.Error(err)
	}
}

func TestResolve(t *testing.T) {
	s, err := read(t, file)
	if err != nil {
		t.Fatal(err)
	}
	for origin, may := range map[string]bool{"https://shop.example": true, "https://www.shop.example": true,
		"http://shop.example": false, "https://shop.example:8443": false, "https://shop.example.evil.test": false,
		"https://evilshop.example": false, "null": false, "": false, "file://": false} {
		got, err := s.Resolve("{{USER}}, {{ USER }} {{}} {{1}}", origin)
		if may && (err != nil || got != "anna@shop.example, {{ USER }} {{}} {{1}}") {
			t.Errorf("%s: %q, %v", origin, got, err)
		}
		why := "is not for " + origin + ": the file of --secrets allows it on https://shop.example, https://*.shop."
		if !may && (err == nil || got != "" || !strings.Contains(err.Error(), why)) {
			t.Errorf("%s: %q, %v", origin, got, err)
		}
	}
	const token = "tok_0123456789abcdef"
	if got, err := s.Resolve("x{{TOKEN}}{{TOKEN}}", "https://a.test:8443"); got != "x"+token+token {
		t.Error(got, err)
	}
	if _, err := s.Resolve("{{TOKN}}", "http://localhost:3000"); err == nil ||
		err.Error() != "there is no secret {{TOKN}}: did you mean {{TOKEN}}? (there are PASS, USER, TOKEN)" {
		t.Error(err)
	}
	if names, err := s.Names("{{PASS}} and {{NONE}}"); len(names) != 1 || names[0] != "PASS" || err == nil {
		t.Error(names, err)
	}
}

// latin is a text as btoa and escape read it.
func latin(s string) (b []byte) {
	for _, r := range s {
		b = append(b, byte(r))
	}
	return b
}

func TestMask(t *testing.T) {
	s, err := read(t, file)
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	percent := func(b []byte, format string) (out string) {
		for _, c := range b {
			out += fmt.Sprintf(format, c)
		}
		return out
	}
	for name, v := range map[string]string{"PASS": `p+ss "w/rd" <&>\%41é`, "USER": "anna@shop.example",
		"TOKEN": "tok_0123456789abcdef"} {
		ways := map[string]string{"as it is": v, "upper case": strings.ToUpper(v), "form": url.QueryEscape(v),
			"path": url.PathEscape(v), "twice": url.QueryEscape(url.QueryEscape(v)),
			"thrice":    url.PathEscape(url.QueryEscape(url.PathEscape(v))),
			"lower hex": percent([]byte(v), "%%%02x"), "upper hex": percent([]byte(v), "%%%02X"),
			"escape": percent(latin(v), "%%%02X"),
			"JSON":   quoted(v), "JSON in JSON": quoted(quoted(v)), "JSON in JSON in JSON": quoted(quoted(quoted(v))),
			"HTML": html.EscapeString(v), "HTML twice": html.EscapeString(html.EscapeString(v)),
			"JSON in HTML": html.EscapeString(quoted(v)), "HTML in JSON": quoted(html.EscapeString(v)),
			"Go": fmt.Sprintf("%+q", v), "white space": strings.ReplaceAll(v, " ", " \u00a0\n"),
			"numbers": percent(latin(v), "&#%d;"), "hex numbers": percent(latin(v), "&#x%X;")}
		for _, around := range []string{"", "x", "xy", "xyz"} {
			for _, b := range [][]byte{[]byte(around + v + around), latin(around + v + around)} {
				for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
					ways[fmt.Sprintf("base64 %d %p %d", len(around), e, len(b))] = e.EncodeToString(b)
				}
				ways["base64 in a URL"+around] = url.QueryEscape(base64.StdEncoding.EncodeToString(b))
			}
		}
		for way, text := range ways {
			got := s.Mask("before " + text + " after")
			rest := strings.NewReplacer("before ", "", " after", "", `"`, "", `\`, "", "&#34;", "", "&amp;", "",
				"#34;", "").Replace(got)
			if strings.HasPrefix(way, "base64") { // a few characters around it stay
				if !strings.Contains(rest, "{{"+name+"}}") || len(rest) > len(name)+4+14 {
					t.Errorf("%s, %s: %s", name, way, got)
				}
				if again := s.Mask(got); again != got {
					t.Errorf("%s, %s: %s is masked again: %s", name, way, got, again)
				}
			} else if rest != "{{"+name+"}}" {
				t.Errorf("%s, %s: %s of %s", name, way, got, text)
			}
			var back struct{ A, B string }
			raw, _ := json.Marshal(map[string]string{"A": text, "B": "b"})
			if err := json.Unmarshal(s.MaskJSON(raw), &back); err != nil || back.A != s.Mask(text) || back.B != "b" {
				t.Errorf("%s: %s, %v", raw, s.MaskJSON(raw), err)
			}
		}
	}
	for text, want := range map[string]string{
		"tok_0123456…": "{{TOKEN}}…", "tok_0123…, tok_…": "{{TOKEN}}…, {{TOKEN}}…", "to…": "to…",
		"tok_0123":                       "tok_0123",
		"tok_0123456789abcde":            "tok_0123456789abcde",
		"{{TOKEN}} tok_0123456789abcdef": "{{TOKEN}} {{TOKEN}}", "": "", "%": "%", "a&#;b\\": "a&#;b\\",
		"%25" + strings.Repeat("25", 9): "%25" + strings.Repeat("25", 9),
	} {
		if got := s.Mask(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	n, _ := read(t, "# origins: a.b\nPIN=123456\nLINE=\"nothing\n more\"")
	if got := string(n.MaskJSON([]byte(`{"a":123456,"b":[-1234567,"\nothing more"],"c":"nothing more"}`))); got !=
		`{"a":"{{PIN}}","b":["-{{PIN}}7","\nothing more"],"c":"{{LINE}}"}` {
		t.Error(got)
	}
	if got := n.Mask("1234 56, 12-34-56 1 23456 12345x"); got != "{{PIN}}, {{PIN}} {{PIN}} 12345x" {
		t.Error(got)
	}
	var none *Set
	if none.Mask("x") != "x" || string(none.MaskJSON([]byte(`"x"`))) != `"x"` {
		t.Error("nothing is not nothing")
	}
}

// A megabyte takes milliseconds, whatever is in it.
func TestMaskIsLinear(t *testing.T) {
	s, _ := read(t, file)
	for what, text := range map[string]string{"words": "the token of Anna is at the shop, ", "escapes": `\"%25&amp;+`,
		"almost": "tok_0123456789abcde ", "spaces": "p+ss   ", "cut": "tok_", "base64": "dG9rXzAxMjM0NTY3ODlhYmNkZWY",
		"backslashes": `\`, "percent": "%", "twos": "%2525", "amps": "&amp;", "opens": "{{TOKE"} {
		took := func(n int) time.Duration {
			text := strings.Repeat(text, n/len(text))
			begin := time.Now()
			s.Mask(text)
			return time.Since(begin)
		}
		took(1 << 16)
		small, large := took(1<<14), took(1<<18)
		t.Logf("%s: %v for 256 KiB", what, large)
		if large > 50*small && large > time.Second {
			t.Errorf("%s: %v for 16 KiB, %v for 256 KiB", what, small, large)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add("x", "hunter22")
	f.Add("\\", `a\"b\\cd`)
	f.Fuzz(func(t *testing.T, around, value string) {
		quoted := "'" + value + "'"
		s, err := parse("f", "# origins: a.b\nA="+quoted)
		if err != nil {
			return
		}
		text := around + value + around
		got := s.Mask(text)
		if strings.Contains(got, s.all[0].value) && !strings.Contains("{{A}}", s.all[0].value) {
			t.Errorf("%q: %q", text, got)
		}
		raw, _ := json.Marshal(text)
		var back string
		if err := json.Unmarshal(s.MaskJSON(raw), &back); err != nil {
			t.Errorf("%s: %s, %v", raw, s.MaskJSON(raw), err)
		}
	})
}
