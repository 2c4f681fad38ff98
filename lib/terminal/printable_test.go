package terminal

import "testing"

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
