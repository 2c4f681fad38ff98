// Package secrets has values that an agent names and does not learn: it reads their file, puts them in the place of
// their names in what is typed at the origins that the file names, and their names in the place of the values, in any
// usual spelling, in what comes back. What is typed, and what an agent is told, is known elsewhere.
package secrets

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"btools/lib/envfile"
	"btools/lib/exit"
	"btools/lib/forward/limits"
	"btools/lib/spell"
)

// MinLength is the least number of characters of a value: shorter ones are in too many texts that have nothing to do
// with them.
const MinLength = 6

// maxLength bounds values, in characters.
const maxLength = 10_000

// Set is the secrets of a file. Nil: there are none.
type Set struct {
	all      []secret
	patterns []pattern
	starts   [256][]int // the patterns that may begin with a byte
}

type secret struct {
	name, value string
	origins     []string // patterns, of package limits
}

// header begins a comment on the origins of the secrets after it.
const header = "origins"

// Read reads a file of NAME=VALUE that nobody else may read. In a comment "# origins: ORIGIN…" stands where the
// secrets that follow it may be typed. Errors have exit codes, and no text of the file.
func Read(path string) (*Set, error) {
	var why *fs.PathError
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // nobody may ever write into a pipe
	if errors.As(err, &why) {
		err = why.Err
	}
	if err != nil {
		return nil, exit.Errorf(exit.Config, "cannot read the secrets in %s: %v", path, err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, exit.Errorf(exit.Config, "cannot read the secrets in %s: %v", path, err)
	}
	if !st.Mode().IsRegular() {
		return nil, exit.Errorf(exit.Config, "the secrets in %s are in no file: give a regular file", path)
	}
	if mode := st.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, exit.Errorf(exit.Config, "others may read the secrets in %s, whose mode is %04o: chmod 600 %[1]s",
			path, mode)
	}
	text, err := io.ReadAll(f)
	if errors.As(err, &why) {
		err = why.Err
	}
	if err != nil {
		return nil, exit.Errorf(exit.Config, "cannot read the secrets in %s: %v", path, err)
	}
	s, err := parse(path, string(text))
	if err != nil {
		return nil, exit.Errorf(exit.Config, "cannot use the secrets: %v", err)
	}
	return s, nil
}

// parse reads the text of a file.
func parse(path, text string) (*Set, error) {
	type section struct {
		line    int
		origins []string
	}
	var sections []section
	var bad error
	all, err := envfile.Parse(path, text, func(at, comment string) {
		if comment == "" {
			return
		}
		word, rest, ok := strings.Cut(strings.ToLower(strings.TrimLeft(comment[1:], " \t")), ":")
		if ok && word != header && strings.Contains(rest, "://") && spell.Nearest(word, []string{header}) != "" {
			bad = errors.Join(bad, fmt.Errorf(`%s: write "# %s:" before origins`, at, header))
		}
		if !ok || word != header {
			return
		}
		origins := strings.FieldsFunc(rest, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
		if len(origins) == 0 {
			bad = errors.Join(bad, fmt.Errorf("%s: there is no origin after %q", at, header+":"))
		}
		for _, o := range origins {
			if err := limits.CheckPattern(o); err != nil {
				bad = errors.Join(bad, fmt.Errorf("%s: the origin %s %w", at, o, err))
			}
		}
		sections = append(sections, section{lineOf(at), origins})
	})
	if e, ok := errors.AsType[*envfile.SyntaxError](err); ok {
		return nil, errors.New(e.Untold())
	}
	if bad != nil {
		return nil, bad
	}
	s := &Set{}
	for _, v := range all {
		x := secret{name: v.Name, value: v.Value}
		for _, c := range sections {
			if c.line < lineOf(v.Source) {
				x.origins = c.origins
			}
		}
		n := utf8.RuneCountInString(strings.Join(strings.Fields(v.Value), " "))
		switch {
		case n == 0: // what stands for its name may be its value
			err = fmt.Errorf("%s: a name without a value", v.Source)
		case n < MinLength:
			err = fmt.Errorf("%s: %s has fewer than %d characters, which are in too many texts to be replaced there: "+
				"remove it, as a value so short is not kept from agents", v.Source, v.Name, MinLength)
		case n > maxLength:
			err = fmt.Errorf("%s: %s has more than %d characters", v.Source, v.Name, maxLength)
		case !utf8.ValidString(v.Value):
			err = fmt.Errorf("%s: %s is not UTF-8", v.Source, v.Name)
		case x.origins == nil:
			err = fmt.Errorf(`%s: no line before %s says where it may be typed: "# origins: https://shop.example `+
				`https://*.shop.example"`, v.Source, v.Name)
		case s.find(v.Name) != nil:
			err = fmt.Errorf("%s: %s stands before, too", v.Source, v.Name)
		}
		if err != nil {
			return nil, err
		}
		s.all = append(s.all, x)
	}
	if len(s.all) == 0 {
		return nil, fmt.Errorf("%s: there is no NAME=VALUE", path)
	}
	s.prepare()
	return s, nil
}

// lineOf returns the number of a line FILE:LINE.
func lineOf(at string) int {
	n, _ := strconv.Atoi(at[strings.LastIndexByte(at, ':')+1:])
	return n
}

func (s *Set) find(name string) *secret {
	i := slices.IndexFunc(s.all, func(x secret) bool { return x.name == name })
	if i < 0 {
		return nil
	}
	return &s.all[i]
}

// placeholder returns {{NAME}} at the beginning of a text, "" if another thing stands there, and its name.
func placeholder(text string) (whole, name string) {
	if !strings.HasPrefix(text, "{{") {
		return "", ""
	}
	n := 2
	for n < len(text) && (text[n] == '_' || isAlphanumeric(text[n])) {
		n++
	}
	if n == 2 || text[2] <= '9' || !strings.HasPrefix(text[n:], "}}") {
		return "", ""
	}
	return text[:n+2], text[2:n]
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Names returns the names in the placeholders of a text that are those of secrets, and an error if another one is not:
// the text cannot be typed.
func (s *Set) Names(text string) (names []string, err error) {
	for i := 0; s != nil && i < len(text); i++ {
		_, name := placeholder(text[i:])
		if name == "" {
			continue
		}
		if s.find(name) != nil {
			names = append(names, name)
		} else if err == nil {
			err = s.unknown(name)
		}
	}
	return names, err
}

func (s *Set) names() (all []string) {
	for _, x := range s.all {
		all = append(all, x.name)
	}
	return all
}

// String returns the names as they are typed: {{A}}, {{B}}.
func (s *Set) String() string { return "{{" + strings.Join(s.names(), "}}, {{") + "}}" }

func (s *Set) unknown(name string) error {
	known := s.names()
	near := ""
	if n := spell.Nearest(name, known); n != "" {
		near = ": did you mean {{" + n + "}}?"
	}
	return fmt.Errorf("there is no secret {{%s}}%s (there are %s)", name, near, strings.Join(known, ", "))
}

// Resolve returns a text with the values of secrets in the place of their names, for a document of an origin.
func (s *Set) Resolve(text, origin string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		whole, name := placeholder(text[i:])
		if name == "" {
			b.WriteByte(text[i])
			continue
		}
		x := s.find(name)
		if x == nil {
			return "", s.unknown(name)
		}
		if !x.isFor(origin) {
			return "", fmt.Errorf("{{%s}} is not for %s: the file of --secrets allows it on %s. Nothing was typed",
				name, origin, strings.Join(x.origins, ", "))
		}
		b.WriteString(x.value)
		i += len(whole) - 1
	}
	return b.String(), nil
}

// isFor reports whether a secret may be typed in documents of an origin, which is null if they have none.
func (x *secret) isFor(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	return limits.Limits{Allow: x.origins}.Server(u.Scheme, u.Hostname(), port) == nil
}
