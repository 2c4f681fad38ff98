// Package downloads keeps the files that one session has downloaded. The
// browser writes them to a directory of its own, each under a name that no page
// chooses; once the browser reports a file as complete, it is moved to the
// directory of the session, under the name that the page suggests. What the
// browser is told, and which download is whose, is the business of package
// virtual.
package downloads

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/record"
	"btools/lib/wait"
)

// States of a download.
const (
	InProgress = "in_progress"
	Complete   = "complete"
	Failed     = "failed"
)

// Reasons why a download has failed.
const (
	Interrupted = "interrupted" // by the network, the server or the disk
	Canceled    = "canceled"    // by the client, or by the end of the session
	Limit       = "limit"       // the session has downloaded too much
)

// Events of a download.
const (
	StartedEvent  = "download_started"
	CompleteEvent = "downloaded"
	FailedEvent   = "download_failed"
)

// File is a download of a session.
type File struct {
	GUID       string      `json:"guid"`
	Name       string      `json:"name"`
	State      string      `json:"state"`         // in_progress, complete, failed
	Why        string      `json:"why,omitempty"` // it failed: interrupted, canceled, limit
	URL        string      `json:"url"`
	Bytes      int64       `json:"bytes"` // so far
	SHA256     string      `json:"sha256,omitempty"`
	StartedAt  record.Time `json:"started_at"`
	DurationMS int64       `json:"duration_ms"`    // until it was complete or has failed
	Path       string      `json:"path,omitempty"` // of a complete file
}

const (
	// DefaultLimit bounds the bytes that a session downloads, unless the user
	// says otherwise.
	DefaultLimit = 1 << 30
	maxFiles     = 1000 // of a session
	maxURL       = 2048 // bytes of an address that are kept: a data: URL holds the file
)

// Options say where the files of a session go.
type Options struct {
	// Dir is the session's temporary directory, which New makes and Close
	// deletes.
	Dir string
	// Incoming is the directory to which the browser writes, if it is not in Dir.
	// Others may have files there.
	Incoming string
	// Keep is the directory of complete files, which outlive the session; "":
	// they are in Dir.
	Keep string
	// Limit bounds the bytes of all files of the session; 0: no bound.
	Limit int64
	// Tell, if not nil, is told of each download.
	Tell func(event string, f File)
}

// Files are the downloads of one session.
type Files struct {
	options Options

	mu      sync.Mutex
	files   []*File
	changed wait.Broadcast
	owner   string // who has claimed them; "": nobody
	closed  bool
	moving  sync.WaitGroup // files that are moved to the session's directory
	ended   chan struct{}  // closed by Close
}

// New makes the session's temporary directory.
func New(o Options) (*Files, error) {
	d := &Files{options: o, ended: make(chan struct{})}
	for _, dir := range []string{o.Dir, d.Incoming(), d.Dir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			os.RemoveAll(o.Dir)
			return nil, fmt.Errorf("cannot make the directory of the downloads: %w", err)
		}
	}
	return d, nil
}

// Incoming is the directory to which the browser writes, with the GUIDs of
// downloads as names.
func (d *Files) Incoming() string {
	if d.options.Incoming != "" {
		return d.options.Incoming
	}
	return filepath.Join(d.options.Dir, "incoming")
}

// Claim says where complete files are kept from now on and who is told of downloads,
// once for each owner: it is for a session that was made before its owner was known. An
// empty keep leaves the files in Dir.
func (d *Files) Claim(owner, keep string, tell func(event string, f File)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.owner == owner || d.closed {
		return nil
	}
	if keep != "" {
		if err := os.MkdirAll(keep, 0o700); err != nil {
			return fmt.Errorf("cannot make the directory of the downloads: %w", err)
		}
	}
	d.owner, d.options.Keep, d.options.Tell = owner, keep, tell
	return nil
}

// Dir is the directory of complete files.
func (d *Files) Dir() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.options.Keep != "" {
		return d.options.Keep
	}
	return filepath.Join(d.options.Dir, "downloads")
}

// Roots are the directories of the session itself.
func (d *Files) Roots() []string { return []string{d.options.Dir, d.Dir()} }

// Begin notes that a download has begun. It returns false if the session may
// have no more of them: the caller cancels it.
func (d *Files) Begin(guid, address, suggested string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.findLocked(guid) != nil {
		return true
	}
	f := &File{GUID: guid, Name: cleanName(suggested), State: InProgress, URL: shown(address), StartedAt: record.Now()}
	if len(d.files) >= maxFiles || d.closed {
		return false
	}
	d.files = append(d.files, f)
	d.tellLocked(StartedEvent, f)
	return true
}

// shown returns an address without credentials, and shortened.
func shown(address string) string {
	if u, err := url.Parse(address); err == nil && u.User != nil {
		u.User = nil
		address = u.String()
	}
	return strings.ToValidUTF8(cut(address, maxURL), "_")
}

func (d *Files) findLocked(guid string) *File {
	for _, f := range d.files {
		if f.GUID == guid {
			return f
		}
	}
	return nil
}

// tellLocked reports a change.
func (d *Files) tellLocked(event string, f *File) {
	d.changed.Wake()
	if d.options.Tell != nil {
		d.options.Tell(event, *f)
	}
}

// Progress notes how many bytes a download has so far, and how many it will
// have; 0: unknown. It returns false if that is more than the session may
// download: the caller cancels it.
func (d *Files) Progress(guid string, received, total int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.findLocked(guid)
	if f == nil || f.State != InProgress {
		return true
	}
	f.Bytes = max(received, 0)
	return d.fitsLocked(f, max(received, total))
}

// fitsLocked reports whether a file may have that many bytes.
func (d *Files) fitsLocked(f *File, bytes int64) bool {
	for _, other := range d.files {
		if other != f && other.State != Failed {
			bytes += other.Bytes
		}
	}
	return d.options.Limit == 0 || bytes <= d.options.Limit
}

// HasIncoming reports whether the browser writes a download to this session's
// directory.
func (d *Files) HasIncoming(guid string) bool {
	if !isGUID(guid) {
		return false
	}
	for _, suffix := range partial {
		if _, err := os.Lstat(filepath.Join(d.Incoming(), guid+suffix)); err == nil {
			return true
		}
	}
	return false
}

// partial are the endings of the names of a download.
var partial = []string{"", ".crdownload"}

// isGUID reports whether a GUID of the browser can be a file name.
func isGUID(guid string) bool {
	return guid != "" && len(guid) <= 64 && strings.Trim(guid, "-0123456789abcdefABCDEF") == ""
}

// ErrLimit means that a file is larger than the session may download.
var ErrLimit = errors.New("the session has downloaded too much")

// Move moves a file that the browser has completed to the session's directory,
// and returns its path.
func (d *Files) Move(guid string) (string, error) {
	if !isGUID(guid) {
		return "", fmt.Errorf("%q cannot be the name of a download", guid)
	}
	from := filepath.Join(d.Incoming(), guid)
	path, err := d.keep(guid, from, os.Rename)
	if err == nil {
		os.Remove(from) // if it was copied
	}
	return path, err
}

// Adopt puts a file that the browser has written elsewhere, where it stays, into
// the session's directory as well, and returns its path there.
func (d *Files) Adopt(guid, from string) (string, error) {
	if !filepath.IsAbs(from) {
		return "", fmt.Errorf("the browser has written the file to %q", from)
	}
	return d.keep(guid, from, linkOver)
}

// linkOver links a file in the place of another one.
func linkOver(from, to string) error {
	temp := to + ".link"
	if err := os.Link(from, temp); err != nil {
		return err
	}
	err := os.Rename(temp, to)
	if err != nil {
		os.Remove(temp)
	}
	return err
}

// keep puts a complete file into the session's directory.
func (d *Files) keep(guid, from string, move func(from, to string) error) (string, error) {
	st, err := os.Lstat(from)
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", from)
	}
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	f := d.findLocked(guid)
	if f == nil || f.State != InProgress || d.closed {
		d.mu.Unlock()
		return "", ErrEnded
	}
	f.Bytes = st.Size()
	fits := d.fitsLocked(f, st.Size())
	name := f.Name
	d.moving.Add(1)
	d.mu.Unlock()
	defer d.moving.Done()
	if !fits {
		return "", ErrLimit
	}
	path, err := place(from, d.Dir(), name, move)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.State != InProgress { // meanwhile
		os.Remove(path)
		return "", ErrEnded
	}
	f.Name, f.Path = filepath.Base(path), path
	return path, nil
}

// ErrEnded means that a download has failed before its file was kept.
var ErrEnded = errors.New("the download has ended")

// place puts a file into a directory under a name that no other file has there,
// by rename or link, or as a copy where that is another file system.
func place(from, dir, name string, move func(from, to string) error) (string, error) {
	for n := 0; n <= maxFiles; n++ {
		to := filepath.Join(dir, numbered(name, n))
		w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if err := moveOver(from, to, w, move); err != nil {
			os.Remove(to)
			return "", err
		}
		return to, nil
	}
	return "", fmt.Errorf("%s has too many files with the name %s", dir, name)
}

// moveOver moves a file over one that was just created, else copies it.
func moveOver(from, to string, w *os.File, move func(from, to string) error) error {
	if move != nil && move(from, to) == nil {
		return w.Close()
	}
	r, err := os.Open(from)
	if err != nil {
		w.Close()
		return err
	}
	defer r.Close()
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// Deliver puts a complete file into the directory that a client has asked for,
// which it makes if necessary: under this name exactly, or under a similar one
// if exact is false. Nothing there is overwritten.
func Deliver(path, dir, name string, exact bool) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name = cleanName(name)
	for n := 0; n <= maxFiles; n++ {
		to := filepath.Join(dir, numbered(name, n))
		err := os.Link(path, to)
		if err == nil {
			return to, nil
		}
		if errors.Is(err, fs.ErrExist) {
			if exact {
				return "", err
			}
			continue
		}
		break // another file system, or one without links
	}
	return place(path, dir, name, nil)
}

// Finish notes that a file is complete, after it has been moved. It computes
// its digest; where the file will not be kept, only until the session ends.
func (d *Files) Finish(ended <-chan struct{}, guid, path string) error {
	d.mu.Lock()
	if d.options.Keep != "" {
		ended = nil
	}
	d.mu.Unlock()
	sum, err := digest(ended, path)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.findLocked(guid)
	if f == nil || f.State != InProgress {
		return nil
	}
	f.State, f.SHA256 = Complete, sum
	f.DurationMS = time.Since(f.StartedAt.Time).Milliseconds()
	d.tellLocked(CompleteEvent, f)
	return nil
}

func digest(ended <-chan struct{}, path string) (string, error) {
	r, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := sha256.New()
	for !wait.Closed(ended) {
		switch _, err := io.CopyN(h, r, 1<<20); {
		case err == io.EOF:
			return hex.EncodeToString(h.Sum(nil)), nil
		case err != nil:
			return "", err
		}
	}
	return "", ErrClosed
}

// Fail notes that a download has failed, and deletes what there is of it.
func (d *Files) Fail(guid, why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.findLocked(guid); f != nil {
		d.failLocked(f, why)
	}
}

func (d *Files) failLocked(f *File, why string) {
	if f.State != InProgress {
		return
	}
	f.State, f.Why, f.DurationMS = Failed, why, time.Since(f.StartedAt.Time).Milliseconds()
	if isGUID(f.GUID) {
		for _, suffix := range partial {
			os.Remove(filepath.Join(d.Incoming(), f.GUID+suffix))
		}
	}
	if f.Path != "" {
		os.Remove(f.Path)
		f.Path = ""
	}
	d.tellLocked(FailedEvent, f)
}

// FailAll notes that the downloads in progress have failed.
func (d *Files) FailAll(why string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.files {
		d.failLocked(f, why)
	}
}

// List returns the downloads, the oldest first.
func (d *Files) List() []File {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listLocked()
}

func (d *Files) listLocked() []File {
	all := []File{}
	for _, f := range d.files {
		shown := *f
		if f.State != Complete {
			shown.Path = ""
		}
		all = append(all, shown)
	}
	return all
}

// ErrClosed means that the session has ended.
var ErrClosed = errors.New("the session has ended")

// Wait waits until there is a download, and none is in progress.
func (d *Files) Wait(ctx context.Context) ([]File, error) {
	for {
		d.mu.Lock()
		all, changed, closed := d.listLocked(), d.changed.Next(), d.closed
		d.mu.Unlock()
		switch {
		case len(all) > 0 && !slices.ContainsFunc(all, func(f File) bool { return f.State == InProgress }):
			return all, nil
		case closed:
			return all, ErrClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
	}
}

// Open opens a complete file; fs.ErrNotExist: there is none.
func (d *Files) Open(guid string) (*os.File, File, error) {
	d.mu.Lock()
	f := d.findLocked(guid)
	if f == nil || f.State != Complete {
		d.mu.Unlock()
		return nil, File{}, fs.ErrNotExist
	}
	file := *f
	d.mu.Unlock()
	r, err := os.Open(file.Path)
	return r, file, err
}

// Ended is closed by Close.
func (d *Files) Ended() <-chan struct{} { return d.ended }

// Close ends the downloads in progress and deletes the files that are not kept.
func (d *Files) Close() error {
	d.FailAll(Canceled)
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.ended)
		d.changed.Wake()
	}
	keep := d.options.Keep
	d.mu.Unlock()
	d.moving.Wait()
	if keep != "" {
		os.Remove(keep) // if it is empty
	}
	return os.RemoveAll(d.options.Dir)
}
