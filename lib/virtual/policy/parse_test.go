package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, test := range []struct{ message, id, method, session, params string }{
		{`{"id":1,"method":"Page.enable"}`, "1", "Page.enable", "", ""},
		{" \r\n{ \"params\" : {} , \"sessionId\":\"S\",\"method\":\"Page.enable\",\"id\" : -7 }\n", "-7", "Page.enable",
			"S", "{}"},
		{`{"id":2147483647,"method":"\u0054arget.getTargets","params":null}`, "2147483647", "Target.getTargets", "",
			""},
		{`{"\u0069d":-2147483648,"method":"X\/\"","sessionId":""}`, "-2147483648", `X/"`, "", ""},
		{`{"id":0,"method":"Runtime.evaluate","params":{"a":1,"a":[{"b":2,"b":3}]}}`, "0", "Runtime.evaluate", "",
			`{"a":1,"a":[{"b":2,"b":3}]}`},
	} {
		c, err := Parse([]byte(test.message))
		if err != nil || string(c.ID) != test.id || c.Method != test.method || c.Session != test.session ||
			string(c.Params) != test.params {
			t.Errorf("%s is %+v, %v", test.message, c, err)
		}
	}
}

// The codes and texts are those of Chromium 156; its texts go on with a
// position.
func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for _, test := range []struct {
		message string
		code    int
		id      string
		text    string
	}{
		{`{"id":1,"method":"X.y","id":2}`, -32700, "1", "CBOR: duplicate map key"},
		{`{"id":1,"method":"X.y","\u006dethod":"Page.enable"}`, -32700, "1", "CBOR: duplicate map key"},
		{`{"id":1,"method":"X.y","params":{},"params":null}`, -32700, "1", "CBOR: duplicate map key"},
		{`{"id":1,"method":"X.y","Method":"Z"}`, -32600, "1", "Message has property other than"},
		{`{"id":1,"jsonrpc":"2.0","method":"X.y"}`, -32600, "1", "Message has property other than"},
		{`{"id":1,"\v":0,"method":"X.y"}`, -32600, "1", "Message has property other than"},
		{`{"id":1}`, -32600, "1", "Message must have string 'method' property"},
		{`{"id":1,"method":5}`, -32600, "1", "Message must have string 'method' property"},
		{`{"id":1,"method":""}`, -32600, "1", "Message must have string 'method' property"},
		{`{"id":1,"method":"X.\x79"}`, -32600, "1", "Message must have string 'method' property"},
		{`{"id":1,"method":"X.y","sessionId":null}`, -32600, "1", "Message may have string 'sessionId' property"},
		{`{"id":1,"method":"X.y","sessionId":5}`, -32600, "1", "Message may have string 'sessionId' property"},
		{`{"id":1,"method":"X.y","sessionId":"` + "\x01" + `"}`, -32600, "1",
			"Message may have string 'sessionId' property"},
		{`{"id":1,"method":"X.y","params":"{}"}`, -32600, "1", "Message may have object 'params' property"},
		{`{"id":1,"method":"X.y","params":[]}`, -32600, "1", "Message may have object 'params' property"},
		{`{}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":2147483648,"method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":-2147483649,"method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":9007199254740992,"method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":"1","method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":1.5,"method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":1e3,"method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":01,"method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":-0,"method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":-,"method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{`{"id":null,"method":"X.y"}`, -32600, "", "Message must have integer 'id' property"},
		{``, -32600, "", "Message must be an object"},
		{`[]`, -32600, "", "Message must be an object"},
		{"\ufeff{}", -32600, "", "Message must be an object"},
		{`{"id":1,"method":"X.y"}{}`, -32700, "", "JSON: "},
		{`{"id":1,"method":"X.y"}` + "\x00", -32700, "", "JSON: "},
		{`{"id":1,"method":"X.y",}`, -32700, "", "JSON: "},
		{`{"id":1,/**/"method":"X.y"}`, -32700, "", "JSON: "},
		{`{"id":1,"method":"X.y","params":{/*"*/"a":1}}`, -32700, "", "JSON: "},
		{`{"id":1,"method":"X.y","params":` + deep + `}`, -32700, "", "JSON: "},
		{`{"id":1,"method":"Target.closeTarget","params":{"targetId":"A","targetId":"B"}}`, -32602, "1",
			"Invalid parameters"},
		{`{"id":1,"method":"Target.closeTarget","params":{"targetId":"A","\u0074argetId":"B"}}`, -32602, "1",
			"Invalid parameters"},
		{`{"id":1,"method":"Storage.setCookies","params":{"cookies":[{"a":1,"a":1}]}}`, -32602, "1",
			"Invalid parameters"},
		{`{"id":1,"method":"Storage.setCookies","params":{"cookies":` + deep[:1000] + deep[199_000:] + `}}`, -32602,
			"1", "Invalid parameters"},
		{`{"id":1,"method":"Target.closeTarget","params":{"targetId":"\v"}}`, -32602, "1", "Invalid parameters"},
		{`{"id":1,"method":"Page.navigate","params":{"\x75rl":"a"}}`, -32602, "1", "Invalid parameters"},
	} {
		c, err := Parse([]byte(test.message))
		if err == nil || err.Code != test.code || string(c.ID) != test.id ||
			!strings.HasPrefix(err.Message, test.text) {
			t.Errorf("%.80s is refused with id %q: %v", test.message, c.ID, err)
		}
	}
}

func TestParseIsFast(t *testing.T) {
	small := message(`{"functionDeclaration":"` + strings.Repeat("x", 100) + `"}`)
	if n := testing.AllocsPerRun(100, func() { Parse(small) }); n > 2 { // the method and the session
		t.Errorf("a small message allocates %v times", n)
	}
	for name, params := range map[string]string{
		"text":    `{"a":"` + strings.Repeat(`\"`, 1<<18) + `"}`,
		"slashes": `{"a":"` + strings.Repeat(`\\`, 1<<18) + `"}`,
		"names":   `{` + strings.Repeat(`"a":1,`, 1<<16) + `"b":1}`,
	} {
		for _, method := range []string{"Runtime.evaluate", "Storage.setCookies"} {
			b := bytes.Replace(message(params), []byte("Runtime.evaluate"), []byte(method), 1)
			if n := testing.AllocsPerRun(1, func() { Parse(b) }); n > 100 {
				t.Errorf("%s in %s: %v allocations", name, method, n)
			}
		}
	}
}

func message(params string) []byte {
	return fmt.Appendf(nil,
		`{"id":123,"method":"Runtime.evaluate","params":%s,"sessionId":"0123456789ABCDEF0123456789ABCDEF"}`, params)
}

func BenchmarkParse(b *testing.B) {
	for _, size := range []int{100, 100 << 20} {
		small := message(`{"expression":"` + strings.Repeat("x", size-20) + `","a":true}`)
		b.Run(fmt.Sprint(len(small)), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(small)
			}
		})
	}
	b.Run("judged", func(b *testing.B) {
		m := []byte(`{"id":123,"method":"Page.navigate",` +
			`"params":{"url":"https://example.com/","frameId":"0123456789ABCDEF0123456789ABCDEF"},` +
			`"sessionId":"0123456789ABCDEF0123456789ABCDEF"}`)
		b.ReportAllocs()
		for b.Loop() {
			c, _ := Parse(m)
			Check(c, nil)
		}
	})
}

// FuzzCommand compares what Parse accepts with what encoding/json reads, where
// that reads it: it takes no \v and no control character in strings.
func FuzzCommand(f *testing.F) {
	for _, m := range []string{
		`{"id":1,"method":"Page.navigate","params":{"url":"http://a/\u0062"},"sessionId":"S"}`,
		`{"id":1,"\u006dethod":"Target.\u0063loseTarget","params":{"targetId":"A","a":[{},[1,-2.5e3,null]]}}`,
		`{"id":-2147483648,"method":"X","params":null,"sessionId":""}`,
		` {"method":"Storage.setCookies", "id":7 ,"params":{"a":1,"a":"\\\""} } `,
		`{"id":1,"method":"Input.dispatchKeyEvent","params":{"nativeVirtualKeyCode":17,"type":"keyDown"}}`,
	} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		c, err := Parse(message)
		if !json.Valid(message) {
			return // Chrome refuses it, or takes \v
		}
		names, values, isObject := top(message)
		if err != nil {
			if c.ID != nil && !isObject {
				t.Fatalf("an id from %q", message)
			}
			return
		}
		want := map[string]json.RawMessage{}
		for i, name := range names {
			if _, twice := want[name]; twice {
				t.Fatalf("%q twice in %q", name, message)
			}
			want[name] = values[i]
		}
		var id int32
		var method, session string
		json.Unmarshal(want["method"], &method)
		json.Unmarshal(want["sessionId"], &session)
		if json.Unmarshal(want["id"], &id) != nil || string(c.ID) != fmt.Sprint(id) {
			t.Fatalf("id %s of %q", c.ID, message)
		}
		if c.Method != method || method == "" || c.Session != session {
			t.Fatalf("%q, %q of %q", c.Method, c.Session, message)
		}
		params := want["params"]
		if string(params) == "null" {
			params = nil
		}
		if !bytes.Equal(c.Params, params) || params != nil && params[0] != '{' {
			t.Fatalf("params %s of %q", c.Params, message)
		}
		delete(want, "id")
		delete(want, "method")
		delete(want, "sessionId")
		delete(want, "params")
		if len(want) > 0 {
			t.Fatalf("%v of %q", want, message)
		}
		if kept, err := Check(c, nil); err == nil && kept != nil && !json.Valid(kept) {
			t.Fatalf("Check makes %s of %s", kept, c.Params)
		}
		if isInspected(c.Method) && twice(json.NewDecoder(bytes.NewReader(c.Params))) {
			t.Fatalf("a name twice in %s", c.Params)
		}
	})
}

// top are the members of an object.
func top(message []byte) (names []string, values []json.RawMessage, isObject bool) {
	d := json.NewDecoder(bytes.NewReader(message))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil, nil, false
	}
	for d.More() {
		name, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil, nil, false
		}
		names, values = append(names, name.(string)), append(values, value)
	}
	return names, values, true
}

// twice tells whether an object in the next value has a name twice.
func twice(d *json.Decoder) bool {
	open, err := d.Token()
	if err != nil {
		return false
	}
	found := false
	switch open {
	case json.Delim('['):
		for d.More() {
			found = twice(d) || found
		}
		d.Token()
	case json.Delim('{'):
		names := map[json.Token]bool{}
		for d.More() {
			name, _ := d.Token()
			found = found || names[name]
			names[name] = true
			found = twice(d) || found
		}
		d.Token()
	}
	return found
}
