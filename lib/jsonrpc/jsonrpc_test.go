package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":[1,{"y":"}\\\""}]}}`: `request 1 a {"x":[1,{"y":"}\\\""}]}`,
		` { "id" : "\"" , "method":"a" } `:                                       `request "\"" a `,
		`{"method":"n","params":[]}`:                                             `notification  n []`,
		`{"id":1.50,"result":null}`:                                              `response 1.50  `,
		`{"id":null,"error":{"code":1}}`:                                         `response null  `,
		`{"m\u0065thod":"a","id":2,"id":3}`:                                      `request 3 a `,
	} {
		m, err := Parse([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		kind := "response"
		if m.IsRequest() {
			kind = "request"
		} else if m.IsNotification() {
			kind = "notification"
		}
		if got := fmt.Sprintf("%s %s %s %s", kind, m.ID, m.Method, m.Params); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	for _, line := range []string{"", "{", "[]", `{"id":1}`, `{"id":{},"method":"a"}`, `{"id":true,"method":"a"}`,
		`{"method":1}`, `{"a":[}]}`, `{"method":"a"}x`, `{"method":"a",}`, `{"a"}`, `{"id":1,"result":{"x":NaN}}`,
		`{"id":1,"result":-Infinity}`, `{"jsonrpc":"1.0","id":1,"method":"a"}`, `{"jsonrpc":2.0,"method":"a"}`,
		strings.Repeat("[", 1<<20), `{"a":` + strings.Repeat("[", 20000) + "}"} {
		if _, err := Parse([]byte(line)); err == nil {
			t.Errorf("%.40s is taken for a message", line)
		}
	}
}

func TestEdit(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{string(Set(nil, "a", json.RawMessage("1"))), `{"a":1}`},
		{string(Set(json.RawMessage(`{ "b": 2 }`), "a", json.RawMessage("1"))), `{"a":1, "b": 2 }`},
		{string(Set(json.RawMessage(`{"b":2,"a":[1]}`), "a", json.RawMessage("1"))), `{"b":2,"a":1}`},
		{string(Append(json.RawMessage(`{ "b": 2 }`), "a", json.RawMessage("1"))), `{ "b": 2,"a":1 }`},
		{string(Append(json.RawMessage(` { } `), "a", json.RawMessage("1"))), `{"a":1}`},
		{string(Append(json.RawMessage(`null`), "a", json.RawMessage("1"))), `{"a":1}`},
		{string(Delete(json.RawMessage(`{"a":1}`), "a")), `{}`},
		{string(Delete(json.RawMessage(`{"a":1, "b":2, "c":3}`), "b")), `{"a":1,  "c":3}`},
		{string(Delete(json.RawMessage(`{"a":1, "b":2 }`), "b")), `{"a":1}`},
		{string(Delete(json.RawMessage(`{"a":1,"a":2}`), "a")), `{}`},
		{string(Delete(json.RawMessage(`{"a":1, "b":2,"a":3, "c":4 , "\u0061":5 }`), "a")), `{ "b":2, "c":4 }`},
		{string(Get(json.RawMessage(`{"a":{"b":[ 1 ]}}`), "a", "b")), `[ 1 ]`},
		{string(Get(json.RawMessage(`{"a":1}`), "b")), ``},
		{GetString(json.RawMessage(`{"a":"\u00e9"}`), "a"), `é`},
		{fmt.Sprintf("%s", slices.Collect(Elements(json.RawMessage(`[ 1 , "]" ,{}]`)))), `[1 "]" {}]`},
		{string(Array([]json.RawMessage{json.RawMessage("1"), json.RawMessage("{}")})), `[1,{}]`},
		{string(Failure(nil, Errorf(ParseError, "no %s", "<x>"))),
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no \u003cx\u003e"}}`},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

// What encoding/json takes for an object is read alike, and an edit changes
// what it is to change and nothing else.
func FuzzMessage(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":"\\\"}"}}}`,
		`{"id":"x","result":{"_meta":{}}}`, `{"a":1,"a":{"b":[]}}`, ` {} `, `[{"id":1}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Parse(raw)
		var want map[string]json.RawMessage
		if json.Unmarshal(raw, &want) != nil || want == nil {
			if err == nil && m != nil {
				m.WithID(json.RawMessage("1")) // must not panic
			}
			return
		}
		decode := func(b []byte) (v map[string]any) {
			d := json.NewDecoder(bytes.NewReader(b))
			d.UseNumber()
			if err := d.Decode(&v); err != nil {
				t.Fatalf("%q is no JSON any more: %v", b, err)
			}
			return v
		}
		before := decode(raw)
		for name := range want {
			got := bytes.TrimSpace(Get(raw, name))
			if !bytes.ContainsAny([]byte(name), "\ufffd") && !bytes.Equal(got, bytes.TrimSpace(want[name])) {
				t.Errorf("%q of %q: %q, want %q", name, raw, Get(raw, name), want[name])
			}
			if all := GetAll(raw, name, "none"); !bytes.Equal(bytes.TrimSpace(all[0]), got) {
				t.Errorf("%q of %q: %q, want %q", name, raw, all[0], got)
			}
		}
		after := decode(Set(raw, "new", json.RawMessage(`[1]`)))
		before["new"] = []any{json.Number("1")}
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%q became %q", raw, Set(raw, "new", json.RawMessage(`[1]`)))
		}
		if _, had := want["new"]; !had {
			if after := decode(Append(raw, "new", json.RawMessage(`[1]`))); !reflect.DeepEqual(before, after) {
				t.Errorf("%q became %v", raw, after)
			}
			delete(before, "new")
			if after := decode(Delete(Set(raw, "new", json.RawMessage(`[1]`)), "new")); !reflect.DeepEqual(before,
				after) {
				t.Errorf("%q became %v", raw, after)
			}
		}
	})
}

// A member that is there many times is deleted in one pass.
func TestDeleteOfManyDuplicates(t *testing.T) {
	object := []byte(`{"kept":1` + strings.Repeat(`,"a":{"b":[]}`, 200_000) + `,"last":2}`)
	began := time.Now()
	if got := string(Delete(object, "a")); got != `{"kept":1,"last":2}` {
		t.Errorf("%.100s", got)
	}
	if took := time.Since(began); took > time.Minute { // some milliseconds; a pass for each: hours
		t.Errorf("%v", took)
	}
}

// What an array of millions holds is not kept.
func TestLongArray(t *testing.T) {
	array := []byte("[" + strings.Repeat("1,", 4_000_000) + "1]")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	for range Elements(array) {
		n++
	}
	if runtime.ReadMemStats(&after); n != 4_000_001 || after.TotalAlloc-before.TotalAlloc > 1<<20 {
		t.Errorf("%d elements, for which %d bytes are allocated", n, after.TotalAlloc-before.TotalAlloc)
	}
}

// A line that is too long is refused, and costs no more than the longest one
// that is not; the next one is read.
func TestReaderOfTooLongLines(t *testing.T) {
	var peak uint64
	r := NewReader(io.MultiReader(&letters{left: 5 * MaxLine, each: func() {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		peak = max(peak, now.HeapSys)
	}}, strings.NewReader("\nnext\n")))
	if _, err := r.Line(); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	if line, err := r.Line(); string(line) != "next" || err != nil {
		t.Errorf("%.20q, %v", line, err)
	}
	if peak > 5*MaxLine {
		t.Errorf("%d MiB", peak>>20)
	}
}

var manyLetters = bytes.Repeat([]byte("x"), 64<<10)

// letters are so many bytes of a line; each is called now and then.
type letters struct {
	left, next int
	each       func()
}

func (l *letters) Read(b []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	if l.next--; l.next < 0 {
		l.next = 100
		l.each()
	}
	n := min(len(b), l.left)
	l.left -= n
	for m := 0; m < n; {
		m += copy(b[m:n], manyLetters)
	}
	return n, nil
}

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	r := NewReader(strings.NewReader("\ufeffa\r\n\n  \n" + long + "\nlast"))
	for _, want := range []string{"a", long, "last"} {
		if line, err := r.Line(); string(line) != want || err != nil {
			t.Errorf("%.20q, %v", line, err)
		}
	}
	if _, err := r.Line(); err != io.EOF {
		t.Error(err)
	}
}

// Many write at once to one that reads slowly: all of it arrives, and what one
// writes arrives in its order.
func TestWriter(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(out, 1<<20, out.Write)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 200 {
				if !w.Write(fmt.Appendf(nil, `{"from":%d,"n":%d,"pad":%q}`, i, n, strings.Repeat("x", n*10)), true) {
					t.Error("not written")
				}
			}
		})
	}
	go func() {
		wg.Wait()
		<-w.Close()
		out.Close()
	}()
	next := map[int]int{}
	for r := NewReader(in); ; {
		line, err := r.Line()
		if err != nil {
			break
		}
		var m struct{ From, N int }
		if err := json.Unmarshal(line, &m); err != nil || m.N != next[m.From] {
			t.Fatalf("%.60s after %d: %v", line, next[m.From], err)
		}
		next[m.From]++
	}
	for i := range 8 {
		if next[i] != 200 {
			t.Errorf("%d of %d", next[i], i)
		}
	}
	if w.Write([]byte("late"), true) {
		t.Error("written after the end")
	}
}

// One that does not read holds up nobody who does not want to wait, and its
// end everybody no more.
func TestWriterOfTheDeaf(t *testing.T) {
	in, out := io.Pipe()
	w := NewWriter(out, 100, nil)
	for w.Write(make([]byte, 60), false) {
	}
	waits := make(chan bool)
	go func() { waits <- w.Write(make([]byte, 60), true) }()
	in.CloseWithError(errors.New("gone"))
	<-w.done
	<-waits
	if w.Write(make([]byte, 60), true) {
		t.Error("given to nobody")
	}
}
