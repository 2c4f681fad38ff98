package virtual

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"btools/lib/downloads"
	"btools/lib/place"
	"btools/lib/proc"
	"btools/lib/sockets"
	"btools/lib/virtual/policy"
)

// A client that names a directory for its downloads gets the files there only if the user of the sessions allows the
// directory, or if the client could write there by itself: it is a process of the same user, and the directory belongs
// to that user. The path that a client of another machine or another user names is one of its own, and Playwright
// always names one: such a client is not refused, its downloads stay in the session's directory.

// dir returns the directory, without symbolic links, where a client gets
// its downloads besides that of the session; "": it gets them nowhere else.
func (d *delivery) dir(ctx context.Context, dir string) (string, *policy.Error) {
	s := d.k.session
	real, existing, err := resolve(dir)
	foreign := err == nil && policy.IsWithin(real, s.downloads.rootsOfOthers())
	if err == nil && !foreign && policy.IsWithin(real, s.options.downloadRoots()) {
		return real, nil
	}
	switch from := d.findOrigin(ctx); {
	case from == inBrowser:
		return "", policy.NoDirectory(dir, "the browser has started the client")
	case from != ownProcess:
		return "", nil
	case err != nil:
		return "", policy.NoDirectory(dir, err.Error())
	case foreign:
		return "", policy.NoDirectory(dir, "it is another session's")
	case !place.Owned(existing):
		return "", policy.NoDirectory(dir, existing+" belongs to another user")
	}
	return real, nil
}

// rootsOfOthers returns the directories of the browser's other sessions.
func (dt *downloadTable) rootsOfOthers() (roots []string) {
	b := dt.s.browser
	b.mu.Lock()
	var others []*Session
	for other := range b.sessions {
		if other != dt.s && other.options.keepsDownloads() {
			others = append(others, other)
		}
	}
	b.mu.Unlock()
	for _, other := range others {
		for _, dir := range other.options.Files.Roots() {
			if real, err := filepath.EvalSymlinks(dir); err == nil {
				roots = append(roots, real)
			}
		}
	}
	return roots
}

// resolve returns a directory, which need not exist yet, without symbolic links,
// and the nearest one on its path that exists.
func resolve(dir string) (real, existing string, err error) {
	if !filepath.IsAbs(dir) {
		return "", "", errors.New("it is not an absolute path")
	}
	missing := ""
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		existing, err = filepath.EvalSymlinks(dir)
		if err == nil {
			break
		}
		if _, isLink := os.Lstat(dir); isLink == nil || !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return "", "", err // a link that leads nowhere would lead somewhere later
		}
		missing = filepath.Join(filepath.Base(dir), missing)
	}
	st, err := os.Stat(existing)
	if err == nil && !st.IsDir() {
		err = fmt.Errorf("%s is not a directory", existing)
	}
	return filepath.Join(existing, missing), existing, err
}

// deliver puts a complete download into the directory of downloadDir, too.
func deliver(file, dir, name string, exact bool) (string, error) {
	if real, _, err := resolve(dir); err != nil || real != dir {
		return "", fmt.Errorf("%s has become another directory meanwhile", dir)
	}
	return downloads.Deliver(file, dir, name, exact)
}

// delivery is where a client gets its downloads. Only the goroutine of its commands uses it.
type delivery struct {
	k      *Client
	ends   ends // of its connection; none if they are not known
	origin origin
}

// ends are both ends of a client's connection.
type ends struct{ theirs, ours netip.AddrPort }

// endsOf returns the ends of the connection of a request.
func endsOf(r *http.Request) (e ends) {
	if ours, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		e.ours = ours.AddrPort()
		e.theirs, _ = netip.ParseAddrPort(r.RemoteAddr)
	}
	return e
}

// origin is where a client runs.
type origin int

const (
	unknown    origin = iota // not asked for yet
	elsewhere                // on another machine, as another user, or it cannot be told
	ownProcess               // a process of this user on this machine
	inBrowser                // such a process, started by the browser
)

// findOrigin returns where the client runs. The goroutine of its commands calls it.
func (d *delivery) findOrigin(ctx context.Context) origin {
	if d.origin != unknown {
		return d.origin
	}
	d.origin = elsewhere
	pid, err := sockets.Holder(d.ends.theirs, d.ends.ours)
	if err == nil {
		// A browser that has joined does not say which its process is: it is the user's
		// own, whose pages no port of ours takes commands from.
		d.origin = ownProcess
		if browser, err := d.k.session.browser.process(ctx); err == nil && slices.Contains(proc.Tree(browser), pid) {
			d.origin = inBrowser
		}
	}
	if err != nil {
		d.k.session.browser.log.Info("the downloads of a client stay in the directory of the session: it is not "+
			"known to be a process of this user: "+err.Error(), "hint", "--download-root allows a directory")
	}
	return d.origin
}
