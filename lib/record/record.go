// Package record is the record that flows through the pipes: one JSON object
// a line, which grows as each program adds its own member and passes every
// member that it doesn't know through untouched.
package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Version is the schema's version, the member "v". Members may be added to
// it, never renamed or removed.
const Version = 1

// MaxSize is the size in bytes of the longest line that a Reader accepts. A
// record of every program is about 2 KiB; the bound keeps a pipe that carries
// something else from filling the memory.
const MaxSize = 1 << 20

// Record is one JSON object. It keeps the order and the bytes of the members
// that nobody sets. The zero value is an empty record.
type Record struct {
	members []member
}

type member struct {
	name  string
	value json.RawMessage
}

// New returns a record that holds only its version.
func New() *Record {
	r := &Record{}
	r.MustSet("v", Version)
	return r
}

// Of returns a record with one member.
func Of(name string, value any) *Record {
	r := New()
	r.MustSet(name, value)
	return r
}

// Parse reads one JSON object. Of a name that comes twice the last value
// stays, as in encoding/json.
func Parse(line []byte) (*Record, error) {
	r := &Record{}
	if err := r.UnmarshalJSON(line); err != nil {
		return nil, err
	}
	if raw := r.Raw("v"); raw != nil {
		var v int
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("member \"v\" is %s, not a version number", clip(raw))
		}
		if v > Version {
			return nil, fmt.Errorf("it is of version %d and this program knows version %d: update btools", v, Version)
		}
	}
	return r, nil
}

// UnmarshalJSON reads an object, keeping its members' order and bytes.
func (r *Record) UnmarshalJSON(line []byte) error {
	if t := bytes.TrimLeft(line, " \t\r\n"); len(t) == 0 || t[0] != '{' {
		return fmt.Errorf("not a JSON object: %s", clip(line))
	}
	r.members = nil
	if !r.read(json.NewDecoder(bytes.NewReader(line))) {
		return fmt.Errorf("not valid JSON: %s", clip(line))
	}
	return nil
}

// read reads one object and nothing after it; false if that is not there.
func (r *Record) read(dec *json.Decoder) bool {
	if _, err := dec.Token(); err != nil {
		return false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return false
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return false
		}
		r.SetRaw(name.(string), value)
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return false
	}
	_, err := dec.Token()
	return err == io.EOF
}

// clip shows the start of something that could not be read, on one line.
func clip(b []byte) string {
	const most = 60
	b = bytes.TrimSpace(b)
	if len(b) > most {
		return fmt.Sprintf("%q…", b[:most])
	}
	return fmt.Sprintf("%q", b)
}

// MarshalJSON writes the members in their order.
func (r *Record) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range r.members {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// Line returns the record as one line of JSON that ends in a newline. Unlike
// json.Marshal it leaves the characters <, > and & as they came.
func (r *Record) Line() []byte {
	raw, err := r.MarshalJSON()
	if err != nil { // a string always marshals
		panic(err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		panic(err) // members are valid JSON: Parse and Set see to it
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// Raw returns the JSON of a member, nil if there is none.
func (r *Record) Raw(name string) json.RawMessage {
	for _, m := range r.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// SetRaw sets a member to valid JSON, in its place if it is there, else last.
func (r *Record) SetRaw(name string, value json.RawMessage) {
	for i := range r.members {
		if r.members[i].name == name {
			r.members[i].value = value
			return
		}
	}
	r.members = append(r.members, member{name, value})
}

// Delete removes a member.
func (r *Record) Delete(name string) {
	r.members = slices.DeleteFunc(r.members, func(m member) bool { return m.name == name })
}

// MustSet sets a member to a value that is known to marshal. A record
// without a version gets one, as its first member.
func (r *Record) MustSet(name string, value any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic(fmt.Sprintf("record: member %q: %v", name, err))
	}
	if name != "v" && r.Raw("v") == nil {
		r.members = append([]member{{"v", json.RawMessage("1")}}, r.members...)
	}
	r.SetRaw(name, bytes.TrimSpace(b.Bytes()))
}

// Get decodes a member into value. It reports whether the record has it: a
// member that is null counts as missing.
func (r *Record) Get(name string, value any) (bool, error) {
	raw := r.Raw(name)
	if raw == nil || string(raw) == "null" {
		return false, nil
	}
	if err := json.Unmarshal(raw, value); err != nil {
		return false, fmt.Errorf("member %q of the record: %w", name, err)
	}
	return true, nil
}

// Member returns a member of a record, or its zero value if the record has none that can be decoded.
func Member[T any](r *Record, name string) (value T) {
	r.Get(name, &value)
	return value
}

// Clone returns a copy that can be changed by itself.
func (r *Record) Clone() *Record {
	return &Record{members: append([]member(nil), r.members...)}
}

// Reader reads records, one a line. Blank lines are passed over.
type Reader struct {
	in   *bufio.Reader
	line int
}

// NewReader returns a Reader on in.
func NewReader(in io.Reader) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 32<<10)}
}

// ErrData marks an error that is the input's: bad data, not a failed read.
var ErrData = errors.New("bad input")

type dataError struct{ error }

func (e dataError) Is(target error) bool { return target == ErrData }
func (e dataError) Unwrap() error        { return e.error }

// Read returns the next record, io.EOF after the last. An error that
// errors.Is(err, ErrData) says which line is bad and why.
func (r *Reader) Read() (*Record, error) {
	line, err := r.next()
	if err != nil {
		return nil, err
	}
	return r.parse(line)
}

// ReadID returns the ID that the next line is, or that a member of its record
// has; errors are as those of Read.
func (r *Reader) ReadID(member string) (string, error) {
	line, err := r.next()
	if err != nil {
		return "", err
	}
	if line[0] != '{' && !bytes.ContainsAny(line, " \t\"") && len(line) < 100 {
		return string(line), nil
	}
	rec, err := r.parse(line)
	if err != nil {
		return "", err
	}
	var m struct {
		ID string `json:"id"`
	}
	if ok, err := rec.Get(member, &m); err != nil || !ok || m.ID == "" {
		return "", dataError{fmt.Errorf("the record in line %d of the input has no %s with an id", r.line, member)}
	}
	return m.ID, nil
}

func (r *Reader) parse(line []byte) (*Record, error) {
	rec, err := Parse(line)
	if err != nil {
		return nil, dataError{fmt.Errorf("line %d of the input is not a record: %w", r.line, err)}
	}
	return rec, nil
}

// next returns the next line that is not empty, without the space around it.
func (r *Reader) next() ([]byte, error) {
	for {
		line, err := r.readLine()
		if line = bytes.TrimSpace(line); len(line) > 0 && (err == nil || err == io.EOF) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (r *Reader) readLine() ([]byte, error) {
	r.line++
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		if len(line)+len(part) > MaxSize {
			return nil, dataError{fmt.Errorf("line %d of the input is longer than %d bytes, the most that a record has",
				r.line, MaxSize)}
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
