package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/launch/options"
	"btools/lib/pool"
	"btools/lib/pool/successor"
	"btools/lib/proc"
	"btools/lib/register"
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/spell"
	"btools/lib/state"
	"btools/lib/systemd"
)

// readyBound is how long a successor may take until it is ready.
const readyBound = time.Minute

// kept is the note for a successor whose control socket is systemd's.
const kept = "systemd"

// upgrade replaces this process by a successor. Then it is retired: it grants no leases, stops the browsers
// that are not leased, and serves its leases to their end.
type upgrade struct {
	c       *cli.Context
	ctx     context.Context // ends when this process is told to stop
	handler *handler
	reg     *register.Service
	notify  *systemd.Notifier
	env     []string     // as this process was started
	file    os.FileInfo  // the program that runs; nil: it is not known
	http    net.Listener // nil: there is none
	private bool
	hosts   settings.Hosts // as this process was started

	mu   sync.Mutex
	left chan struct{} // closed when the sockets are the successor's
}

// program returns this program's file as it is found now, which may be another version.
func program() (string, error) {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	return path, err
}

// runningFile returns the file of the program that runs, nil if it is not known.
func runningFile() os.FileInfo {
	path, err := proc.Executable()
	if err != nil {
		return nil
	}
	st, _ := os.Stat(path)
	return st
}

// isInstalled reports whether another program than the running one has its path now.
func (u *upgrade) isInstalled() bool {
	path, err := program()
	if err != nil || u.file == nil {
		return false
	}
	st, err := os.Stat(path)
	return err == nil && (!os.SameFile(st, u.file) || st.Size() != u.file.Size() ||
		!st.ModTime().Equal(u.file.ModTime()))
}

// reloaded is the answer to reload: what has changed, or the successor.
type reloaded struct {
	pool.Changes
	*api.Upgraded
}

// reload has the service replaced if another program is installed, else it reads the configuration.
func (u *upgrade) reload() (reloaded, error) {
	if !u.private && runtime.GOOS != "windows" && u.isInstalled() {
		done, err := u.start()
		return reloaded{Upgraded: &done}, err
	}
	cfg, err := loadServed(u.c)
	if err != nil {
		return reloaded{}, err
	}
	changes, err := u.handler.service.Reload(cfg)
	changes.Hosts = !reflect.DeepEqual(cfg.Global.Hosts, u.hosts)
	if err == nil {
		cfg.Global.Hosts = u.hosts
		u.handler.standard.Store(&cfg.Global)
		u.reg.Restore() // the entry lists the pools
		u.c.Log.Info(changes.String())
	}
	return reloaded{Changes: changes}, err
}

// reloadAndTell reloads at a signal.
func (u *upgrade) reloadAndTell() {
	if _, err := u.reload(); err != nil {
		u.c.Log.Error("cannot reload the configuration: " + err.Error())
	}
}

// start starts a successor. Without one that is ready, nothing changes.
func (u *upgrade) start() (done api.Upgraded, err error) {
	switch {
	case u.private:
		return done, control.Errorf(control.BadRequest, "the service ends with the program that runs it")
	case runtime.GOOS == "windows":
		return done, control.Errorf(control.BadRequest, "on Windows a service cannot be upgraded while it runs")
	case !u.mu.TryLock():
		return done, control.Errorf(control.TryAgain, "an upgrade is under way")
	}
	defer u.mu.Unlock()
	h, store := u.handler, u.c.State()
	if h.retired.Load() != nil {
		return done, errStopping
	}
	sockets := []net.Listener{u.reg.Socket()}
	if u.http != nil {
		sockets = append(sockets, u.http)
	}
	note := ""
	if u.reg.Listener != nil {
		note = kept
	}
	env := slices.DeleteFunc(slices.Clone(u.env), func(v string) bool { return strings.HasPrefix(v, "WATCHDOG_PID=") })
	ctx, cancel := context.WithTimeoutCause(u.ctx, readyBound,
		fmt.Errorf("it is not ready after %v", readyBound))
	defer cancel()
	var heir *successor.Heir
	path, err := program()
	if err == nil {
		heir, err = successor.Start(ctx, append([]string{path}, os.Args[1:]...), env, note, sockets)
	}
	if err != nil {
		e := *control.ErrorOf(err)
		e.Message = "cannot upgrade, this service goes on: " + e.Message
		u.c.Log.Error(e.Message)
		return done, &e
	}
	leave, err := u.handOver(ctx, store, heir)
	if err != nil {
		h.retired.Store(nil)
		u.reg.Restore()
		heir.Refuse()
		return done, err
	}
	u.notify.Tell(fmt.Sprintf("MAINPID=%d", heir.Process.PID))
	leave()
	close(u.left)
	stopped := h.service.Retire() // all leases are known when the successor counts them
	heir.Serve()
	go func() {
		<-stopped
		heir.Launch()
	}()
	return api.Upgraded{PID: heir.Process.PID, Leases: h.held()}, nil
}

// end waits for an upgrade that has begun, and refuses others: a successor that is not ready yet ends, too.
func (u *upgrade) end() { u.mu.Lock() }

// handOver lists the successor in the place of this process, which gets a control socket of its own. Who is killed
// before the successor serves leaves it the sockets: it serves when this process has ended.
func (u *upgrade) handOver(ctx context.Context, store *state.Store, heir *successor.Heir) (leave func(), err error) {
	next := u.handler.entry()
	next.Process, next.Dir = heir.Process, ""
	at, err := store.Socket(fmt.Sprintf("bpool-%d", os.Getpid()))
	if err != nil {
		return nil, state.Explain(err)
	}
	u.handler.retired.Store(&at)
	if err := store.Update(ctx, func(f *state.File) error {
		f.Set(u.handler.entry())
		f.Set(next)
		return nil
	}); err != nil {
		return nil, state.Explain(err)
	}
	return u.reg.Move(ctx, at)
}

// succeed takes the place of the predecessor when that gives it.
func (u *upgrade) succeed(ctx context.Context, before *successor.Predecessor) error {
	if err := before.Ready(ctx); err != nil {
		return err
	}
	if u.reg.Inherited = before.Sockets[0]; before.Note == kept {
		u.reg.Listener = u.reg.Inherited
	} else {
		u.reg.Inherited = control.Adopt(u.reg.Inherited.(*net.UnixListener))
	}
	return u.reg.Open(ctx)
}

// after returns a launch function that waits first.
func after(begin <-chan struct{}, launch launchFunc) launchFunc {
	return func(ctx context.Context, pool string, set settings.Settings, o options.Options,
		about func() []slog.Attr) (*sibling.Browser, error) {
		select {
		case <-begin:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return launch(ctx, pool, set, o, about)
	}
}

// successor returns a connection to the port of --http of the successor.
func (u *upgrade) successor(ctx context.Context) (net.Conn, error) {
	r := api.HTTPRequest{TLS: u.handler.web.TLS != nil}
	for {
		c, _, err := control.Take(ctx, u.handler.path, string(api.HTTP), r, nil)
		var e *control.Error
		isReplaced := errors.Is(err, control.ErrNotBegun) || errors.As(err, &e) && e.Code == control.Stopping
		if !isReplaced || !pause(ctx) {
			return c, err
		}
	}
}

// leasesInterval is how often a retired service looks whether its leases have ended.
const leasesInterval = 200 * time.Millisecond

// serveLeases stops the retired service when its leases have ended, or the bound has passed.
func (u *upgrade) serveLeases(ctx context.Context, stop context.CancelCauseFunc) {
	v, bound := u.handler.service, u.c.Duration("retire-timeout")
	h := u.handler
	if h.held() > 0 {
		u.c.Log.Info("another process has taken over: this one ends with " + h.holders())
	}
	late := time.After(bound)
	busy := func() bool { // the client of a lease that has ended may leave its connection open
		return h.held() > 0 || h.web != nil && h.web.Active() > h.leases.Relaying()
	}
	for ctx.Err() == nil && busy() {
		select {
		case <-ctx.Done():
		case <-late:
			u.c.Log.Warn(fmt.Sprintf("ending %s: the service was upgraded %v ago",
				spell.Count(h.held(), "lease"), bound))
			stop(errRetired)
			v.Stop()
			return
		case <-time.After(leasesInterval):
		}
	}
	stop(errRetired)
}

// errRetired is why a retired service ends.
var errRetired = errors.New("its leases have ended")

// Upgrade has the service replaced by a new process of its program.
func Upgrade(c *cli.Context) error {
	done, err := ask(c, api.Upgrade, struct{}{})
	if err != nil {
		return err
	}
	tellUpgraded(c, done)
	return nil
}

func tellUpgraded(c *cli.Context, done api.Upgraded) {
	c.Log.Info(fmt.Sprintf("the service has the pid %d now; the process before it ends with its leases (%d)", done.PID,
		done.Leases))
}

// Reload makes the service read its configuration again, or has it replaced by the program that is installed now.
func Reload(c *cli.Context) error {
	done, err := ask(c, control.Method[struct{}, reloaded](api.Reload), struct{}{})
	if err != nil {
		return err
	}
	if done.Upgraded != nil {
		tellUpgraded(c, *done.Upgraded)
	} else {
		c.Log.Info(done.Changes.String())
	}
	return nil
}
