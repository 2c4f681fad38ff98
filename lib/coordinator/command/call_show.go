package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"btools/lib/blobs"
	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/results"
	"btools/lib/terminal"
	"btools/lib/terminal/picture"
)

// result is what a tool returns.
type result struct {
	IsError    bool
	Content    []content
	Structured json.RawMessage `json:"structuredContent"`
	Meta       struct {
		Value []content          `json:"btools/value"`
		Page  *results.PageState `json:"btools/page"`
		Exit  int                `json:"btools/exit"`
	} `json:"_meta"`
}

// content is a part of a tool's result.
type content struct {
	Type, Text, Data, MIMEType string
	Name, URI                  string // of a link
	Resource                   struct{ Text, Blob, MIMEType string }
}

// binary returns the data of a part that is no text, false if it has none.
func (p *content) binary() (d data, ok bool) {
	text, kind := p.Data, p.MIMEType
	if text == "" {
		text, kind = p.Resource.Blob, p.Resource.MIMEType
	}
	b, err := base64.StdEncoding.DecodeString(text)
	return data{b, kind}, err == nil && len(b) > 0
}

// text returns the text of a part, of a link where it leads.
func (p *content) text() string {
	if p.Type == "resource_link" {
		return fmt.Sprintf("%s: %s", p.Name, p.URI)
	}
	return strings.TrimRight(p.Text+p.Resource.Text, "\n")
}

// data is a picture, a file, or a text.
type data struct {
	bytes []byte
	kind  string // by MIME
}

func (d data) isText() bool { return utf8.Valid(d.bytes) && !bytes.ContainsRune(d.bytes, 0) }

// alone returns the data of a result: its pictures and files, or else its text.
func (r *result) alone() (all []data) {
	parts := r.Content
	if r.Meta.Value != nil {
		parts = r.Meta.Value
	}
	var texts []string
	for i := range parts {
		p := &parts[i]
		if d, ok := p.binary(); ok {
			all = append(all, d)
		} else if p.Resource.Text != "" {
			all = append(all, data{[]byte(p.Resource.Text), p.Resource.MIMEType})
		} else if p.Text != "" {
			texts = append(texts, p.Text)
		}
	}
	switch {
	case all == nil && texts != nil:
		return []data{{[]byte(strings.Join(texts, "\n")), "text/plain"}}
	case all == nil && len(parts) == 0 && r.Structured != nil:
		return []data{{r.Structured, "application/json"}}
	}
	return all
}

// show prints the result of a tool, or saves it.
func show(c *cli.Context, tool, save string, raw json.RawMessage) error {
	var r result
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	tool = strings.TrimPrefix(tool, "browser_")
	var err error
	switch {
	case c.String("output") == "json":
		err = printJSON(c, raw)
	case c.Bool("json"):
		err = printValue(c, &r)
	case r.IsError:
		err = printParts(c, tool, c.Messages, r.Content)
	case save != "" && save != "-":
		err = saveAlone(c, tool, save, r.alone())
	case save == "-", c.Bool("raw"):
		err = printAlone(c, tool, r.alone())
	default:
		err = printParts(c, tool, text(c), r.Content)
		if len(r.Content) == 0 && r.Structured != nil && err == nil {
			err = printJSON(c, r.Structured)
		}
	}
	if err == nil && r.IsError {
		return exit.Status(cmp.Or(r.Meta.Exit, exit.Failed))
	}
	return err
}

// printValue prints the value of a result, or its error, and the page in a line of JSON.
func printValue(c *cli.Context, r *result) error {
	var out struct {
		Result any                `json:"result"`
		Error  string             `json:"error,omitempty"`
		Page   *results.PageState `json:"page,omitempty"`
	}
	out.Page = r.Meta.Page
	var values []any
	for _, d := range r.alone() {
		switch {
		case r.IsError:
			out.Error, _, _ = strings.Cut(strings.TrimPrefix(string(d.bytes), "### Error\n"), "\n### ")
		case d.kind == "application/json" && json.Valid(d.bytes):
			values = append(values, json.RawMessage(d.bytes))
		case d.isText():
			values = append(values, string(d.bytes))
		default:
			values = append(values, map[string]any{"mime_type": d.kind, "data": d.bytes})
		}
	}
	switch {
	case r.Structured != nil:
		out.Result = r.Structured
	case len(values) == 1:
		out.Result = values[0]
	case values != nil:
		out.Result = values
	}
	var raw bytes.Buffer
	plain := json.NewEncoder(&raw)
	plain.SetEscapeHTML(false)
	if err := plain.Encode(out); err != nil {
		return err
	}
	return printJSON(c, bytes.TrimSpace(raw.Bytes()))
}

// printJSON prints a line of JSON, in which a terminal finds no command.
func printJSON(c *cli.Context, raw json.RawMessage) error {
	if terminal.Is(c.Stdout) {
		raw = terminal.EscapeJSON(raw)
	}
	_, err := c.Stdout.Write(append(raw, '\n'))
	return err
}

// text returns where texts for standard output go.
func text(c *cli.Context) io.Writer {
	if terminal.Is(c.Stdout) {
		return safe{c.Stdout}
	}
	return c.Stdout
}

// saveAlone writes the data of a result to a file, or several pieces to numbered files, and prints their paths.
func saveAlone(c *cli.Context, tool, path string, all []data) error {
	if len(all) == 0 {
		return exit.Errorf(exit.Failed, "there is nothing to save: the result of %s is empty", tool)
	}
	ext := filepath.Ext(path)
	for i, d := range all {
		to := path
		if i > 0 {
			to = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ext), i+1, ext)
		}
		abs, err := c.Abs(to)
		if err == nil {
			err = writeFile(cmp.Or(c.Caller, context.Background()), abs, d.bytes)
		}
		if err == nil {
			_, err = fmt.Fprintln(text(c), to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes data to a file. It does not wait for a reader of a FIFO.
func writeFile(ctx context.Context, path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o666)
	if errors.Is(err, syscall.ENXIO) {
		return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("nobody reads %s", path),
			Hint: "start its reader first"}
	}
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { f.SetWriteDeadline(time.Unix(1, 0)) })() // of a reader that does not read
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// printAlone prints the data of a result and nothing else. A text gets a newline on a terminal, and
// among the commands of --once.
func printAlone(c *cli.Context, tool string, all []data) error {
	const hint = "--save FILE writes it to a file"
	switch {
	case len(all) == 0 && c.String("save") == "-":
		return saveAlone(c, tool, "", all)
	case len(all) == 0:
		return nil
	case len(all) > 1:
		return &exit.Error{Code: exit.Failed, Hint: "--save FILE writes each to a file",
			Err: fmt.Errorf("the result of %s is %d files: they cannot be printed one after the other", tool, len(all))}
	}
	d := all[0]
	var err error
	switch {
	case !terminal.Is(c.Stdout):
		if c.Bool("once") && d.isText() && !bytes.HasSuffix(d.bytes, []byte("\n")) {
			d.bytes = append(d.bytes, '\n')
		}
		_, err = c.Stdout.Write(d.bytes)
	case d.isText():
		_, err = fmt.Fprintln(text(c), strings.TrimSuffix(string(d.bytes), "\n"))
	default:
		draw := drawing(c)
		if draw == nil || d.kind != "image/png" {
			return &exit.Error{Code: exit.Failed, Hint: hint,
				Err: fmt.Errorf("the result of %s is data, which a terminal cannot show", tool)}
		}
		err = draw(c.Stdout, d.bytes)
	}
	return err
}

// printParts prints the texts of a result, saves its pictures and other data in new files, and prints their paths. The
// last line says where the rest of a text is that was cut.
func printParts(c *cli.Context, tool string, to io.Writer, parts []content) error {
	isCut := func(p content) bool { return strings.HasPrefix(p.Text, results.CutMark) }
	parts = append(slices.DeleteFunc(slices.Clone(parts), isCut), slices.DeleteFunc(slices.Clone(parts),
		func(p content) bool { return !isCut(p) })...)
	for i := range parts {
		d, ok := parts[i].binary()
		var draw func(io.Writer, []byte) error
		if ok && d.kind == "image/png" {
			draw = drawing(c)
		}
		var err error
		switch {
		case draw != nil:
			err = draw(c.Stdout, d.bytes)
		case ok:
			var path string
			if path, err = saveData(c, tool, d); err == nil {
				_, err = fmt.Fprintln(to, path)
			}
		default:
			_, err = fmt.Fprintln(to, parts[i].text())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// safe is a terminal, which takes no text of a page for a command.
type safe struct{ io.Writer }

func (s safe) Write(b []byte) (int, error) {
	if _, err := s.Writer.Write(terminal.Escape(b, true)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// saveData writes data to a new file in the working directory, and returns its path.
func saveData(c *cli.Context, tool string, d data) (string, error) {
	for n := 1; ; n++ {
		name := tool + "." + blobs.ExtOf(d.kind)
		if n > 1 {
			name = fmt.Sprintf("%s-%d.%s", tool, n, blobs.ExtOf(d.kind))
		}
		path, err := c.Abs(name)
		if err != nil {
			return "", err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("cannot save what %s returns (--save FILE names another place): %w", tool, err)
		}
		_, err = f.Write(d.bytes)
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(path)
		}
		return name, err
	}
}

// drawing returns the function that shows a PNG on standard output, nil unless that is a terminal which shows pictures.
func drawing(c *cli.Context) func(io.Writer, []byte) error {
	program := c.Getenv("TERM_PROGRAM")
	kitty := c.Getenv("KITTY_WINDOW_ID") != "" || c.Getenv("TERM") == "xterm-kitty" || program == "ghostty" ||
		program == "WezTerm"
	if !kitty || !terminal.Is(c.Stdout) {
		return nil
	}
	return func(w io.Writer, png []byte) error {
		if err := picture.Draw(w, png, ""); err != nil {
			return err
		}
		_, err := fmt.Fprintln(w)
		return err
	}
}
