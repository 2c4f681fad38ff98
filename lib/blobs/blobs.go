// Package blobs keeps binary and large data on disk, addressed by its SHA-256.
// All processes of a user share one directory: files appear whole, each process
// deletes what is too old or too much, and a file that is being read stays readable.
package blobs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"btools/lib/lazy"
	"btools/lib/private"
)

// Defaults of a Store.
const (
	MaxBytes   = 500_000_000
	TTL        = 24 * time.Hour
	cleanEvery = time.Hour
)

// leftover is the age at which a file that is being written belongs to a process
// that was killed.
const leftover = time.Hour

const (
	lockName  = "lock"
	newPrefix = "new-"
)

var (
	// ErrNotFound says that there is no blob with an address, or not any more.
	ErrNotFound = errors.New("there is no such blob (any more)")
	// ErrTooLarge says that a blob is larger than all may be.
	ErrTooLarge = errors.New("the data is too large to be kept")
)

// Store is a directory of blobs.
type Store struct {
	Dir string
	// Max is the number of bytes of all blobs: to make room, the oldest are
	// deleted. 0: MaxBytes.
	Max int64
}

// Blob is a blob in the store.
type Blob struct {
	Name    string // its SHA-256 in hex, a dot and an extension
	Size    int64
	Expires time.Time
}

// URI is the address of a blob: blob://NAME.
func (b Blob) URI() string { return Scheme + b.Name }

// MIMEType is the type that a blob's extension stands for.
func (b Blob) MIMEType() string { return TypeOf(strings.TrimPrefix(filepath.Ext(b.Name), ".")) }

// Scheme is the beginning of a blob's address.
const Scheme = "blob://"

var validName = lazy.Regexp(`^[0-9a-f]{64}\.[a-z0-9]{1,8}$`)

// IsURI reports whether a text is the address of a blob, whether there is one or
// not.
func IsURI(uri string) bool {
	_, err := nameIn(uri)
	return err == nil
}

// nameIn returns the name in an address.
func nameIn(uri string) (string, error) {
	name, ok := strings.CutPrefix(uri, Scheme)
	if !ok || !validName().MatchString(name) {
		return "", fmt.Errorf("%q is not the address of a blob: blob://SHA256.EXT", clip(uri))
	}
	return name, nil
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

// Put keeps data for 24 hours from now, with an extension that says what it is.
// An error is that of the disk, or ErrTooLarge.
func (s *Store) Put(ctx context.Context, data []byte, ext string) (Blob, error) {
	if s.Dir == "" {
		return Blob{}, errors.New("there is no directory for blobs")
	}
	sum := sha256.Sum256(data)
	b := Blob{Name: hex.EncodeToString(sum[:]) + "." + ext, Size: int64(len(data))}
	if !validName().MatchString(b.Name) {
		return Blob{}, fmt.Errorf("%q is not an extension", clip(ext))
	}
	if b.Size > s.max() {
		return Blob{}, fmt.Errorf("%w: it has %d bytes, and all blobs have at most %d", ErrTooLarge, b.Size, s.max())
	}
	if err := s.put(ctx, &b, data); err != nil {
		return Blob{}, fmt.Errorf("cannot keep a blob of %d bytes: %w", b.Size, err)
	}
	return b, nil
}

func (s *Store) put(ctx context.Context, b *Blob, data []byte) error {
	if err := private.MakeDir(s.Dir); err != nil {
		return err
	}
	if there, err := s.renew(ctx, b); there || err != nil {
		return err
	}
	next, err := write(s.Dir, data)
	if err != nil {
		return err
	}
	lock, err := private.LockFile(ctx, filepath.Join(s.Dir, lockName))
	if err != nil {
		os.Remove(next)
		return err
	}
	defer lock.Close()
	if err = s.cleanLocked(b.Size); err == nil {
		path := filepath.Join(s.Dir, b.Name)
		if err = os.Rename(next, path); err == nil {
			return s.date(b, path)
		}
	}
	os.Remove(next)
	return err
}

// renew starts the time of a blob anew, and reports whether it is there.
func (s *Store) renew(ctx context.Context, b *Blob) (there bool, err error) {
	lock, err := private.LockFile(ctx, filepath.Join(s.Dir, lockName))
	if err != nil {
		return false, err
	}
	defer lock.Close() // until then nobody deletes it
	path := filepath.Join(s.Dir, b.Name)
	if st, err := os.Lstat(path); err != nil || !st.Mode().IsRegular() || st.Size() != b.Size {
		return false, nil
	}
	return true, s.date(b, path)
}

func (s *Store) date(b *Blob, path string) error {
	now := time.Now()
	b.Expires = now.Add(TTL)
	return os.Chtimes(path, now, now)
}

// write writes data to a file of its own, until it is on the disk: a machine that
// stops must not leave half a blob with the whole one's name.
func write(dir string, data []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, newPrefix) // with mode 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}

// Open opens a blob for reading. It stays readable if it is deleted meanwhile.
func (s *Store) Open(uri string) (*os.File, Blob, error) {
	name, err := nameIn(uri)
	if err != nil {
		return nil, Blob{}, err
	}
	f, err := private.Open(filepath.Join(s.Dir, name), os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, Blob{}, fmt.Errorf("%w: %s", ErrNotFound, uri)
	}
	if err != nil {
		return nil, Blob{}, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, Blob{}, err
	}
	b := Blob{name, st.Size(), st.ModTime().Add(TTL)}
	if !b.Expires.After(time.Now()) {
		f.Close()
		return nil, Blob{}, fmt.Errorf("%w: %s", ErrNotFound, uri)
	}
	return f, b, nil
}

// Clean deletes the blobs whose time is over, the oldest ones if all are too
// many, and what killed writers have left.
func (s *Store) Clean(ctx context.Context) error {
	if _, err := os.Stat(s.Dir); errors.Is(err, fs.ErrNotExist) {
		return nil // it is made with the first blob
	}
	if err := private.CheckDir(s.Dir); err != nil {
		return err
	}
	lock, err := private.LockFile(ctx, filepath.Join(s.Dir, lockName))
	if err != nil {
		return err
	}
	defer lock.Close()
	return s.cleanLocked(0)
}

// cleanLocked makes room for a blob of so many bytes.
func (s *Store) cleanLocked(room int64) error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return err
	}
	var kept []fs.FileInfo
	var errs []error
	remove := func(name string) {
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	sum := room
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		age := time.Since(st.ModTime())
		switch {
		case strings.HasPrefix(e.Name(), newPrefix):
			if age > leftover {
				remove(e.Name())
			}
		case !validName().MatchString(e.Name()):
		case age >= TTL:
			remove(e.Name())
		default:
			kept = append(kept, st)
			sum += st.Size()
		}
	}
	slices.SortFunc(kept, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	for _, st := range kept {
		if sum <= s.max() {
			break
		}
		remove(st.Name())
		sum -= st.Size()
	}
	return errors.Join(errs...)
}

// KeepClean cleans now and every hour, until the context ends. It calls warn if
// that fails.
func (s *Store) KeepClean(ctx context.Context, warn func(error)) {
	every := time.NewTicker(cleanEvery)
	defer every.Stop()
	for {
		if err := s.Clean(ctx); err != nil && ctx.Err() == nil {
			warn(fmt.Errorf("cannot delete old blobs: %w", err))
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

func (s *Store) max() int64 {
	if s.Max == 0 {
		return MaxBytes
	}
	return s.Max
}
