// Package tokens reads the tokens by which clients on other machines are known, and follows the file that they stand
// in. It keeps no token, but its SHA-256.
package tokens

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Token is who a client is, and what it may do.
type Token struct {
	Name  string
	Pools []string // that it may lease from; nil: all
	Max   int      // leases at once; 0: any number
	Admin bool     // it may do what the operator may
	Line  int      // where it stands
	Trust bool     // it may lease whole browsers, which read the files of the service's user

	sum [sha256.Size]byte
}

const (
	// standard is the name of the token in a file with one word.
	standard = "default"
	// minToken is how many characters a token has at least, if it is not alone.
	minToken = 16
	// maxFile bounds a file, in bytes.
	maxFile = 1 << 20
	// look is how often a file is looked at.
	look = time.Second
)

// Parse returns the tokens of a file, each a line NAME TOKEN [pools=A,B] [max=N] [admin] [trust]. # begins a comment.
// One word alone is a token with the name default. An error has no token, but its line.
func Parse(text string) ([]Token, error) {
	if words := strings.Fields(text); len(words) == 1 && !strings.ContainsAny(words[0], "&#") {
		return []Token{{Name: standard, sum: sha256.Sum256([]byte(words[0]))}}, nil
	}
	var all []Token
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		t, err := parseLine(words)
		for _, o := range all {
			switch {
			case err != nil:
			case o.Name == t.Name:
				err = fmt.Errorf("the name %s is there already", t.Name)
			case o.sum == t.sum:
				err = fmt.Errorf("%s has the token of %s", t.Name, o.Name)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		t.Line = n
		all = append(all, t)
	}
	if len(all) == 0 {
		return nil, errors.New("it has no token: each line is NAME TOKEN [pools=A,B] [max=N] [admin] [trust]")
	}
	return all, nil
}

// parseLine reads the words of a line.
func parseLine(words []string) (t Token, err error) {
	if t.Name = words[0]; !isName(t.Name) {
		return t, errors.New("a name has letters, digits, '.', '_' and '-', 64 at most")
	}
	switch {
	case len(words) == 1:
		return t, errors.New("a line is NAME TOKEN [pools=A,B] [max=N] [admin] [trust]")
	case len(words[1]) < minToken:
		return t, fmt.Errorf("the token, its second word, has less than %d characters", minToken)
	case strings.Contains(words[1], "&"):
		return t, errors.New("the token has an &, which ends it in an address")
	}
	t.sum = sha256.Sum256([]byte(words[1]))
	seen := map[string]bool{}
	for _, w := range words[2:] {
		key, value, given := strings.Cut(w, "=")
		if seen[key] {
			return t, fmt.Errorf("%s is there twice", key)
		}
		seen[key] = true
		switch {
		case key == "admin" && !given:
			t.Admin = true
		case key == "trust" && !given:
			t.Trust = true
		case key == "pools" && value != "":
			t.Pools = strings.Split(value, ",")
		case key == "max":
			if t.Max, err = strconv.Atoi(value); err != nil || t.Max < 1 {
				return t, errors.New("max is a number from 1 on")
			}
		default:
			return t, errors.New("after the token come pools=A,B, max=N, admin and trust")
		}
	}
	return t, nil
}

func isName(s string) bool {
	return len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}

// File is a file of tokens.
type File struct {
	path  string
	check func([]Token) error
	all   atomic.Pointer[[]Token]
	seen  fs.FileInfo
	told  string // the error that was logged last
	log   *slog.Logger
}

// Open reads a file. check, if not nil, returns what is wrong with its tokens otherwise.
func Open(path string, check func([]Token) error, log *slog.Logger) (*File, error) {
	f := &File{path: path, check: check, log: log}
	return f, f.read()
}

// First returns the first token of a file, for a client.
func First(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the token: %w", err)
	}
	if _, err := Parse(string(b)); err != nil {
		return "", fmt.Errorf("cannot use the tokens in %s: %w", path, err)
	}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			return words[min(1, len(words)-1)], nil
		}
	}
	return "", nil
}

// read reads the file.
func (f *File) read() error {
	file, err := os.Open(f.path)
	if err != nil {
		return fmt.Errorf("cannot read the tokens: %w", err)
	}
	defer file.Close()
	st, err := file.Stat()
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(file, maxFile+1))
	}
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	var all []Token
	if err == nil {
		all, err = Parse(string(text))
	}
	if err == nil && f.check != nil {
		err = f.check(all)
	}
	if err != nil {
		return fmt.Errorf("cannot use the tokens in %s: %w", f.path, err)
	}
	if st.Mode().Perm()&0o004 != 0 {
		f.log.Warn("all users of this machine can read the tokens: chmod o-r", "file", f.path)
	}
	if f.seen = st; !st.Mode().IsRegular() {
		f.path = "" // a pipe is read once
	}
	f.all.Store(&all)
	return nil
}

// Find returns the token that one of the words is, nil if none is. It compares all words with all tokens, always.
func (f *File) Find(words []string) (found *Token) {
	all := *f.all.Load()
	for _, w := range words {
		sum := sha256.Sum256([]byte(w))
		for i := range all {
			if subtle.ConstantTimeCompare(sum[:], all[i].sum[:]) == 1 {
				found = &all[i]
			}
		}
	}
	return found
}

// Names returns the names of the tokens.
func (f *File) Names() (names []string) {
	for _, t := range *f.all.Load() {
		names = append(names, t.Name)
	}
	return names
}

// Has reports whether the file has a token still.
func (f *File) Has(t *Token) bool {
	for _, o := range *f.all.Load() {
		if o.sum == t.sum && o.Name == t.Name {
			return true
		}
	}
	return false
}

// Follow looks at the file each second until the context ends, and then calls a function. What is invalid changes
// nothing.
func (f *File) Follow(ctx context.Context, looked func()) {
	if f.path == "" {
		return
	}
	for every := time.NewTicker(look); ; {
		select {
		case <-every.C:
		case <-ctx.Done():
			every.Stop()
			return
		}
		st, err := os.Stat(f.path)
		if err != nil {
			err = fmt.Errorf("cannot read the tokens: %w", err)
		} else if !os.SameFile(st, f.seen) || st.ModTime() != f.seen.ModTime() || st.Size() != f.seen.Size() {
			err = f.read()
			if err == nil {
				f.log.Info("read the tokens again", "file", f.path, "tokens", len(*f.all.Load()))
			}
		}
		now := ""
		if err != nil {
			now = err.Error()
		}
		if now != f.told && now != "" {
			f.log.Error("the tokens stay as they were: " + now)
		}
		f.told = now
		looked()
	}
}
