// Package find detects the installed browsers: where they may be, which real
// executable is behind a name, and which version it has, without running it.
package find

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"btools/lib/record"
)

// ErrNotFound says that a browser that was named is not there.
var ErrNotFound = errors.New("no such browser")

// Options say where to look and what to return.
type Options struct {
	Path    string   // an executable that comes first; an error if it cannot be executed
	Types   []string // only these types; empty: all
	Channel string   // only this channel
	All     bool     // also those that serve neither CDP nor BiDi
	First   bool     // only the best one
	Probe   bool     // ask each for its version, at most 3 s
	Getenv  func(string) string
	Home    string // the user's home directory
	Root    string // comes before each absolute place, "" outside of tests
}

// candidate is a file that may be a browser.
type candidate struct {
	path, source string
	kind         kind   // the zero kind: told by the file's name
	version      string // as its place tells
	remote       bool   // on the Windows side of WSL
}

type found struct {
	record.Browser
	rank, order int
	remote      bool
}

// compare orders browsers by all but their versions, the best first.
func (f found) compare(g found) int {
	return cmp.Or(compareBool(f.remote, g.remote), cmp.Compare(f.rank, g.rank),
		channelRank(f.Channel)-channelRank(g.Channel))
}

// Browsers returns the installed browsers, best first, and warnings of what
// the environment names in vain.
func Browsers(ctx context.Context, o Options) ([]record.Browser, []error, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	var list []candidate
	var warnings []error
	prefer := ""
	// name adds an executable that somebody names.
	name := func(path, source string) error {
		if err := executable(path); err != nil {
			return err
		}
		abs, err := filepath.Abs(path)
		list = append(list, candidate{path: abs, source: source})
		return err
	}
	if o.Path != "" {
		if err := name(o.Path, "flag"); err != nil {
			return nil, nil, fmt.Errorf("--path %s: %w", o.Path, err)
		}
	}
	if v := o.Getenv("BTOOLS_BROWSER"); !strings.ContainsRune(v, filepath.Separator) {
		prefer = record.Canonical(v)
	} else if err := name(v, "env"); err != nil {
		err = fmt.Errorf("BTOOLS_BROWSER %s: %w", v, err)
		if o.Path == "" && len(o.Types) == 0 {
			return nil, nil, err
		}
		warnings = append(warnings, err) // what was asked for goes before it
	}
	if v := o.Getenv("CHROME_PATH"); v != "" {
		if err := name(v, "env"); err != nil {
			warnings = append(warnings, fmt.Errorf("CHROME_PATH %s: %w", v, err))
		}
	}
	explicit := len(list)
	list = append(list, places(&o)...)

	vs := &versions{root: o.Root}
	var all []found
	seen := map[string]bool{}
	for i, c := range list {
		// Without a home directory some places are relative ones.
		if i >= explicit && (!filepath.IsAbs(c.path) || executable(c.path) != nil) {
			continue
		}
		real := resolve(c.path, o.Root)
		if seen[real] {
			continue
		}
		seen[real] = true
		k := c.kind
		if k.typ == "" {
			k = identify(real)
		}
		f := found{Browser: k.browser(real, c.source), rank: slices.Index(record.Types, k.typ), remote: c.remote}
		if f.rank < 0 {
			f.rank = len(record.Types)
		}
		f.order = i
		if i < explicit {
			f.rank = -len(list) + i
		} else if prefer != "" && k.typ == prefer {
			f.rank = -1
		}
		f.Version = c.version
		all = append(all, f)
	}
	all = slices.DeleteFunc(all, func(f found) bool {
		return len(o.Types) > 0 && !slices.Contains(o.Types, f.Type) || o.Channel != "" && f.Channel != o.Channel ||
			!o.All && len(f.Protocols) == 0
	})
	there := slices.ContainsFunc(all, func(f found) bool { return f.Type == prefer })
	if o.First && len(all) > 0 { // the versions of others need not be known
		best := slices.MinFunc(all, found.compare)
		all = slices.DeleteFunc(all, func(f found) bool { return f.compare(best) > 0 })
	}
	for i := range all {
		if f := &all[i]; f.Version == "" {
			f.Version = vs.of(f.Path)
		}
	}
	if o.Probe {
		probe(ctx, all)
	}
	slices.SortStableFunc(all, func(a, b found) int {
		return cmp.Or(a.compare(b), -compareVersions(a.Version, b.Version), cmp.Compare(a.order, b.order))
	})
	if o.First && len(all) > 1 {
		all = all[:1]
	}
	out := make([]record.Browser, len(all))
	for i, f := range all {
		out[i] = f.Browser
	}
	if prefer != "" && len(o.Types) == 0 && !there {
		return nil, warnings, fmt.Errorf("BTOOLS_BROWSER %s: %w", prefer, ErrNotFound)
	}
	return out, warnings, nil
}

// Inspect describes the browser that one executable is.
func Inspect(path, source string) (record.Browser, error) {
	if err := executable(path); err != nil {
		return record.Browser{}, fmt.Errorf("cannot use %s: %w", path, err)
	}
	real := resolve(path, "")
	k := identify(real)
	b := k.browser(real, source)
	b.Version = (&versions{}).of(real)
	return b, nil
}

// executable tells why a path can't be run, nil if it can.
func executable(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: there is no such file", ErrNotFound)
	case err != nil:
		return fmt.Errorf("%w: %v", ErrNotFound, err)
	case !st.Mode().IsRegular():
		return fmt.Errorf("%w: it is not a file", ErrNotFound)
	case st.Mode()&0o111 == 0 && !strings.HasSuffix(strings.ToLower(path), ".exe"):
		return fmt.Errorf("%w: it is not executable", ErrNotFound)
	}
	return nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Channels lists the channels of browsers: what most people run comes first.
var Channels = []string{"stable", "esr", "beta", "dev", "canary", "testing"}

func channelRank(c string) int { return slices.Index(Channels, c) }

// compareVersions compares numbers between dots.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		var x, y int
		if i < len(as) {
			x, _ = strconv.Atoi(as[i])
		}
		if i < len(bs) {
			y, _ = strconv.Atoi(bs[i])
		}
		if x != y {
			return cmp.Compare(x, y)
		}
	}
	return 0
}
