package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"btools/lib/jsonrpc"
)

// text is the result, or is saved in a file if there is a name for it.
func (r *reply) text(ctx context.Context, filename, shown, saved string) error {
	if filename == "" {
		r.say("%s", shown)
		return nil
	}
	path, err := r.save(ctx, filename, []byte(saved))
	if err == nil {
		r.say("Saved as %s", path)
	}
	return err
}

// save writes a file in one of the directories that the agent may use. A relative
// name is one in the first of them.
func (r *reply) save(ctx context.Context, name string, data []byte) (path string, err error) {
	path, err = r.writable(ctx, name)
	if err == nil {
		err = r.saveAs(path, 0o644, bytes.NewReader(data), func(file string) error { return os.Rename(file, path) })
	}
	return path, err
}

// savePrivate saves what only the user is to read.
func (r *reply) savePrivate(ctx context.Context, name string, data []byte) (path string, err error) {
	path, err = r.writable(ctx, name)
	if err == nil {
		err = r.saveAs(path, 0o600, bytes.NewReader(data), func(file string) error { return os.Rename(file, path) })
	}
	return path, err
}

// writable is the path of a file that the agent may write.
func (r *reply) writable(ctx context.Context, name string) (path string, err error) {
	roots := r.server.allowed(ctx)
	if len(roots) == 0 {
		return "", errNoRoots
	}
	if path = name; !filepath.IsAbs(path) {
		path = filepath.Join(roots[0], path)
	}
	dir, err := madeWithin(filepath.Dir(path), roots)
	if err != nil {
		return "", fmt.Errorf("cannot save %s: %w", name, unwrapped(err))
	}
	path = filepath.Join(dir, filepath.Base(path))
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return "", fmt.Errorf("cannot save %s: there is something that is not a file", name)
	}
	if !within(path, roots) {
		return "", outside(path, roots)
	}
	return path, nil
}

// madeWithin is a directory without symbolic links, which is made if it is missing and
// belongs in one of the roots.
func madeWithin(dir string, roots []string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
		return real, err
	}
	above, missing := madeWithin(filepath.Dir(dir), roots)
	if real = filepath.Join(above, filepath.Base(dir)); missing != nil || !within(real, roots) {
		return "", err
	}
	if made := os.Mkdir(real, 0o755); errors.Is(made, fs.ErrExist) { // a link, or somebody else was first
		return filepath.EvalSymlinks(real)
	} else if made != nil {
		return "", made
	}
	return real, nil
}

// saveAs writes a file beside a path, and has place put it there.
func (r *reply) saveAs(path string, mode fs.FileMode, data io.Reader, place func(file string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".btools-*")
	if err == nil {
		defer os.Remove(f.Name())
		_, err = io.Copy(f, data)
		if err = errors.Join(err, f.Chmod(mode), f.Close()); err == nil {
			err = place(f.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("cannot save %s: %w", path, unwrapped(err))
	}
	return nil
}

// readable are the files' own paths, if the agent may read them. It may read what its
// session has downloaded.
func (r *reply) readable(ctx context.Context, names []string) (paths []string, err error) {
	var roots []string
	if len(names) > 0 {
		if roots = r.server.allowed(ctx); len(roots) == 0 {
			return nil, errNoRoots
		}
	}
	for _, name := range names {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(roots[0], path)
		}
		path, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, unwrapped(err))
		}
		if !within(path, roots) && !r.server.hasDownloaded(ctx, path) {
			return nil, outside(path, roots)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// refusesFile says why a page may not show a file, nil if it may.
func (s *Server) refusesFile(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") { // file:etc/passwd
		return fmt.Errorf("%s is not a file of this machine", address)
	}
	if _, err = (&reply{server: s}).readable(ctx, []string{filepath.FromSlash(u.Path)}); err != nil {
		return fmt.Errorf("%w (--allow-unrestricted-file-access of bmcp has pages show any file)", err)
	}
	return nil
}

var errNoRoots = errors.New("there is no directory whose files may be used: the host has named no root, and has " +
	"not started bmcp in the directory of a project")

func outside(path string, roots []string) error {
	return fmt.Errorf("%s may not be used: files are to be in %s", path, strings.Join(roots, " or "))
}

func within(path string, roots []string) bool {
	for _, root := range roots {
		if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

func unwrapped(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// rootsTimeout is how long a host may take to list its roots.
const rootsTimeout = 5 * time.Second

// allowed are the directories whose files the agent may use: the roots of its host,
// or else the directory in which the host has started us.
func (s *Server) allowed(ctx context.Context) []string {
	s.mu.Lock()
	roots, ask := s.roots, s.canList && s.roots == nil
	answer := make(chan json.RawMessage, 1)
	if ask {
		s.asked["roots"] = answer
	}
	s.mu.Unlock()
	if ask {
		s.out.Write(jsonrpc.Request(json.RawMessage(`"roots"`), "roots/list", nil), false)
		timer := time.NewTimer(rootsTimeout)
		defer timer.Stop()
		select {
		case raw := <-answer:
			for root := range jsonrpc.Elements(jsonrpc.Get(raw, "roots")) {
				u, err := url.Parse(jsonrpc.GetString(root, "uri"))
				if err == nil && u.Scheme == "file" {
					roots = append(roots, filepath.FromSlash(u.Path))
				}
			}
			s.mu.Lock()
			s.roots = roots
			s.mu.Unlock()
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if len(roots) == 0 && s.Dir != "" {
		roots = []string{s.Dir}
	}
	var real []string
	for _, root := range roots {
		if path, err := filepath.EvalSymlinks(root); err == nil {
			real = append(real, path)
		}
	}
	return real
}

// typeOf is the type of an image that a file's name says.
func typeOf(name string) string {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".jpg", ".jpeg":
		return "jpeg"
	case ".webp":
		return "webp"
	}
	return "png"
}

func isText(b []byte) bool { return utf8.Valid(b) && !strings.ContainsRune(string(b), 0) }
