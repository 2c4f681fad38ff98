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
	"text/tabwriter"
	"time"

	"btools/lib/record"
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

// FirstRecord is the first record of standard input, nil if there is none.
func (c *Context) FirstRecord() (*record.Record, error) {
	in := c.Input()
	if in == nil {
		return nil, nil
	}
	rec, err := in.Read()
	if err == io.EOF {
		return nil, nil
	}
	if err != nil {
		return nil, InputError(err)
	}
	return rec, nil
}

// InputIDs are the IDs that a member of the records on standard input has.
// Without an input it is a usage error, which says what to name.
func (c *Context) InputIDs(member, name string) (ids []string, err error) {
	in := c.Input()
	if in == nil {
		return nil, c.UsageError("%s", name)
	}
	for {
		rec, err := in.Read()
		if err == io.EOF {
			return ids, nil
		}
		if err != nil {
			return nil, InputError(err)
		}
		var m struct {
			ID string `json:"id"`
		}
		if ok, err := rec.Get(member, &m); err != nil || !ok || m.ID == "" {
			return nil, Errorf(Data, "a record on standard input has no %s with an id", member)
		}
		ids = append(ids, m.ID)
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
		return &Error{Code: Data, Err: err, Hint: "standard input takes records, one JSON object a line; --no-input does not read it"}
	}
	return fmt.Errorf("cannot read standard input: %w", err)
}

// Column is one of a table's columns: a heading and the dotted name of its
// value.
type Column struct {
	Head, Field string
	// Color is the color that a value is shown in on a terminal; nil: none.
	Color func(value string) Color
}

// Color is a color of the terminal's palette.
type Color string

// Colors, as the SGR control sequence numbers them.
const (
	Plain  Color = "39"
	Red    Color = "31"
	Green  Color = "32"
	Yellow Color = "33"
)

// Output writes records to standard output in the form that was asked for.
type Output struct {
	c      *Context
	fields []string
	table  *tabwriter.Writer
	cols   []Column
	headed bool
	colors bool
	safe   bool // a terminal shows the values
}

// Output returns the writer of results; cols are the table's columns. Names
// in --field that no record can have are a usage error, told before anything
// is done; schema lists the members' types by name, and known, if not nil, is
// a record whose members count as known too.
func (c *Context) Output(cols []Column, schema map[string]any, known *record.Record) (*Output, error) {
	o := &Output{c: c, cols: cols, safe: isTerminal(c.Stdout)}
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
	if c.String("output") == "table" || c.String("output") == "" && isTerminal(c.Stdout) {
		return c.Table(c.Stdout, cols), nil
	}
	return o, nil
}

// Table returns a writer of records as a table. It has colors on a terminal
// that can show them, unless NO_COLOR is set.
func (c *Context) Table(w io.Writer, cols []Column) *Output {
	return &Output{
		c: c, cols: cols, table: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0), safe: true,
		colors: isTerminal(c.Stdout) && c.Getenv("NO_COLOR") == "" && c.Getenv("TERM") != "dumb",
	}
}

// Height is how many lines the terminal has, 0 if that is not known.
func (c *Context) Height() int { return height(c.Stdout) }

// paint shows a column's heading or value. Each cell of a column that has
// colors has one, as tabwriter counts their bytes too.
func (o *Output) paint(c Column, s string, color Color) string {
	if c.Color == nil || !o.colors {
		return s
	}
	return "\x1b[" + string(color) + "m" + s + "\x1b[39m"
}

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
	t := reflect.TypeOf(v)
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == rest {
			return true
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

// bare is a value as --field and a table print it: a string without quotes,
// null as nothing, tabs and newlines escaped so that they can't be taken for
// separators, and nothing that a terminal takes for a command.
func (o *Output) bare(raw json.RawMessage) string {
	s := value(raw)
	if o.safe {
		return Printable(s)
	}
	return s
}

func value(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		var b bytes.Buffer
		if json.Compact(&b, raw) == nil {
			return b.String()
		}
		return string(raw)
	}
	return strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(s)
}

// Write writes one record.
func (o *Output) Write(r *record.Record) error {
	line := r.Line()
	switch {
	case o.fields != nil:
		vals := make([]string, len(o.fields))
		for i, f := range o.fields {
			raw, _ := lookup(line, f)
			vals[i] = o.bare(raw)
		}
		line = []byte(strings.Join(vals, "\t") + "\n")
	case o.table != nil:
		if !o.headed {
			o.headed = true
			heads := make([]string, len(o.cols))
			for i, c := range o.cols {
				heads[i] = o.paint(c, c.Head, Plain)
			}
			fmt.Fprintln(o.table, strings.Join(heads, "\t"))
		}
		vals := make([]string, len(o.cols))
		for i, c := range o.cols {
			raw, _ := lookup(line, c.Field)
			vals[i] = o.bare(raw)
			if c.Color != nil {
				vals[i] = o.paint(c, vals[i], c.Color(vals[i]))
			}
		}
		fmt.Fprintln(o.table, strings.Join(vals, "\t"))
		return nil
	}
	if _, err := o.c.Stdout.Write(line); err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	return nil
}

// Close writes what a table still holds back.
func (o *Output) Close() error {
	if o.table != nil {
		if err := o.table.Flush(); err != nil {
			return fmt.Errorf("cannot write the result: %w", err)
		}
	}
	return nil
}
