package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"btools/lib/terminal"
)

// Column is one of a table's columns: a heading and the dotted name of its
// value.
type Column struct {
	Head, Field string
	// Color is the color that a value is shown in on a terminal; nil: none.
	Color func(value string) Color
	// Show turns a value into what people read; nil: it stays.
	Show func(value string) string
	// Spare columns are left out where the terminal is too narrow, the
	// highest number first; 0: never.
	Spare int
	// Below has a value on a line of its own, below its row, if there is one.
	Below bool
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

// Age shows a time as how long ago it is.
func Age(value string) string {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return value
	}
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// Size shows a number of bytes as MiB.
func Size(value string) string {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return value
	}
	return fmt.Sprintf("%d MiB", n>>20)
}

// Seconds shows a number of seconds as a duration.
func Seconds(value string) string {
	s, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return value
	}
	return (time.Duration(s * float64(time.Second))).Round(time.Second).String()
}

// table is rows that are held back until all are known.
type table struct {
	w      io.Writer
	cols   []Column
	rows   [][]string
	width  int // of the terminal; 0: as wide as need be
	colors bool
}

const gap = 2 // columns between two columns

func (t *table) add(line []byte) {
	row := make([]string, len(t.cols))
	for i, c := range t.cols {
		raw, _ := lookup(line, c.Field)
		row[i] = terminal.Printable(value(raw))
		if c.Show != nil && len(raw) > 0 {
			row[i] = c.Show(row[i])
		}
	}
	t.rows = append(t.rows, row)
}

// widths are the columns' widths, 0 for those that are left out.
func (t *table) widths() []int {
	widths := make([]int, len(t.cols))
	total := -gap
	for i, c := range t.cols {
		if c.Below {
			continue
		}
		widths[i] = utf8.RuneCountInString(c.Head)
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i]))
		}
		total += widths[i] + gap
	}
	if t.width == 0 {
		return widths
	}
	spare := 0
	for _, c := range t.cols {
		spare = max(spare, c.Spare)
	}
	for ; total > t.width && spare > 0; spare-- {
		for i, c := range t.cols {
			if c.Spare == spare {
				total -= widths[i] + gap
				widths[i] = 0
			}
		}
	}
	return widths
}

// flush prints the table.
func (t *table) flush() error {
	if len(t.rows) == 0 {
		return nil
	}
	widths := t.widths()
	var b strings.Builder
	print := func(cells []string, color func(i int) Color) {
		var line strings.Builder
		left := t.width
		for i, s := range cells {
			if widths[i] == 0 {
				continue
			}
			n := utf8.RuneCountInString(s)
			if t.width > 0 && n > left { // a terminal's line is not for two rows
				if left <= 1 {
					break
				}
				s, n = cut(s, left), left
			}
			left -= widths[i] + gap
			if color != nil && t.colors && t.cols[i].Color != nil {
				s = "\x1b[" + string(color(i)) + "m" + s + "\x1b[39m"
			}
			line.WriteString(s + strings.Repeat(" ", widths[i]-min(n, widths[i])+gap))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	heads := make([]string, len(t.cols))
	for i, c := range t.cols {
		heads[i] = c.Head
	}
	print(heads, nil)
	for _, r := range t.rows {
		print(r, func(i int) Color { return t.cols[i].Color(r[i]) })
		for i, c := range t.cols {
			if c.Below && r[i] != "" {
				b.WriteString(cut(indent+r[i], t.width) + "\n")
			}
		}
	}
	t.rows = slices.Delete(t.rows, 0, len(t.rows))
	if _, err := io.WriteString(t.w, b.String()); err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	return nil
}

// indent begins what is below a row.
const indent = "    "

// cut is a text that is no wider than that; 0: as wide as it is.
func cut(s string, width int) string {
	if r := []rune(s); width > 0 && len(r) > width {
		return string(r[:max(0, width-1)]) + "…"
	}
	return s
}

// value is a value as --field and a table show it: a string without quotes,
// null as nothing, tabs and newlines escaped so that they can't be taken for
// separators.
func value(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return compact(raw)
	}
	return strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(s)
}
