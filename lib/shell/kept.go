package shell

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet/kept"
	"btools/lib/jsonrpc"
	"btools/lib/private"
	"btools/lib/proc"
	"btools/lib/record"
)

// The browsers of sessions outlive a service that is killed: bproxy keeps them in a directory. The next service has
// them again, or ends them.

// isLeft reports whether the service of a session was killed.
func (n noted) isLeft() bool { return n.Control != "" && !n.runs() }

// HasLeft reports whether services that were killed have left sessions, by the file in which they note these.
func HasLeft(path string) bool {
	for _, n := range (&memory{path: path}).load() {
		if n.isLeft() {
			return true
		}
	}
	return false
}

// Left returns the sessions that services have left which were killed, by the file in which they note these and the
// directory in which browsers are kept. The next call that is for one has it again.
func Left(path, keep string) (all []Session) {
	m := memory{path: path, keep: keep}
	found := map[string]*Session{} // by their browsers
	for key, n := range m.load() {
		at := m.kept(n)
		if !n.isLeft() || at.IsZero() {
			continue
		}
		s := found[n.Browser]
		if s == nil {
			s = &Session{Name: api.Called(n.Browser), Idle: time.Since(at).Seconds(), Options: shown(n.Options),
				KeptAt: &record.Time{Time: at}}
			found[n.Browser] = s
			saved, _ := private.ReadFile(kept.Path(keep, n.Browser))
			for range jsonrpc.Elements(jsonrpc.Get(saved, "tabs")) {
				s.Tabs++
			}
		}
		kind, name, _ := strings.Cut(key, " ")
		switch kind {
		case "name", "called":
			s.Name = name
		case "process":
			s.Owner = &Owner{}
			fmt.Sscan(name, &s.Owner.PID)
		}
		if kind != "called" {
			s.URL = n.Page
		}
	}
	for _, s := range found {
		if s.Owner != nil {
			s.Owner.Name = strings.TrimSuffix(s.Name, fmt.Sprint("-", s.Owner.PID))
		}
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b Session) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// kept returns when the browser of a session was kept last; the zero time: it is not.
func (m *memory) kept(n noted) time.Time {
	if n.Browser == "" {
		return time.Time{}
	}
	info, err := os.Stat(kept.Path(m.keep, n.Browser))
	if err != nil || time.Since(info.ModTime()) >= Idle { // it would have ended
		return time.Time{}
	}
	return info.ModTime()
}

// forget deletes what is kept of the browser of a session.
func (m *memory) forget(n noted) {
	if n.Browser != "" {
		kept.Delete(m.keep, n.Browser)
	}
}

// endLeft ends the sessions that services have left which were killed, all or that of a caller, and returns how many.
func (s *Service) endLeft(ctx context.Context, who *caller) (ended int, err error) {
	left := map[string]noted{} // by their browsers
	for key, n := range s.memory.load() {
		if n.isLeft() && (who == nil || key == who.key || who.named && key == who.byName()) {
			left[n.Browser] = n
		}
	}
	killed := map[proc.Identity]bool{}
	for _, n := range left {
		if !killed[n.Process] {
			killed[n.Process] = true
			s.Settle(ctx, n.Process)
		}
	}
	err = s.memory.change(ctx, func(all map[string]noted) {
		for key, n := range all {
			if _, is := left[n.Browser]; is && n.isLeft() {
				delete(all, key)
				s.memory.forget(n)
			}
		}
	})
	return len(left), err
}

// resume makes a session go on with the browser that is kept of the one before, which began with its options. A call
// with other surroundings has to give these again, as they may be about its own.
func (x *session) resume(was noted, here string) error {
	if !slices.Equal(x.options, was.Options) && (x.given || was.Control != here) {
		return errOptions(was.Options)
	}
	x.options, x.browser, x.left = was.Options, was.Browser, &was
	return nil
}

// errOptions refuses a call with other options than those of the session.
func errOptions(options []string) error {
	return &control.Error{Code: control.SessionExists, Message: "the session has begun with other options: " +
		cmp.Or(strings.Join(shown(options), " "), "none"),
		Hint: "bmcp end ends it; --session NAME starts another one beside it"}
}
