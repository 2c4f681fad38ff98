package tail

import (
	"slices"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	for _, c := range []struct {
		name    string
		written []string
		want    []string
	}{
		{"nothing", nil, nil},
		{"pieces of lines", []string{"o", "ne\r\n\ntw", "o\n  \n\tthree"}, []string{"one", "two", "\tthree"}},
		{"more than is kept", []string{"first\n", "second\n", "third\n", "fourth\n"}, []string{"third", "fourth"}},
		{"much more", []string{strings.Repeat("line\n", 100)}, []string{"line", "line", "line"}},
		{"one endless line", []string{strings.Repeat("x", 95), "0123456789"}, []string{"xxxxxxxxx0123456789"}},
		{"one endless line with its end", []string{strings.Repeat("x", 95), "012345678\n"},
			[]string{"xxxxxxxxx012345678"}},
	} {
		l := &Tail{Max: 19}
		for _, s := range c.written {
			if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
				t.Errorf("%s: wrote %d of %q, %v", c.name, n, s, err)
			}
		}
		if got := l.Lines(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Whatever is written, no more than the bound is kept, and it is its end.
func FuzzTail(f *testing.F) {
	f.Add("one\ntwo\nthree and more\n", 3)
	f.Fuzz(func(t *testing.T, text string, piece int) {
		l := &Tail{Max: 19}
		for rest := text; rest != ""; {
			n := min(max(piece, 1), len(rest))
			l.Write([]byte(rest[:n]))
			rest = rest[n:]
			if cap(l.b) > 64+2*n {
				t.Fatalf("holds %d bytes after a write of %d", cap(l.b), n)
			}
		}
		if got := l.String(); len(got) > 19 || !strings.HasSuffix(text, got) || text != "" && got == "" {
			t.Errorf("%q: kept %q", text, got)
		}
	})
}

// Messages of a program of ours are the same in both forms.
func TestText(t *testing.T) {
	got := Text(`{"a":1}` + "\n" + `{"level":"ERROR","msg":"one\ntwo","program":"b","hint":"three"}` + "\nb: four\r\n")
	if want := []string{`{"a":1}`, "b: one", "two", "b: hint: three", "b: four"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
