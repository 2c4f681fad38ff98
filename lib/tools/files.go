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
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"btools/lib/jsonrpc"
)

// text is the result, or is saved in a file if there is a name for it.
func (r *reply) text(ctx context.Context, filename, shown, saved string) error {
	if filename == "" {
		r.say("%s", shown)
		r.value = &saved
		return nil
	}
	path, err := r.server.save(ctx, filename, []byte(saved))
	return r.says(err, "Saved as %s", path)
}

// returned is text for what a script has returned, in JSON: alone, a text has no quotes.
func (r *reply) returned(ctx context.Context, filename, value string) error {
	value = string(r.server.Secrets.MaskJSON([]byte(value))) // a number becomes a text
	err := r.text(ctx, filename, value, value)
	r.returns = value
	if r.value == nil {
		return err
	}
	word, _, _ := strings.Cut(value, " (") // of undefined, why
	if text := ""; json.Unmarshal([]byte(value), &text) == nil {
		r.value = &text
	} else if word == "undefined" {
		r.value, r.returns = &word, "null"
	}
	return err
}

// files are those that the agent may use.
type files struct {
	s       *Server
	canList bool              // the host lists its roots
	roots   *roots            // nil: the host is to be asked
	asked   map[string]*roots // by the ID of the request; nil: it was answered
}

// save writes a file in one of the directories that the agent may use. A relative
// name is one in the first of them.
func (f *files) save(ctx context.Context, name string, data []byte) (path string, err error) {
	path, err = f.writable(ctx, name)
	if err == nil {
		err = f.write(path, 0o644, data)
	}
	return path, err
}

// savePrivate saves what only the user is to read.
func (f *files) savePrivate(ctx context.Context, name string, data []byte) (path string, err error) {
	path, err = f.writable(ctx, name)
	if err == nil {
		err = f.write(path, 0o600, data)
	}
	return path, err
}

// write writes a file without secrets.
func (f *files) write(path string, mode fs.FileMode, data []byte) error {
	return f.saveAs(path, mode, bytes.NewReader(f.s.Secrets.Masked(data)),
		func(file string) error { return os.Rename(file, path) })
}

// writable is the path of a file that the agent may write.
func (f *files) writable(ctx context.Context, name string) (path string, err error) {
	roots, err := f.allowed(ctx)
	if err != nil {
		return "", err
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
func (f *files) saveAs(path string, mode fs.FileMode, data io.Reader, place func(file string) error) error {
	to, err := os.CreateTemp(filepath.Dir(path), ".btools-*")
	if err == nil {
		defer os.Remove(to.Name())
		_, err = io.Copy(to, data)
		if err = errors.Join(err, to.Chmod(mode), to.Close()); err == nil {
			err = place(to.Name())
		}
	}
	if err != nil {
		return fmt.Errorf("cannot save %s: %w", path, unwrapped(err))
	}
	return nil
}

// readable are the files' own paths, if the agent may read them. It may read what its
// session has downloaded, and any with AllFiles.
func (f *files) readable(ctx context.Context, names []string) (paths []string, err error) {
	isBound := func(path string) bool { return !f.s.AllFiles || !filepath.IsAbs(path) }
	var roots []string
	if slices.ContainsFunc(names, isBound) {
		if roots, err = f.allowed(ctx); err != nil {
			return nil, err
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
		if isBound(path) && !within(path, roots) && !f.s.hasDownloaded(ctx, path) {
			return nil, fmt.Errorf("%w (--allow-unrestricted-file-access of bmcp allows any)", outside(path, roots))
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// refusesFile says why a page may not show a file, nil if it may.
func (f *files) refusesFile(ctx context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") { // file:etc/passwd
		return fmt.Errorf("%s is not a file of this machine", address)
	}
	_, err = f.readable(ctx, []string{filepath.FromSlash(u.Path)})
	return err
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

// roots are those of the host, for all calls that need them.
type roots struct {
	known chan struct{} // closed when the host has answered
	dirs  []string
}

// allowed are the directories whose files the agent may use: the roots of its host, or,
// if that names none, the directory in which the host has started us.
func (f *files) allowed(ctx context.Context) (real []string, err error) {
	dirs, err := f.hostRoots(ctx)
	if err != nil {
		return nil, err
	}
	if len(dirs) == 0 && f.s.Dir != "" {
		dirs = []string{f.s.Dir}
	}
	err = errNoRoots
	for _, dir := range dirs {
		path, unusable := filepath.EvalSymlinks(dir)
		if unusable == nil {
			real = append(real, path)
		} else {
			err = fmt.Errorf("the directory %s, whose files may be used, cannot be: %w", dir, unwrapped(unusable))
		}
	}
	if len(real) == 0 {
		return nil, err
	}
	return real, nil
}

// hostRoots are the directories that the host names. It is asked once, and again when
// they have changed or it has not answered.
func (f *files) hostRoots(ctx context.Context) ([]string, error) {
	f.s.mu.Lock()
	if !f.canList {
		f.s.mu.Unlock()
		return nil, nil
	}
	r := f.roots
	if r == nil {
		r = &roots{known: make(chan struct{})}
		id := fmt.Sprintf("roots-%d", len(f.asked)+1)
		f.roots, f.asked[id] = r, r
		f.s.out.Write(jsonrpc.Request(json.RawMessage(`"`+id+`"`), "roots/list", nil), false)
	}
	f.s.mu.Unlock()
	timer := time.NewTimer(f.s.of(rootsTimeout))
	defer timer.Stop()
	select {
	case <-r.known:
		return r.dirs, nil
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if f.roots == r {
		f.roots = nil
	}
	return nil, fmt.Errorf("the host has not said within %v which directories may be used", f.s.of(rootsTimeout))
}

// listed notes the host's answer to a request for its roots. One that has none of them
// after all names none.
func (f *files) listed(id string, m *jsonrpc.Message) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	r := f.asked[id]
	if r == nil {
		return
	}
	f.asked[id] = nil
	for root := range jsonrpc.Elements(jsonrpc.Get(m.Result, "roots")) {
		u, err := url.Parse(jsonrpc.GetString(root, "uri"))
		if err == nil && u.Scheme == "file" {
			r.dirs = append(r.dirs, filepath.FromSlash(u.Path))
		}
	}
	close(r.known)
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
