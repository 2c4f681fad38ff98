package cli

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
)

// Members are added to each object that lacks them, however its line comes; what is no object becomes a message first.
func TestMembersOfMessages(t *testing.T) {
	for in, want := range map[string]string{
		`{"msg":"a"}`:                `{"msg":"a","lease":"l","n":["x"]}`,
		`{"msg":"a","lease":"mine"}`: `{"msg":"a","lease":"mine","n":["x"]}`,
		`{"msg":"\"lease\":"} `:      `{"msg":"\"lease\":","lease":"l","n":["x"]}`,
		`{"a":{"b":{}}}`:             `{"a":{"b":{}},"lease":"l","n":["x"]}`,
		`{ }`:                        `{ "lease":"l","n":["x"]}`,
	} {
		for cut := range len(in) {
			var out bytes.Buffer
			j := &jsonLines{w: &out, name: "p", about: func() []slog.Attr {
				return []slog.Attr{slog.String("lease", "l"), slog.Any("n", []string{"x"})}
			}}
			fmt.Fprint(j, in[:cut])
			fmt.Fprint(j, in[cut:]+"\n")
			if out.String() != want+"\n" {
				t.Errorf("%s, cut at %d: %s, not %s", in, cut, out.String(), want)
			}
		}
	}
	var out bytes.Buffer
	j := &jsonLines{w: &out, name: "p"}
	j.tell(slog.String("owner", "bpool A/0"))
	fmt.Fprint(j, "{no object}\n")
	if want := `"msg":"{no object}","program":"p","owner":"bpool A/0"}` + "\n"; !bytes.HasSuffix(out.Bytes(),
		[]byte(want)) {
		t.Errorf("%s, not …%s", out.String(), want)
	}
}
