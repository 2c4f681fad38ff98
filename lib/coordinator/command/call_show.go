package command

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"image/png"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-sixel"

	"btools/lib/blobs"
	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/terminal"
)

// content is a part of a tool's result.
type content struct {
	Type, Text, Data, MIMEType string
	Resource                   struct{ Text, Blob, MIMEType string }
}

// binary is what a part has that is no text; false: nothing.
func (p *content) binary() (data []byte, kind string, ok bool) {
	text, kind := p.Data, p.MIMEType
	if text == "" {
		text, kind = p.Resource.Blob, p.Resource.MIMEType
	}
	data, err := base64.StdEncoding.DecodeString(text)
	return data, kind, err == nil && len(data) > 0
}

// show prints the result of a tool: its text, and where its pictures and other data are saved.
func show(c *cli.Context, tool string, result json.RawMessage) error {
	var r struct {
		IsError bool
		Content []content
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return err
	}
	if c.String("output") == "json" {
		if _, err := fmt.Fprintf(c.Stdout, "%s\n", result); err != nil {
			return err
		}
	} else if err := showParts(c, tool, r.Content, r.IsError); err != nil {
		return err
	}
	if r.IsError {
		return exit.Status(exit.Failed)
	}
	return nil
}

// showParts prints texts to standard output; or to standard error if they say why the tool has failed or if data goes
// to standard output; or to the file of --save if there is no data.
func showParts(c *cli.Context, tool string, parts []content, failed bool) error {
	save, text := c.String("save"), io.Writer(c.Stdout)
	hasData := slices.ContainsFunc(parts, func(p content) bool {
		_, _, ok := p.binary()
		return ok
	})
	switch {
	case failed, save == "-" && hasData:
		text = c.Messages
	case save != "" && save != "-" && !hasData:
		f, err := os.Create(save)
		if err != nil {
			return err
		}
		defer f.Close()
		text = f
	case terminal.Is(c.Stdout):
		text = safe{c.Stdout}
	}
	for i := range parts {
		p := &parts[i]
		data, kind, ok := p.binary()
		var draw func(io.Writer, []byte) error
		if ok && save == "" && kind == "image/png" {
			draw = drawing(c)
		}
		var err error
		switch {
		case ok && save == "-":
			_, err = c.Stdout.Write(data)
		case draw != nil:
			err = draw(c.Stdout, data)
		case ok:
			var path string
			if path, err = saveData(save, strings.TrimPrefix(tool, "browser_"), kind, data); err == nil {
				_, err = fmt.Fprintln(text, path)
			}
		default:
			_, err = fmt.Fprintln(text, strings.TrimRight(p.Text+p.Resource.Text, "\n"))
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

// saveData writes data to a file, by default a new one in the working directory, and returns its path.
func saveData(path, tool, kind string, data []byte) (string, error) {
	if path != "" {
		return path, os.WriteFile(path, data, 0o666)
	}
	for n := 1; ; n++ {
		name := tool + "." + blobs.ExtOf(kind)
		if n > 1 {
			name = fmt.Sprintf("%s-%d.%s", tool, n, blobs.ExtOf(kind))
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("cannot save what %s returns (--save FILE names another place): %w", tool, err)
		}
		_, err = f.Write(data)
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(name)
		}
		return name, err
	}
}

// drawing is what shows a PNG on standard output, nil if that is no terminal or one that shows no pictures.
func drawing(c *cli.Context) func(io.Writer, []byte) error {
	program := c.Getenv("TERM_PROGRAM")
	switch {
	case !terminal.Is(c.Stdout):
		return nil
	case c.Getenv("KITTY_WINDOW_ID") != "", c.Getenv("TERM") == "xterm-kitty", program == "ghostty",
		program == "WezTerm":
		return drawKitty
	case terminal.Foreground() && sixel.IsSupported(): // the terminal is asked, and has a second to answer
		return drawSixel
	}
	return nil
}

// drawSixel shows a PNG on a terminal that takes sixels.
func drawSixel(w io.Writer, data []byte) error {
	picture, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if err := sixel.NewEncoder(w).Encode(picture); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w)
	return err
}

// drawKitty shows a PNG on a terminal with the graphics protocol of kitty.
func drawKitty(w io.Writer, png []byte) error {
	const most = 4096 // bytes of Base64 in one piece
	data := base64.StdEncoding.EncodeToString(png)
	for first := true; first || data != ""; first = false {
		piece := data[:min(most, len(data))]
		data = data[len(piece):]
		head, more := "", 0
		if first {
			head = "a=T,f=100,"
		}
		if data != "" {
			more = 1
		}
		if _, err := fmt.Fprintf(w, "\x1b_G%sm=%d;%s\x1b\\", head, more, piece); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}
