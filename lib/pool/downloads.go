package pool

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/downloads/watcher"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/pool/config"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/state"
	"btools/lib/wait"
)

// errNoDownloads is the answer for a lease whose browser writes its downloads
// where it does; why may be "".
func errNoDownloads(why string) error {
	e := control.Errorf(guard.NotFound, "the downloads of this lease go where its browser puts them")
	if why != "" {
		e.Message += ": " + why
	}
	return e
}

// Downloads returns the downloads of a lease.
func (v *Service) Downloads(ctx context.Context, lease string) (*downloads.Files, error) {
	l := v.lease(lease)
	switch {
	case l == nil:
		return nil, errLeaseEnded(lease)
	case l.entry == nil:
		return l.ownDownloads()
	}
	if files := l.entry.Files(); files != nil {
		return files, nil
	}
	_, done, err := l.use(ctx) // which opens it
	if err != nil {
		return nil, err
	}
	defer done()
	if files := l.entry.Files(); files != nil {
		return files, nil
	}
	return nil, errNoDownloads(config.WhyNoDownloads(l.slot.set))
}

// A browser that a lease has to itself is passed through to its clients as it
// is. A watcher of its own sees the downloads: it starts with the browser,
// because a client may choose a directory as soon as it is connected, and
// attributes each download to the lease of that moment.

const (
	// watchTimeout is how long a new browser may take to say where it writes its
	// downloads until it is used all the same.
	watchTimeout = 2 * time.Second
	// openTimeout is how long it may take at all.
	openTimeout = 30 * time.Second
)

// watching is what an instance knows of the downloads of its browser.
type watching struct {
	incoming string        // the directory to which its browsers write; "": none
	over     chan struct{} // closed when the last watcher has ended; nil: there was none

	// Protected by the service's lock:
	watcher *watcher.Watcher // watcher of the current browser; nil: none
	err     error            // why the browser has none; nil: it has one, or will
}

// ownFiles are the downloads of a lease that has a browser to itself.
type ownFiles struct {
	mu    sync.Mutex
	files *downloads.Files // downloads; nil: none has begun, and nobody has asked
	over  bool
}

// newWatching returns the watching of a new instance, whose browsers write to a directory of their own below dir,
// unless that is nil.
func newWatching(dir *state.Dir, set settings.Settings) (w watching) {
	if dir != nil && config.WhyNoDownloads(set) == "" {
		w.incoming = filepath.Join(dir.Path(), "browser-"+strings.ToLower(rand.Text()[:8]))
	}
	return w
}

// watchDownloads watches a browser that was launched, until it ends. It returns once the
// browser writes downloads to the instance's directory. Calls follow each other.
func (s *slot) watchDownloads(ctx context.Context, b *sibling.Browser) {
	if s.watching.incoming == "" || b.Instance.Protocol != record.CDP {
		return
	}
	if s.watching.over != nil {
		<-s.watching.over
	}
	settled, over := make(chan struct{}), make(chan struct{})
	s.watching.over = over
	s.service.running.Go(func() {
		defer close(over)
		s.runWatcher(b, settled)
	})
	late := time.NewTimer(watchTimeout)
	defer late.Stop()
	select {
	case <-settled:
	case <-late.C:
	case <-ctx.Done():
	}
}

// runWatcher watches a browser until it ends. It closes settled once it watches,
// or has failed to.
func (s *slot) runWatcher(b *sibling.Browser, settled chan<- struct{}) {
	v := s.service
	ctx, cancel := context.WithTimeoutCause(context.Background(), openTimeout,
		fmt.Errorf("no answer within %v", openTimeout))
	defer cancel()
	go func() {
		select {
		case <-b.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()
	w, err := s.openWatcher(ctx, b)
	if err != nil && !wait.Closed(b.Ended()) {
		v.Log.Warn("downloads go where the browser puts them: "+err.Error(), "pool", s.poolName, "instance", s.set.ID)
	}
	v.mu.Lock()
	s.watching.watcher, s.watching.err = w, err
	v.mu.Unlock()
	close(settled)
	<-b.Ended()
	v.mu.Lock()
	s.watching.watcher, s.watching.err = nil, nil
	v.mu.Unlock()
	if w != nil {
		w.Close()
	}
	os.RemoveAll(s.watching.incoming)
}

// openWatcher opens the watcher of a browser, and the directory to which that
// writes.
func (s *slot) openWatcher(ctx context.Context, b *sibling.Browser) (*watcher.Watcher, error) {
	if _, err := s.service.Dir.Make(ctx); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.watching.incoming, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the directory of the downloads: %w", err)
	}
	w, err := watcher.Open(ctx, watcher.Options{URL: b.Instance.WSURL, Dir: s.watching.incoming, Owner: s.owner,
		Log: s.service.Log.With("pool", s.poolName, "instance", s.set.ID)})
	if err != nil {
		return nil, err
	}
	if err := w.Wait(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// resetDownloads has the browser write downloads to the instance's directory
// again, after the last of its clients is gone.
func (s *slot) resetDownloads() {
	s.service.mu.Lock()
	w := s.watching.watcher
	s.service.mu.Unlock()
	if w != nil {
		w.Reset()
	}
}

// owner returns the downloads of the instance's lease; nil: there is no lease.
// Then leave says that the clients of the last one stay connected.
func (s *slot) owner() (files *downloads.Files, leave bool) {
	v := s.service
	v.mu.Lock()
	l, leave := s.lease, s.keptFor != ""
	v.mu.Unlock()
	if l == nil {
		return nil, leave
	}
	files, err := l.openOwn()
	if err != nil {
		v.Log.Warn(err.Error(), "lease", l.id)
	}
	return files, leave
}

// openOwn returns the downloads of a lease that has a browser to itself, or nil if
// the lease has ended.
func (l *lease) openOwn() (*downloads.Files, error) {
	v := l.slot.service
	l.own.mu.Lock()
	defer l.own.mu.Unlock()
	if l.own.over || l.own.files != nil {
		return l.own.files, nil
	}
	dir, err := v.Dir.Make(context.Background())
	if err == nil {
		dir, err = os.MkdirTemp(dir, "lease-")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the directory of the downloads: %w", err)
	}
	o := downloads.Options{Dir: dir, Incoming: l.slot.watching.incoming, Limit: l.slot.set.DownloadLimit}
	if keep := l.slot.set.Downloads; keep != "" {
		o.Keep = filepath.Join(keep, l.id)
	}
	o.Tell = func(event string, f downloads.File) { v.events.ofLease(event, l, f.Why, &f) }
	l.own.files, err = downloads.New(o)
	return l.own.files, err
}

// endOwn ends the downloads of a lease that has a browser to itself, and returns a function that
// deletes its files. kept says that its clients stay connected.
func (l *lease) endOwn(kept bool) (remove func()) {
	v := l.slot.service
	l.own.mu.Lock()
	files := l.own.files
	l.own.files, l.own.over = nil, true
	l.own.mu.Unlock()
	if files == nil {
		return func() {}
	}
	v.mu.Lock()
	w := l.slot.watching.watcher
	v.mu.Unlock()
	if w != nil {
		w.Release(files, kept)
	}
	return func() {
		if err := files.Close(); err != nil {
			v.Log.Warn("cannot delete the downloads of a lease before the end of the service: "+err.Error(),
				"lease", l.id)
		}
	}
}

// ownDownloads returns the downloads of a lease that has a browser to itself.
func (l *lease) ownDownloads() (*downloads.Files, error) {
	s, v := l.slot, l.slot.service
	why := config.WhyNoDownloads(s.set)
	if rec := s.browser(); why == "" && rec != nil {
		if i, err := sibling.Endpoint(rec); err == nil && i.Protocol != record.CDP {
			why = "its browser reports no downloads"
		}
	}
	v.mu.Lock()
	w, err := s.watching.watcher, s.watching.err
	v.mu.Unlock()
	if w != nil {
		err = w.Err()
	}
	switch {
	case why != "" || v.Dir == nil:
		return nil, errNoDownloads(why)
	case err != nil:
		return nil, control.Errorf(control.Unavailable,
			"the downloads of this lease go where its browser puts them: %v", err)
	}
	files, err := l.openOwn()
	if files == nil && err == nil {
		err = errLeaseEnded(l.id)
	}
	return files, err
}

// answerDownloads answers a request, at the instance's endpoint, for the downloads of its
// lease.
func (s *slot) answerDownloads(w *front.Response, r *http.Request) error {
	guid, ok := front.ParseDownloads(r.URL.Path)
	if !ok {
		return front.NoPath(r)
	}
	v := s.service
	v.mu.Lock()
	l := s.lease
	v.mu.Unlock()
	if l == nil {
		return control.Errorf(control.LeaseNotFound, "nobody has leased this browser")
	}
	files, err := l.ownDownloads()
	if err != nil {
		return unavailable(err)
	}
	return front.ServeDownloads(w, r, files, guid)
}
