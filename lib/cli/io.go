package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"time"

	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/terminal"
)

// Input returns a reader on the records of standard input, nil if it is not
// to be read: it is read when it is a pipe or a file, not from a terminal, a
// device or a socket, and not with a command, whose input it is. "-" as an
// argument reads it regardless, --no-input never does.
func (c *Context) Input() *record.Reader {
	if c.Bool("no-input") || !c.dash && (c.Command != nil || !readable(c.Stdin)) {
		return nil
	}
	return record.NewReader(&impatient{in: c.Stdin, after: 2 * time.Second, say: func() {
		c.Log.Info("waiting for records on standard input (--no-input does without)")
	}})
}

// FirstRecord is the first record of standard input, nil if there is none. If
// an input ends without one, that is an error where "-" demands one, else it
// is told what is done without, unless instead is "".
func (c *Context) FirstRecord(instead string) (*record.Record, error) {
	in := c.Input()
	if in == nil {
		return nil, nil
	}
	rec, err := in.Read()
	if err == io.EOF {
		return nil, c.noRecord(instead)
	}
	if err != nil {
		return nil, InputError(err)
	}
	return rec, nil
}

// Filter prints each record of standard input after fill has changed it. It returns false if there is none, which is as
// in FirstRecord.
func (c *Context) Filter(instead string, fill func(*record.Record) error) (filtered bool, err error) {
	in := c.Input()
	if in == nil {
		return false, nil
	}
	rec, err := in.Read()
	if err == io.EOF {
		return false, c.noRecord(instead)
	}
	for ; err == nil; rec, err = in.Read() {
		if err := fill(rec); err != nil {
			return true, err
		}
		if err := c.Out.Write(rec); err != nil {
			return true, err
		}
	}
	if err == io.EOF {
		return true, c.Out.Close()
	}
	return true, c.Out.Print(InputError(err))
}

// noRecord ends an input without a record; see FirstRecord.
func (c *Context) noRecord(instead string) error {
	c.Empty = true
	switch {
	case c.dash:
		return &exit.Error{Code: exit.Data, Err: errors.New("no record came on standard input"),
			Hint: "the program before the pipe has failed, or found nothing; set -o pipefail shows that"}
	case instead != "":
		c.Log.Info("no record came on standard input: " + instead)
	}
	return nil
}

// InputIDs are the IDs on standard input, one a line, or those that a member
// of its records has. Without an input it is a usage error, which says what
// to name.
func (c *Context) InputIDs(member, name string) (ids []string, err error) {
	in := c.Input()
	if in == nil {
		return nil, c.UsageError("%s", name)
	}
	for {
		id, err := in.ReadID(member)
		if err == io.EOF {
			return ids, nil
		}
		if err != nil {
			return nil, InputError(err)
		}
		ids = append(ids, id)
	}
}

func readable(f *os.File) bool {
	st, err := f.Stat()
	return err == nil && (st.Mode().IsRegular() || st.Mode()&fs.ModeNamedPipe != 0)
}

// impatient says once that nothing has come.
type impatient struct {
	in    io.Reader
	after time.Duration
	say   func()
}

func (r *impatient) Read(b []byte) (int, error) {
	if r.say != nil {
		t := time.AfterFunc(r.after, r.say)
		defer t.Stop()
		r.say = nil
	}
	return r.in.Read(b)
}

// InputError gives an error of the input its exit code.
func InputError(err error) error {
	if errors.Is(err, record.ErrData) {
		return &exit.Error{Code: exit.Data, Err: err,
			Hint: "standard input takes records, one JSON object a line; --no-input does not read it"}
	}
	return fmt.Errorf("cannot read standard input: %w", err)
}

// Output writes records to standard output in the form that was asked for.
type Output struct {
	c      *Context
	fields []string
	table  *table
	safe   bool // a terminal shows the values
}

// Records describes the records that a command prints.
type Records struct {
	Columns []Column
	Members map[string]any // the types of those members that only these records have, by name
}

// Records returns the writer of the command's records. The members of known, if it is not nil, can be printed, too.
func (c *Context) Records(known *record.Record) (*Output, error) {
	r := c.usage.command.Prints
	if r == nil {
		r = &Records{}
	}
	return c.Output(r.Columns, Schema(r.Members), known)
}

// Output returns the writer of results; cols are the table's columns. Names
// in --field that no record can have are a usage error, told before anything
// is done; schema lists the members' types by name, and known, if not nil, is
// a record whose members count as known too.
func (c *Context) Output(cols []Column, schema map[string]any, known *record.Record) (*Output, error) {
	o := &Output{c: c, safe: terminal.Is(c.Stdout)}
	if f := c.String("field"); c.IsSet("field") {
		for _, name := range strings.Split(f, ",") {
			name = strings.TrimSpace(name)
			if !fieldExists(name, schema, known) {
				return nil, c.UsageError("no record has a field %q", name)
			}
			o.fields = append(o.fields, name)
		}
		return o, nil
	}
	if c.String("output") == "table" || c.String("output") == "" && terminal.Is(c.Stdout) {
		return c.Table(c.Stdout, cols), nil
	}
	return o, nil
}

// Table returns a writer of records as a table, as wide as the terminal. It
// has colors on one that can show them, unless NO_COLOR is set.
func (c *Context) Table(w io.Writer, cols []Column) *Output {
	isTerminal := terminal.Is(c.Stdout)
	t := &table{w: w, cols: cols, colors: isTerminal && c.Getenv("NO_COLOR") == "" && c.Getenv("TERM") != "dumb"}
	if isTerminal || c.Getenv("COLUMNS") != "" {
		t.width = c.width(0)
	}
	return &Output{c: c, table: t}
}

// Wide has a table as wide as it need be, whatever the terminal's width.
func (o *Output) Wide() {
	if o.table != nil {
		o.table.width = 0
	}
}

// Height is how many lines the terminal has, 0 if that is not known.
func (c *Context) Height() int { return terminal.Height(c.Stdout) }

// Table reports whether the output is a table for people.
func (o *Output) Table() bool { return o.table != nil }

func fieldExists(name string, schema map[string]any, known *record.Record) bool {
	if known != nil {
		if _, ok := lookup(known.Line(), name); ok {
			return true
		}
	}
	head, rest, dotted := strings.Cut(name, ".")
	v, ok := schema[head]
	if !ok || !dotted || v == nil {
		return ok && !(dotted && v == nil)
	}
	return hasMember(reflect.TypeOf(v), rest)
}

// hasMember reports whether a struct has a member with this dotted name.
func hasMember(t reflect.Type, name string) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	head, rest, dotted := strings.Cut(name, ".")
	for _, f := range reflect.VisibleFields(t) { // those of embedded structs too
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == head {
			return !dotted || hasMember(f.Type, rest)
		}
	}
	return false
}

// lookup finds the value of a dotted name.
func lookup(line []byte, name string) (json.RawMessage, bool) {
	raw := json.RawMessage(line)
	for _, part := range strings.Split(name, ".") {
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil {
			return nil, false
		}
		var ok bool
		if raw, ok = m[part]; !ok {
			return nil, false
		}
	}
	return raw, true
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// Write writes records. With --field, those that have none of the fields are left out.
func (o *Output) Write(rs ...*record.Record) error {
	for _, r := range rs {
		if err := o.write(r); err != nil {
			return err
		}
	}
	return nil
}

func (o *Output) write(r *record.Record) error {
	line := r.Line()
	switch {
	case o.fields != nil:
		vals, hasAny := make([]string, len(o.fields)), false
		for i, f := range o.fields {
			raw, has := lookup(line, f)
			hasAny = hasAny || has
			if vals[i] = value(raw); o.safe {
				vals[i] = terminal.Printable(vals[i])
			}
		}
		if !hasAny {
			return nil
		}
		line = []byte(strings.Join(vals, "\t") + "\n")
	case o.table != nil:
		o.table.add(line)
		return nil
	case o.safe:
		line = terminal.EscapeJSON(line)
	}
	if _, err := o.c.Stdout.Write(line); err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	return nil
}

// Print writes records and closes the output, or returns the error that there is already.
func (o *Output) Print(err error, rs ...*record.Record) error {
	if err == nil {
		err = o.Write(rs...)
	}
	return errors.Join(err, o.Close())
}

// Close writes the table.
func (o *Output) Close() error {
	if o.table != nil {
		return o.table.flush()
	}
	return nil
}
