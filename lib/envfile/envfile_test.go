package envfile

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The first example of the specification of pools, and what else such files
// have.
func TestRead(t *testing.T) {
	path := t.TempDir() + "/.env"
	os.WriteFile(path, []byte("\ufeff"+`# .env
# Global defaults apply to all pools
PW_MCP_PROXY_HEADLESS=true
PW_MCP_PROXY_TIMEOUT=30000   # as a comment

; and another one
PW_MCP_PROXY__DEFAULT_INSTANCES=3`+"\r"+`
export EXPORTED=1
  SPACED = a b  
EMPTY=
NONE= # nothing
HASH=a#b
DOUBLE="a \"b\" \\ \$c \d\tx" # a comment
SINGLE='a "b" \n #c'
URL=https://example.org/?a=b&c='d'
PATH_=C:\Users\x
LINES="one
two \
more"
export_not=5
exported=6
LAST=x`), 0o600)
	all, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range all {
		got = append(got, v.Name+"="+v.Value)
	}
	want := []string{"PW_MCP_PROXY_HEADLESS=true", "PW_MCP_PROXY_TIMEOUT=30000", "PW_MCP_PROXY__DEFAULT_INSTANCES=3",
		"EXPORTED=1", "SPACED=a b", "EMPTY=", "NONE=", "HASH=a#b",
		"DOUBLE=a \"b\" \\ $c \\d\tx", `SINGLE=a "b" \n #c`, "URL=https://example.org/?a=b&c='d'", `PATH_=C:\Users\x`,
		"LINES=one\ntwo more", "export_not=5", "exported=6", "LAST=x"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	if s := all[len(all)-1].Source; s != path+":22" {
		t.Error("the last one is at", s)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"A=1\nnonsense\n":       `f:2: "nonsense" is not NAME=VALUE`,
		"1A=2":                  `f:1: "1A=2" is not NAME=VALUE`,
		"A B=2":                 "is not NAME=VALUE",
		"=2":                    "is not NAME=VALUE",
		"\nA=\"x\nB=2\n":        `f:2: the quote before "x`,
		"A='x' y":               `f:1: "y" follows the closing quote`,
		"export":                "is not NAME=VALUE",
		"A=1\nB=\"\\\"\nC='\n'": "is not closed",
	} {
		if _, err := Parse("f", text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	none := t.TempDir() + "/.env"
	if _, err := Read(none); err == nil ||
		err.Error() != "cannot read the variables in "+none+": "+syscall.Errno(2).Error() { // of Windows, too
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("export A=\"b\\n\nc\" # d\nE='f\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Parse("f", text, nil)
		if err != nil && all != nil {
			t.Error("variables and an error")
		}
		for _, v := range all {
			if !validName(v.Name) || v.Source == "" {
				t.Errorf("%+v", v)
			}
			// What is quoted is read as it was.
			quoted := v.Name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v.Value) + `"`
			if !strings.Contains(v.Value, "\r") {
				if again, err := Parse("f", quoted, nil); err != nil || len(again) != 1 || again[0].Value != v.Value {
					t.Errorf("%q: %+v, %v", quoted, again, err)
				}
			}
		}
	})
}
