// Package evidence has a browser recorded while a command runs with it, for the case
// that the command fails. A sibling records, "bproxy record", by package recorder: its
// files are finished even if this program is killed.
package evidence

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"btools/lib/devtools"
	"btools/lib/exit"
	"btools/lib/owned"
	"btools/lib/record"
	"btools/lib/sibling"
	"btools/lib/tail"
)

// Request is the first line that a recorder reads. After it comes Keep or Drop; the end of
// its input is Keep.
type Request struct {
	URL  string `json:"url"`  // the browser's WebSocket
	Dir  string `json:"dir"`  // which gets a directory for the recording
	Name string `json:"name"` // of that directory; with a number if there is one already
	// Logins are in the archive: cookies, headers that authorize, and passwords.
	Logins bool `json:"logins,omitempty"`
	// Secrets is a file of values that are not in the recording; "": there is none.
	Secrets string `json:"secrets,omitempty"`
}

// Answer is a line that a recorder prints: once it records, and at its end.
type Answer struct {
	Path    string   `json:"path"`    // of the recording
	Missing []string `json:"missing"` // at the end: what could not be recorded
}

// What becomes of a recording.
const (
	Keep = "keep"
	Drop = "drop"
)

// Bounds of the start of a recording, which a recorder keeps itself, and of its end; and
// how much longer a recorder is waited for that is to end at once.
const (
	StartTimeout = 15 * time.Second
	endTimeout   = time.Minute
	margin       = 5 * time.Second
)

// Evidence is that of one command.
type Evidence struct {
	Dir    string
	Always bool // it is kept, whether or not the command fails
	Logins bool // they are in it
	// Secrets is a file of values that are not in it; "": there is none.
	Secrets string
	Log     *slog.Logger

	mu         sync.Mutex
	over       bool
	made       bool            // there was no Dir before
	urls       map[string]bool // those that are recorded
	busy       sync.WaitGroup  // with starts and ends
	recordings []*recording
	finished   []string // the paths of those that have ended
}

// recording is one that runs.
type recording struct {
	url     string
	process *owned.Process
	pipe    *os.File
	out     *bufio.Reader // of the pipe
	said    *tail.Tail
	path    string
}

// Check reports why there can be no recording in a directory, before anything is launched
// for a command. It leaves nothing.
func Check(dir string) error {
	_, none := os.Stat(dir)
	probe, err := MakeDir(dir, ".btools")
	if err != nil {
		return fmt.Errorf("cannot record evidence: %w", err)
	}
	os.Remove(probe)
	if none != nil {
		os.Remove(dir)
	}
	return nil
}

// MakeDir makes a directory of a name that none has yet: with a number if one has.
func MakeDir(dir, name string) (path string, err error) {
	path = filepath.Join(dir, name)
	for n := 2; ; {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		err := os.Mkdir(path, 0o700)
		switch {
		case os.IsExist(err):
			path = filepath.Join(dir, fmt.Sprintf("%s-%d", name, n))
			n++
		case !os.IsNotExist(err): // another program may have deleted it, which was empty
			return path, err
		}
	}
}

// Add has a browser or session recorded from now on, by this name.
func (e *Evidence) Add(ctx context.Context, name string, i record.Instance) error {
	if e == nil {
		return nil
	}
	switch {
	case i.Protocol == record.BiDi:
		e.Log.Warn("no evidence of " + name + " is recorded: Firefox has one client at a time, which is CMD")
		return nil
	case i.WSURL == "" && i.Port != 0:
		v, err := devtools.GetVersion(ctx, sibling.Addr(i))
		if err != nil {
			return fmt.Errorf("cannot record evidence: %w", err)
		}
		i.WSURL = v.WSURL
	}
	if !e.begin(i.WSURL) {
		return nil
	}
	defer e.busy.Done()
	r, err := start(ctx, Request{URL: i.WSURL, Dir: e.Dir, Name: cmp.Or(Slug(name), "command"),
		Logins: e.Logins, Secrets: e.Secrets})
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		delete(e.urls, i.WSURL)
		return fmt.Errorf("cannot record evidence: %w", err)
	}
	e.recordings = append(e.recordings, r)
	return nil
}

// begin reports whether a browser is to be recorded that is not yet.
func (e *Evidence) begin(url string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.urls[url] {
		return false
	}
	if e.urls == nil {
		e.urls = map[string]bool{}
		_, err := os.Stat(e.Dir)
		e.made = os.IsNotExist(err)
	}
	e.urls[url] = true
	e.busy.Add(1)
	return true
}

// Ended finishes the recording of a session that has ended before the command.
func (e *Evidence) Ended(url string) {
	e.mu.Lock()
	at := slices.IndexFunc(e.recordings, func(r *recording) bool { return r.url == url })
	if at < 0 || e.over {
		e.mu.Unlock()
		return
	}
	e.busy.Add(1)
	defer e.busy.Done()
	r := e.recordings[at]
	delete(e.urls, url)
	e.recordings = slices.Delete(e.recordings, at, at+1)
	e.finished = append(e.finished, r.path)
	e.mu.Unlock()
	e.finish(r, true)
}

// start starts a recorder and returns once it records.
func start(ctx context.Context, req Request) (*recording, error) {
	bproxy, err := sibling.Sibling("bproxy")
	if err != nil {
		return nil, err
	}
	out, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	r := &recording{url: req.URL, pipe: out, out: bufio.NewReader(out), said: &tail.Tail{}}
	cmd := exec.Command(bproxy, "record")
	cmd.Stdout, cmd.Stderr = theirs, r.said
	r.process, err = owned.Start(cmd, true)
	theirs.Close() // its end is the end of what is read
	if err != nil {
		out.Close()
		return nil, err
	}
	line, _ := json.Marshal(req) // of strings
	r.process.Write(append(line, '\n'))
	ctx, cancel := context.WithTimeout(ctx, StartTimeout+margin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { out.SetReadDeadline(time.Now()) })()
	a, err := r.answer()
	if err == nil {
		out.SetReadDeadline(time.Time{})
		r.path = a.Path
		return r, nil
	}
	r.process.Write([]byte(Drop + "\n")) // as soon as it can
	select {
	case <-r.process.Ended:
	case <-time.After(margin):
		r.process.Kill()
		<-r.process.Ended
	}
	r.process.Release()
	out.Close()
	if lines := r.said.Lines(); ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if len(lines) > 0 {
		err = errors.New(strings.TrimPrefix(lines[0], "bproxy: "))
	}
	return nil, &exit.Error{Code: exit.Failed, Err: err}
}

func (r *recording) answer() (a Answer, err error) {
	line, err := r.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	return a, err
}

// IsAlways reports whether evidence is kept in any case.
func (e *Evidence) IsAlways() bool { return e != nil && e.Always }

// End finishes what was recorded, or deletes it if the command has not failed. Nothing is
// added any more.
func (e *Evidence) End(failed bool) {
	if e == nil {
		return
	}
	e.mu.Lock()
	e.over = true
	e.mu.Unlock()
	e.busy.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	keep := failed || e.Always
	var all sync.WaitGroup
	for _, r := range e.recordings {
		all.Go(func() { e.finish(r, keep) })
	}
	all.Wait()
	switch {
	case keep && len(e.recordings)+len(e.finished) > 0:
		if files, err := os.ReadDir(e.Dir); err == nil && len(files) > 0 {
			e.Log.Info("evidence is in " + e.Dir)
		} else {
			e.Log.Info("there is no evidence: no page was opened")
		}
	case !keep:
		for _, path := range e.finished {
			os.RemoveAll(path)
		}
	}
	e.recordings, e.finished = nil, nil
	if e.made {
		os.Remove(e.Dir) // if it has nothing
	}
}

// finish ends a recording.
func (e *Evidence) finish(r *recording, keep bool) {
	word := Drop
	if keep {
		word = Keep
	}
	r.process.Write([]byte(word + "\n"))
	var a Answer
	ended := make(chan error, 1)
	go func() {
		var err error
		a, err = r.answer()
		ended <- cmp.Or(<-r.process.Ended, err)
	}()
	var err error
	select {
	case err = <-ended:
	case <-time.After(endTimeout):
		r.process.Kill()
		<-ended
		err = fmt.Errorf("it takes longer than %v", endTimeout)
	}
	r.process.Release()
	r.pipe.Close()
	switch {
	case err != nil && !keep:
		os.RemoveAll(r.path)
	case err != nil:
		text := strings.Join(append([]string{err.Error()}, r.said.Lines()...), "; ")
		e.Log.Warn(fmt.Sprintf("cannot finish the recording %s: %s", r.path, text))
	case keep && len(a.Missing) > 0:
		e.Log.Warn(fmt.Sprintf("not in %s: %s", r.path, strings.Join(a.Missing, "; ")))
	}
}

// maxSlug is how many characters a name has: with four bytes each it fits into that of a
// file, with a number and an ending.
const maxSlug = 60

// Slug is a text as a part of a file's name: its letters and digits, with hyphens
// between them.
func Slug(text string) string {
	var b strings.Builder
	n, gap := 0, false
	for _, c := range text {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("._", c) {
			gap = n > 0
			continue
		}
		if c == '.' && n == 0 { // no hidden file
			continue
		}
		if gap {
			n++
		}
		if n++; n > maxSlug {
			break
		}
		if gap {
			b.WriteByte('-')
		}
		gap = false
		b.WriteRune(c)
	}
	return b.String()
}
