package launch

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"btools/lib/cdp/wire"
	"btools/lib/exit"
	"btools/lib/extension"
	"btools/lib/record"
)

// joinBound is how long the extension may take to join the hub, from the start
// of the browser; the timeout of the launch, if that is longer.
const joinBound = 30 * time.Second

const (
	loadSwitch   = "--load-extension="
	exceptSwitch = "--disable-extensions-except="
	// debugExtensions lets a client load extensions by CDP (Extensions.loadUnpacked).
	debugExtensions = "--enable-unsafe-extension-debugging"
)

// isBranded reports whether the browser ignores --load-extension, as Chrome has
// done since 137 and Edge with it. Its extensions are loaded by its pipe.
func isBranded(b record.Browser) bool {
	return b.Type == record.Edge || b.Type == record.Chrome && b.Channel != "testing"
}

// withExtension adds the extension in a directory to the arguments of a browser,
// and returns the directories that are to be loaded by its pipe.
func (s *Spec) withExtension(args []string, dir string) (all, byPipe []string) {
	dirs := []string{dir}
	all = slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		for _, name := range []string{loadSwitch, exceptSwitch} {
			if value, ok := strings.CutPrefix(a, name); ok {
				dirs = append(dirs, strings.Split(value, ",")...)
				return true
			}
		}
		return false
	})
	slices.Sort(dirs[1:])
	dirs = slices.Compact(dirs)
	if !isBranded(s.Browser) {
		list := strings.Join(dirs, ",")
		return append(all, loadSwitch+list, exceptSwitch+list), nil // without the second one, none is loaded
	}
	// With --disable-extensions, one that is loaded by the pipe is not started.
	return append(slices.DeleteFunc(all, isDisableExtensions), debugExtensions), dirs
}

// joining is a browser that is to join a hub by its extension.
type joining struct {
	dir    string // of the extension
	mark   string // by which the hub knows the browser
	byPipe []string
	pipe   *wire.Pipe // nil: the extension is not loaded by it

	cancel context.CancelFunc
	done   chan struct{} // closed when the browser has joined, or will not
	joined *record.Joined
	err    error
}

// writeExtension writes the extension for this browser alone.
func (s *Supervisor) writeExtension() error {
	hub := s.Spec.Hub
	if isBranded(s.Spec.Browser) && len(s.Spec.hold()) == 0 {
		return exit.Errorf(exit.Unavailable, "cannot load the extension into %s on this system: there is no pipe to it",
			s.Spec.Browser.Name)
	}
	code, err := extension.ReadFile(hub.PairingFile)
	if err != nil {
		return exit.Errorf(exit.Config, "%v", err)
	}
	s.joining = &joining{dir: filepath.Join(s.dirs[0], "extension"), mark: rand.Text(), done: make(chan struct{})}
	return extension.Write(s.joining.dir, extension.Config{Hub: hub.HTTPURL, Code: code, Launch: s.joining.mark})
}

// join returns once the browser's own extension has joined the hub, with its
// place there.
func (s *Supervisor) join(ctx context.Context) (*record.Joined, error) {
	hub, j := s.Spec.Hub, s.joining
	bound := max(joinBound, s.Spec.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, bound,
		fmt.Errorf("it has not joined the hub %s within %v", hub.HTTPURL, bound))
	defer cancel()
	if err := j.load(ctx); err != nil {
		return nil, err
	}
	joined, err := hub.Joined(ctx, j.mark)
	return &joined, err
}

// load loads the extensions that the browser does not load by itself.
func (j *joining) load(ctx context.Context) error {
	for _, dir := range j.byPipe {
		_, err := j.pipe.Call(ctx, "", "Extensions.loadUnpacked", map[string]string{"path": dir})
		if err != nil {
			return fmt.Errorf("the browser does not load %s: %w", dir, err)
		}
	}
	return nil
}

// connectPipe connects to the pipe of a browser whose extensions are loaded by it.
func (j *joining) connectPipe(c *child) {
	if j != nil && len(j.byPipe) > 0 {
		in, out := c.devtools()
		j.pipe = wire.NewPipe(in, out, func(*wire.Pipe, string, string, json.RawMessage) {})
	}
}

// wait returns when nothing is left of the connection to the pipe.
func (j *joining) wait() {
	if j != nil && j.pipe != nil {
		j.pipe.Wait()
	}
}

// beginJoin waits for the extension in a goroutine, while the browser starts.
func (s *Supervisor) beginJoin(ctx context.Context) {
	j := s.joining
	if j == nil {
		return
	}
	ctx, j.cancel = context.WithCancel(ctx)
	go func() {
		defer close(j.done)
		j.joined, j.err = s.join(ctx)
	}()
}

// endJoin waits for the end of that goroutine.
func (s *Supervisor) endJoin() {
	if j := s.joining; j != nil {
		j.cancel()
		<-j.done
	}
}

// awaitJoin waits until the extension has joined, and adds its place at the hub to
// the browser's record.
func (s *Supervisor) awaitJoin(ctx context.Context) error {
	j := s.joining
	if j == nil {
		return nil
	}
	var err error
	select {
	case <-j.done:
		err = j.err
	case <-s.child.exited:
		_, _, ended := s.child.ending()
		err = errors.New("the browser " + ended)
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("Extension failed to connect: %w", err)}
	}
	s.entry.Record.MustSet("joined", j.joined)
	return s.register(ctx)
}
