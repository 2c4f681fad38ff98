package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/har"
	"btools/lib/spell"
)

// HAR writes the archive of traces to standard output.
func HAR(c *cli.Context) error {
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	take := func(f *os.File, err error) error {
		if err != nil {
			return &exit.Error{Code: exit.Data, Err: fmt.Errorf("cannot read the trace: %w", err)}
		}
		open = append(open, f)
		return nil
	}
	hidden, err := flags.ReadSecrets(c)
	if err != nil {
		return err
	}
	paths, err := tracesOf(c.Args())
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := take(openWhole(os.Open(path))); err != nil {
			return err
		}
	}
	if c.Dash() || len(paths) == 0 {
		if !c.Dash() && c.AtTerminal() {
			return c.UsageError("expected traces, the FILE or directory of --trace; or one on standard input")
		}
		paths = append(paths, "standard input")
		if err := take(openWhole(c.Stdin, nil)); err != nil {
			return err
		}
	}
	var traces []har.Trace
	for _, f := range open {
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("cannot read the trace: %w", err)
		}
		traces = append(traces, har.Trace{ReaderAt: f, Size: info.Size()})
	}
	sum, err := har.Convert(traces, har.Options{By: har.Creator{Name: "bproxy", Version: cli.Release()},
		Page: c.String("page"), Logins: c.Bool("with-logins"), Mask: hidden.MaskJSON}, c.Stdout)
	if sum.Damaged > 0 {
		c.Log.Warn("skipped in the traces, damaged or cut off: " + spell.Count(sum.Damaged, "line"))
	}
	if errors.Is(err, har.ErrNoNetwork) {
		return &exit.Error{Code: exit.Data, Err: fmt.Errorf("cannot convert %s: %w", strings.Join(paths, ", "), err),
			Hint: "the client must have enabled the Network domain, as Playwright and Puppeteer do; BiDi has none"}
	}
	if none := (*har.NoPageError)(nil); errors.As(err, &none) {
		e := &exit.Error{Code: exit.Data, Err: err, Hint: "there are: " + strings.Join(none.Pages, ", ")}
		if len(none.Pages) == 0 {
			e.Hint = "there is no page at all: the requests belong to none"
		}
		return e
	}
	return err
}

// tracesOf returns the paths of traces: a directory stands for those that it has, at any
// depth.
func tracesOf(args []string) (paths []string, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil || !info.IsDir() {
			paths = append(paths, arg) // what is wrong with it is told when it is opened
			continue
		}
		n := len(paths)
		err = filepath.WalkDir(arg, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && filepath.Ext(path) == ".jsonl" {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			return nil, exit.Errorf(exit.Data, "cannot read the traces in %s: %v", arg, err)
		}
		if len(paths) == n {
			return nil, exit.Errorf(exit.Data, "there are no traces in %s: none of its files ends in .jsonl", arg)
		}
	}
	return paths, nil
}

// openWhole returns a trace that can be read twice: a copy of one that is no regular file.
func openWhole(f *os.File, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || info.Mode().IsRegular() {
		return f, err
	}
	defer f.Close()
	whole, err := os.CreateTemp("", "btools-trace-")
	if err != nil {
		return nil, err
	}
	os.Remove(whole.Name())
	if _, err := io.Copy(whole, f); err != nil {
		whole.Close()
		return nil, err
	}
	return whole, nil
}
