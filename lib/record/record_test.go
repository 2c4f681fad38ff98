package record

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestUnknownMembersKeepOrderAndBytes(t *testing.T) {
	const in = `{"z":1.0,"v":1,"a":{"n":12345678901234567890,"s":"<&>"}}`
	r, err := Parse([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	r.MustSet("port", 7)
	if got, want := string(r.Line()), strings.TrimSuffix(in, "}")+`,"port":7}`+"\n"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
}

func TestReader(t *testing.T) {
	r := NewReader(strings.NewReader("\n{\"v\":1}\n\n{\"x\":2}"))
	for range 2 {
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Read(); err != io.EOF {
		t.Errorf("got %v at the end", err)
	}
	for _, bad := range []string{"[]", "{", "{}{}", `{"a":1,}`, `{,"a":1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{"a":1}x`,
		`{a:1}`, "\x00", `{"v":2}`, `{"v":"x"}`, strings.Repeat(" ", MaxSize+1)} {
		if _, err := NewReader(strings.NewReader(bad)).Read(); !errors.Is(err, ErrData) {
			t.Errorf("%.10q: %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"v":1,"browser":{"type":"chrome"},"x":[1,{"y":null}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err != nil {
			return
		}
		if !json.Valid(b) {
			t.Errorf("%q is not JSON, and accepted", b)
		}
		again, err := Parse(r.Line())
		if err != nil || string(again.Line()) != string(r.Line()) {
			t.Errorf("%q does not survive: %q, %v", b, r.Line(), err)
		}
	})
}
