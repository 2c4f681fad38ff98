package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// maxDepth is how deep values may nest.
const maxDepth = 10000

var errSyntax = errors.New("malformed JSON")

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// skipString returns the end of the string that begins at b[i].
func skipString(b []byte, i int) (int, error) {
	for from := i + 1; ; {
		k := bytes.IndexByte(b[from:], '"')
		if k < 0 {
			return 0, errSyntax
		}
		end := from + k
		slashes := 0
		for end-slashes-1 > i && b[end-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1, nil
		}
		from = end + 1
	}
}

// bare are the bytes that stand outside strings: brackets, numbers, true, false
// and null, and what separates them. NaN and Infinity, which some programs
// write, need others.
var bare = func() (is [256]bool) {
	for _, c := range []byte("{}[]:, \t\r\n0123456789+-.eEtrufalsn\"") {
		is[c] = true
	}
	return is
}()

// skipValue returns the end of the value that begins at b[i]. It looks at
// strings and brackets only, and that nothing else is between them: that is
// enough to find what follows.
func skipValue(b []byte, i int) (int, error) {
	if i >= len(b) {
		return 0, errSyntax
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		var shallow [64]byte // most values need no more, and nothing is allocated for them
		open := shallow[:0]
		for i < len(b) {
			switch c := b[i]; c {
			case '"':
				end, err := skipString(b, i)
				if err != nil {
					return 0, err
				}
				i = end
				continue
			case '{', '[':
				if len(open) == maxDepth {
					return 0, errSyntax
				}
				open = append(open, c+2) // its other half, in ASCII
			case '}', ']':
				if open[len(open)-1] != c {
					return 0, errSyntax
				}
				if open = open[:len(open)-1]; len(open) == 0 {
					return i + 1, nil
				}
			default:
				if !bare[c] {
					return 0, errSyntax
				}
			}
			i++
		}
		return 0, errSyntax
	}
	end := i
	for end < len(b) && !isSpace(b[end]) && b[end] != ',' && b[end] != '}' && b[end] != ']' {
		if !bare[b[end]] {
			return 0, errSyntax
		}
		end++
	}
	if end == i {
		return 0, errSyntax
	}
	return end, nil
}

// member is one of an object's: the places of its name (with quotes) and of
// its value.
type member struct{ name, nameEnd, value, end int }

// key is the member's name.
func (m member) key(b []byte) string {
	raw := b[m.name+1 : m.nameEnd-1]
	if bytes.IndexByte(raw, '\\') >= 0 {
		var s string
		if json.Unmarshal(b[m.name:m.nameEnd], &s) == nil {
			return s
		}
	}
	return string(raw)
}

// members calls f for each member of an object, until it returns false.
func members(b []byte, f func(m member) bool) error {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return fmt.Errorf("%w: no object", errSyntax)
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return after(b, i+1)
	}
	for {
		var m member
		var err error
		if m.name = skipSpace(b, i); m.name >= len(b) || b[m.name] != '"' {
			return errSyntax
		}
		if m.nameEnd, err = skipString(b, m.name); err != nil {
			return err
		}
		if i = skipSpace(b, m.nameEnd); i >= len(b) || b[i] != ':' {
			return errSyntax
		}
		m.value = skipSpace(b, i+1)
		if m.end, err = skipValue(b, m.value); err != nil {
			return err
		}
		if !f(m) {
			return nil
		}
		if i = skipSpace(b, m.end); i >= len(b) {
			return errSyntax
		}
		switch b[i] {
		case ',':
			i++
		case '}':
			return after(b, i+1)
		default:
			return errSyntax
		}
	}
}

// Members calls f for each member of an object, with its name as it came,
// quotes and escapes included, until f returns an error, which it returns.
// Nothing is decoded: the values are checked as Parse checks them.
func Members(object []byte, f func(name, value json.RawMessage) error) error {
	var stopped error
	err := members(object, func(m member) bool {
		stopped = f(object[m.name:m.nameEnd:m.nameEnd], object[m.value:m.end:m.end])
		return stopped == nil
	})
	if stopped != nil {
		return stopped
	}
	return err
}

// after reports what follows a value that should be the last.
func after(b []byte, i int) error {
	if skipSpace(b, i) != len(b) {
		return errSyntax
	}
	return nil
}

// find is an object's last member with the name.
func find(b []byte, name string) (found member, ok bool) {
	members(b, func(m member) bool {
		if m.key(b) == name {
			found, ok = m, true
		}
		return true
	})
	return found, ok
}

// Get is the value of an object's member, nil if there is none: of the
// object's, for several names of the one below it, and so on.
func Get(object json.RawMessage, path ...string) json.RawMessage {
	for _, name := range path {
		m, ok := find(object, name)
		if !ok {
			return nil
		}
		object = object[m.value:m.end]
	}
	return object
}

// GetAll are the values of an object's members with these names, in one pass; nil for a
// member that it has not.
func GetAll(object json.RawMessage, names ...string) []json.RawMessage {
	all := make([]json.RawMessage, len(names))
	members(object, func(m member) bool {
		if i := slices.Index(names, m.key(object)); i >= 0 {
			all[i] = object[m.value:m.end]
		}
		return true
	})
	return all
}

// String is the text that a value is, "" if it is none.
func String(value json.RawMessage) (s string) {
	if len(value) > 0 && value[0] == '"' {
		json.Unmarshal(value, &s)
	}
	return s
}

// GetString is the text of a member, "" if there is none or it is not a text.
func GetString(object json.RawMessage, path ...string) string { return String(Get(object, path...)) }

// Append returns the object with a member that it has not, as the last one,
// and every other byte as it was. A value that is not an object becomes one.
func Append(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	end := 0 // of the last member
	if members(object, func(m member) bool { end = m.end; return true }) != nil || end == 0 {
		return Set(nil, name, value)
	}
	quoted, _ := json.Marshal(name)
	return splice(object, end, end, slices.Concat([]byte(","), quoted, []byte(":"), value))
}

// Set returns the object with the member set, a new one as the first, and
// every other byte as it was. A value that is not an object, such as nil, becomes one.
func Set(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	if m, ok := find(object, name); ok {
		return splice(object, m.value, m.end, value)
	}
	i := skipSpace(object, 0)
	if i >= len(object) || object[i] != '{' {
		object, i = json.RawMessage("{}"), 0
	}
	quoted, _ := json.Marshal(name)
	first := append(append(quoted, ':'), value...)
	if next := skipSpace(object, i+1); next < len(object) && object[next] != '}' {
		first = append(first, ',')
	}
	return splice(object, i+1, i+1, first)
}

// Delete returns the object without the member, however often it is there, and
// every other byte as it was.
func Delete(object json.RawMessage, name string) json.RawMessage {
	var out []byte
	at := 0 // what is before it is copied, or left out
	members(object, func(m member) bool {
		if m.key(object) != name {
			return true
		}
		if out == nil {
			out = make([]byte, 0, len(object)+1) // and a newline
		}
		out = append(out, object[at:m.name]...)
		if at = skipSpace(object, m.end); at < len(object) && object[at] == ',' {
			at++
			return true
		}
		out = bytes.TrimSuffix(bytes.TrimRight(out, " \t\r\n"), []byte(",")) // it was the last one
		return true
	})
	if out == nil {
		return object
	}
	return append(out, object[at:]...)
}

// splice replaces b[from:to].
func splice(b []byte, from, to int, with []byte) []byte {
	out := make([]byte, 0, len(b)-(to-from)+len(with)+1) // and a newline
	out = append(out, b[:from]...)
	out = append(out, with...)
	return append(out, b[to:]...)
}

// Elements are the values of an array. None of what it holds is copied: an
// array may have millions.
func Elements(array json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		i := skipSpace(array, 0)
		if i >= len(array) || array[i] != '[' {
			return
		}
		for i = skipSpace(array, i+1); i < len(array) && array[i] != ']'; {
			end, err := skipValue(array, i)
			if err != nil || !yield(array[i:end:end]) {
				return
			}
			if i = skipSpace(array, end); i < len(array) && array[i] == ',' {
				i = skipSpace(array, i+1)
			}
		}
	}
}

// Array is the array of these values.
func Array(all []json.RawMessage) json.RawMessage {
	n := 2
	for _, v := range all {
		n += len(v) + 1
	}
	out := make([]byte, 0, n)
	out = append(out, '[')
	for i, v := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}
