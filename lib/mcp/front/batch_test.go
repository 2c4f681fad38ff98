package front

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// A batch is answered by one array, when the last of its requests is answered. What
// is refused has its error there, and what is no request has nothing.
func TestBatches(t *testing.T) {
	const a, b, other = `{"id":"a","method":"m"}`, `{"id":"b","method":"m"}`, `{"method":"n"}`
	for name, c := range map[string]struct {
		batch   string
		handled []string // by the host
		now     string   // is answered at once
		then    []string // answers of the host: the ID, and what is said then; "": nothing
	}{
		"two": {`[` + a + `,` + b + `]`, []string{`m "a"`, `m "b"`}, "",
			[]string{`"b"`, "", `"a"`, `"b" "a"`}},
		"notification": {`[` + other + `]`, []string{"n"}, "", nil},
		"mixed":        {`[` + other + `,` + a + `]`, []string{"n", `m "a"`}, "", []string{`"a"`, `"a"`}},
		"no message": {`[7,{"id":1,"nothing":2},` + a + `]`, []string{`m "a"`}, "",
			[]string{`"a"`, `null: not a request 1: not a request "a"`}},
		"nothing but errors": {`[7,8]`, nil, `null: not a request null: not a request`, nil},
		"initialize": {`[{"id":1,"method":"initialize"},` + a + `]`, []string{`m "a"`}, "",
			[]string{`"a"`, `1: initialize is not for a batch "a"`}},
		"one ID twice": {`[` + a + `,` + a + `]`, []string{`m "a"`, `m "a"`}, "",
			[]string{`"a"`, "", `"a"`, `"a" "a"`}},
		"of another":    {`[` + a + `]`, []string{`m "a"`}, "", []string{`"x"`, `alone "x"`, `"a"`, `"a"`}},
		"empty":         {`[]`, nil, `alone null: a batch has 1 to 3 messages`, nil},
		"three":         {`[` + a + `,` + other + `,` + b + `]`, []string{`m "a"`, "n", `m "b"`}, "", nil},
		"more than may": {`[7,7,7,7]`, nil, `alone null: a batch has 1 to 3 messages`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var all batches
			said := ""
			host := (&recorder{batches: true}).New(func(to json.RawMessage, last bool, message []byte) {
				said = summary(all.hold(string(to), last, message))
			}, false).(*recorded)
			if now := summary(all.handle(host, []byte(c.batch), 3)); now != c.now {
				t.Errorf("it is answered with %s at once, want %s", now, c.now)
			}
			if got := host.heard(); !reflect.DeepEqual(got, c.handled) {
				t.Errorf("the host was given %q, want %q", got, c.handled)
			}
			for i := 0; i < len(c.then); i += 2 {
				if host.answer(c.then[i], "{}"); said != c.then[i+1] {
					t.Errorf("the answer to %s says %s, want %s", c.then[i], said, c.then[i+1])
				}
			}
		})
	}
	// A request that is cancelled has no answer, and neither has a batch of such.
	var all batches
	host := (&recorder{batches: true}).New(nil, false)
	all.handle(host, []byte(`[`+a+`,`+b+`]`), 3)
	if said := all.hold(`"a"`, true, nil); said != nil {
		t.Errorf("%s", said)
	}
	if said := summary(all.hold(`"b"`, true, []byte(b))); said != `"b"` {
		t.Errorf("%s", said)
	}
	all.handle(host, []byte(`[`+a+`]`), 3)
	if said := all.hold(`"a"`, true, nil); said != nil {
		t.Errorf("%s", said)
	}
	// What is no answer is never held back, nor is an array of a host of another protocol
	// taken.
	if said := string(all.hold(`"a"`, false, []byte(other))); said != other {
		t.Errorf("%s", said)
	}
	said := all.handle((&recorder{}).New(nil, false), []byte(`[`+a+`]`), 3)
	if !strings.Contains(string(said), `"code":-32600`) || !strings.Contains(string(said), "protocol 2025-03-26") {
		t.Errorf("%s", said)
	}
}

// summary is the IDs and errors of an array of answers, or of one that stands alone.
func summary(answer []byte) string {
	if answer == nil {
		return ""
	}
	type one struct {
		ID    json.RawMessage
		Error struct{ Message string }
	}
	var all []one
	var words []string
	if json.Unmarshal(answer, &all) != nil {
		all = make([]one, 1)
		if err := json.Unmarshal(answer, &all[0]); err != nil {
			return err.Error()
		}
		words = append(words, "alone")
	}
	for _, a := range all {
		if why, _, _ := strings.Cut(a.Error.Message, ":"); why != "" {
			a.ID = fmt.Appendf(nil, "%s: %s", a.ID, why)
		}
		words = append(words, string(a.ID))
	}
	return strings.Join(words, " ")
}
