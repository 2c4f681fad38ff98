package shellwords

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"":                     nil,
		" \t\n":                nil,
		"a b":                  {"a", "b"},
		`'' ""`:                {"", ""},
		`a'b c'd "e f"g`:       {"ab cd", "e fg"},
		`C:\\x "C:\x" 'C:\x'`:  {`C:\x`, `C:\x`, `C:\x`},
		`"\$ \" \\ \a" \a \ b`: {`$ " \ \a`, "a", " b"},
		"a\\\nb \"c\\\nd\"":    {"ab", "cd"},
	} {
		if got, err := Split(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("Split(%q) = %q, %v, want %q", line, got, err, want)
		}
	}
	for line, want := range map[string]string{`a \`: "backslash", `"a`: "quote", `'a\'b'`: "quote", `"\`: "backslash"} {
		if got, err := Split(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Split(%q) = %q, %v", line, got, err)
		}
	}
}

// A shell splits in the same way.
func TestAsAShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var lines []string
	for range 3000 {
		var b strings.Builder
		for range random.IntN(10) {
			b.WriteByte(` a'"\b`[random.IntN(6)])
		}
		if _, err := Split(b.String()); err == nil {
			lines = append(lines, b.String())
		}
	}
	cmd := exec.Command(sh, "-c",
		`while IFS= read -r line; do eval "set -- $line"; for word; do printf '%s\1' "$word"; done; echo; done`)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := bytes.Split(bytes.TrimSuffix(out, []byte("\n")), []byte("\n"))
	if len(got) != len(lines) {
		t.Fatalf("%d lines, want %d", len(got), len(lines))
	}
	for i, line := range lines {
		words, _ := Split(line)
		var want strings.Builder
		for _, w := range words {
			want.WriteString(w + "\x01")
		}
		if want.String() != string(got[i]) {
			t.Errorf("Split(%q) = %q, a shell has %q", line, words, got[i])
		}
	}
}

// Words that are quoted come out as they went in.
func FuzzSplit(f *testing.F) {
	f.Add("a b", `c"d`)
	f.Fuzz(func(t *testing.T, a, b string) {
		quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
		got, err := Split(quote(a) + " " + quote(b))
		if err != nil || len(got) != 2 || got[0] != a || got[1] != b {
			t.Errorf("%q, %v", got, err)
		}
		Split(a) // whatever it is
	})
}
