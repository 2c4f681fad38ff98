package terminal

import (
	"strings"
	"testing"
)

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain, über, 日本\tand\nmore": "plain, über, 日本\tand\nmore",
		"\x1b]0;title\a\x1b[2J":      `\x1b]0;title\x07\x1b[2J`,
		"over\rwritten":              `over\x0dwritten`,
		"\u009b2J":                   `\x9b2J`,
		"\xff\x9b":                   `\xff\x9b`,
		"file\u202egpj.exe":          `file\u202egpj.exe`,
		"\x7f":                       `\x7f`,
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

// What is cut within a character is whole again behind the pieces.
func TestPrintablePieces(t *testing.T) {
	const text = "ä日𝄞!"
	for i := range len(text) {
		got := string(Escape([]byte(text[:i]), false)) + string(Escape([]byte(text[i:]), false))
		if got != text {
			t.Errorf("cut at %d: %q", i, got)
		}
	}
}

// What a terminal takes for a command is escaped in JSON as JSON has it: the value stays the same.
func TestEscapeJSON(t *testing.T) {
	const given, want = "{\"a\":\"x\u009b7m\u202e é\u007f\"}\n", `{"a":"x\u009b7m\u202e é\u007f"}` + "\n"
	if got := string(EscapeJSON([]byte(given))); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in    string
		width int
		want  string
	}{
		{"plain", 10, "plain"}, {"plain", 3, "pla"}, {" two\n words ", 20, "two words"}, {"日本語", 5, "日本"},
		{"\x1b[2J", 20, `\x1b[2J`}, {"a\u202eb", 20, `a\u202eb`}, {"e\u0301e", 1, "e\u0301"},
		{"x", 0, ""}, {"x", -1, ""}, {"a–b", 3, "a–b"},
	} {
		if got := Cut(c.in, c.width); got != c.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.in, c.width, got, c.want)
		}
	}
	if got := Cut("a"+strings.Repeat("\u0301", 1<<20), 10); len(got) > 10*maxBytes+10 {
		t.Errorf("%d bytes in 10 columns", len(got))
	}
}
