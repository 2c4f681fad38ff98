package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"btools/lib/devtools"
	"btools/lib/exit"
	"btools/lib/launch/login"
	"btools/lib/lifetime"
	"btools/lib/private"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/state"
)

// Expired is the reason of an end after the time to live.
var Expired = errors.New("its time to live has expired")

// killBound is how long SIGKILL may take to be seen to work.
const killBound = 10 * time.Second

// Supervisor owns one browser.
type Supervisor struct {
	Spec  *Spec
	Store *state.Store
	Log   *slog.Logger
	// Ready is called once, with the record of the browser whose endpoint
	// answers. Its error stops the browser.
	Ready func(*record.Record) error
	// Now, when it is closed, cuts a graceful stop short.
	Now <-chan struct{}

	entry state.Instance
	dirs  []string
	child *child
	log   *browserLog
	login *login.Watcher // nil: its state is not saved

	killed bool // by another process, while it was asked to end

	joining *joining // nil: it gets no extension
}

// Run launches the browser, holds it until the context ends (its cause is the
// reason) or the browser does, and cleans up. Failed is nil if the browser was
// told to stop after it was ready, and not killed, or ended well by itself, and its
// state was saved if that was wanted; left tells what could not be cleaned up.
func (s *Supervisor) Run(ctx context.Context) (failed, left error) {
	proc.Subreaper() // without it, what the browser leaves is found by its mark
	s.entry = state.Instance{ID: newID(), Supervisor: proc.Self(), Owner: s.Spec.OwnedBy,
		KeepProfile: s.Spec.Profile != ""}
	var temp string
	s.dirs, temp = instanceDirs(s.entry.ID)
	s.entry.Dirs = s.dirs
	// Written down first, made second: killed in between, it is swept.
	if err := s.updateEntry(ctx); err != nil {
		return err, nil
	}
	err := s.run(ctx, temp)
	return err, s.cleanUp(ctx, err)
}

func (s *Supervisor) run(ctx context.Context, temp string) error {
	unlock, err := makeDirs(ctx, s.dirs, temp)
	defer unlock()
	if err != nil {
		return err
	}
	if err := s.writeCopy(); err != nil {
		return err
	}
	profile := s.Spec.Profile
	if profile == "" {
		profile = filepath.Join(s.dirs[0], "profile")
		if err := os.Mkdir(profile, 0o700); err != nil {
			return fmt.Errorf("cannot make the profile: %w", err)
		}
		if s.Spec.firefox() {
			if err := os.WriteFile(filepath.Join(profile, "user.js"), []byte(firefoxPrefs), 0o600); err != nil {
				return fmt.Errorf("cannot make the profile: %w", err)
			}
		}
	} else {
		plock, err := lockProfile(profile, s.entry.ID, s.Spec.OwnedBy)
		if err != nil {
			return err
		}
		defer plock.Close()
	}
	if s.Spec.Hub != nil {
		if err := s.writeExtension(); err != nil {
			return err
		}
	}
	os.Remove(filepath.Join(profile, "DevToolsActivePort"))       // an earlier browser's, which
	os.Remove(filepath.Join(profile, "WebDriverBiDiServer.json")) // some leave behind

	deadline, cancel := context.WithTimeoutCause(ctx, s.Spec.Timeout, errTimeout)
	defer cancel()
	if err := s.start(profile, temp); err != nil {
		return err
	}
	s.beginJoin(ctx)
	defer s.endJoin()
	if err := s.untilReady(ctx, deadline, profile); err != nil {
		// A profile that is the user's may be open by now.
		s.stop(s.entry.KeepProfile)
		var b *browserError
		if errors.As(err, &b) {
			return s.explain(ctx, b.error, profile) // all that it prints is the reason
		}
		return err
	}
	cancel()
	return s.hold(ctx, profile)
}

// browserError is an error of the browser's, not of what is around it.
type browserError struct{ error }

// untilReady waits until the browser is registered and answers, and hands its
// record over.
func (s *Supervisor) untilReady(ctx, deadline context.Context, profile string) error {
	if s.Spec.handsOver() {
		s.entry.Record = s.record(profile)
		if err := s.register(deadline); err != nil {
			return err
		}
		return s.Ready(s.entry.Record)
	}
	// The time in which the browser starts is free, and that in which it
	// answers.
	if err := s.register(deadline); err != nil {
		return err
	}
	endpoint, err := s.announced(deadline, profile)
	if err != nil {
		return &browserError{err}
	}
	answered := make(chan error, 1)
	go func() { answered <- s.verify(deadline, endpoint, profile) }()
	if err := s.register(deadline); err != nil {
		return err
	}
	select {
	case err = <-answered:
	case <-s.child.exited:
		err = errExited
	}
	rec := s.entry.Record
	switch {
	case err != nil || s.Spec.firefox():
	case s.Spec.SaveState != nil:
		err = s.openWatched(deadline)
	case s.Spec.pageLater():
		err = s.openFirstPage(ctx, rec)
	}
	if err != nil {
		if cause := context.Cause(deadline); cause != nil {
			err = cause
		}
		return &browserError{err}
	}
	if err := s.awaitJoin(ctx); err != nil {
		return err
	}
	return s.Ready(rec)
}

var errTimeout = errors.New("timed out")

// start spawns the browser and notes its process.
func (s *Supervisor) start(profile, temp string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer w.Close()
	ready, args := chromeReady, []string(nil)
	if s.Spec.firefox() {
		ready, args = firefoxReady, s.Spec.firefoxCommand(profile)
	} else {
		args = s.Spec.chromeCommand(profile, smallShm())
	}
	if s.joining != nil {
		args, s.joining.byPipe = s.Spec.withExtension(args, s.joining.dir)
	}
	path := s.Spec.Browser.Path
	env := os.Environ()
	if s.Spec.firefox() && s.Spec.Headless && s.Spec.Profile == "" {
		// It writes to ~/.cache, ~/.config and ~/Downloads, whatever the profile is, and
		// does not start where it can't.
		env = append(env, "HOME="+s.dirs[0])
	}
	env = append(env, s.Spec.Env...)
	env = append(env, "TMPDIR="+temp, state.Mark+"="+s.entry.ID)
	if s.Spec.firefox() {
		env = append(env, "MOZ_CRASHREPORTER_DISABLE=1", "MOZ_REMOTE_SETTINGS_DEVTOOLS=1")
		if s.Spec.NoSandbox {
			env = append(env, "MOZ_DISABLE_CONTENT_SANDBOX=1")
		}
	}
	// Crash dumps go to the home directory else, whatever the profile is. To
	// have none, --disable-crashpad-for-testing would do, but together with
	// the pipe it crashes the network service again and again (rubycdp/ferrum#619).
	env = append(env, "BREAKPAD_DUMP_LOCATION="+filepath.Join(s.dirs[0], "crashes"))
	s.child, err = spawn(s.Spec, append([]string{path}, args...), dedupe(env), s.dirs[0], w)
	if err != nil {
		r.Close()
		return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("cannot start %s: %w", path, err),
			Hint: "bfind lists the browsers that are installed"}
	}
	s.log = newBrowserLog(s.Log)
	go func() {
		s.log.read(r, ready)
		r.Close()
	}()
	if id, err := proc.Of(s.child.pid); err == nil {
		s.entry.Browser = &id
	}
	s.joining.connectPipe(s.child)
	return nil
}

// dedupe keeps the last value of each variable, as a shell would see it.
func dedupe(env []string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		if i, ok := at[k]; ok {
			out[i] = kv
			continue
		}
		at[k] = len(out)
		out = append(out, kv)
	}
	return out
}

// writeCopy writes the copy of the entry into the instance's directories,
// from which a lost state file is made again.
func (s *Supervisor) writeCopy() error {
	b, err := json.Marshal(state.Copy{Instance: s.entry, State: s.Store.Path()})
	if err != nil {
		return err
	}
	for _, d := range s.dirs {
		if err := private.WriteFile(filepath.Join(d, state.EntryFile), b); err != nil {
			e := &exit.Error{Code: exit.Failed, Err: fmt.Errorf("cannot write the browser's entry: %w", err)}
			if errors.Is(err, syscall.ENOSPC) {
				e.Hint = "the disk is full: free some space, or set TMPDIR to a directory on another one"
			}
			return e
		}
	}
	return nil
}

// register brings both copies of the entry up to date.
func (s *Supervisor) register(ctx context.Context) error {
	return errors.Join(s.writeCopy(), s.updateEntry(ctx))
}

// updateEntry brings the state file up to date.
func (s *Supervisor) updateEntry(ctx context.Context) error {
	return state.Explain(s.Store.Update(ctx, func(f *state.File) error {
		if i := f.Instance(s.entry.ID); i != nil {
			*i = s.entry
		} else {
			f.Instances = append(f.Instances, s.entry)
		}
		return nil
	}))
}

// openFirstPage asks for the first page before anybody knows the endpoint.
func (s *Supervisor) openFirstPage(ctx context.Context, rec *record.Record) error {
	var i record.Instance
	if _, err := rec.Get("instance", &i); err != nil {
		return err
	}
	done, err := devtools.AskNewPage(ctx, net.JoinHostPort(i.Host, strconv.Itoa(i.Port)), s.Spec.firstPage())
	if err != nil {
		return fmt.Errorf("opened no page: %w", err)
	}
	go func() {
		err := <-done
		if err == nil || ctx.Err() != nil {
			return
		}
		select {
		case <-s.child.exited: // which is told anyway
		case <-time.After(time.Second):
			s.Log.Warn("the browser did not open its first page", "why", err)
		}
	}()
	return nil
}

var (
	errExited   = errors.New("exited")
	errNoServer = errors.New("no server")
)

// announced waits for the endpoint that the browser itself announces, and
// makes its record.
func (s *Supervisor) announced(ctx context.Context, profile string) (*url.URL, error) {
	var ws string
	select {
	case ws = <-s.log.announced:
	case <-s.log.noServer:
		return nil, errNoServer
	case <-s.child.exited:
		return nil, errExited
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	u, err := url.Parse(ws)
	if err != nil {
		return nil, fmt.Errorf("announced %q, which is not a URL", ws)
	}
	port, _ := strconv.Atoi(u.Port())
	host := u.Hostname()
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("announced the endpoint %s, which is not on this machine's loopback", ws)
	}
	if want := s.Spec.Port; want != 0 && (port != want || host != "127.0.0.1") {
		// A port that is taken is not an error to Chrome: it falls back to [::1].
		return nil, s.portTaken(fmt.Sprintf("the browser opened %s instead", u.Host))
	}
	s.entry.Record = s.record(profile)
	var i record.Instance
	s.entry.Record.Get("instance", &i)
	i.Host, i.Port, i.HTTPURL, i.WSURL = host, port, "http://"+u.Host, u.String()
	if s.Spec.firefox() {
		i.Protocol, i.WSURL = record.BiDi, strings.TrimSuffix(u.String(), "/")+"/session"
	}
	s.entry.Record.MustSet("instance", i)
	return u, nil
}

func (s *Supervisor) portTaken(why string) error {
	e := &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("port %d is taken: %s", s.Spec.Port, why),
		Hint: "leave --port out to let the browser choose, or take one with bport"}
	if f, err := s.Store.Read(); err == nil {
		if who, hint := f.Listens(s.Spec.Port); who != "" {
			e.Err = fmt.Errorf("port %d is taken by %s", s.Spec.Port, who)
			e.Hint = hint + ", or " + e.Hint
		}
	}
	return e
}

// verify asks the endpoint who it is. A Chromium repeats its GUID; a Firefox
// has written the port into the profile, which is nobody else's.
func (s *Supervisor) verify(ctx context.Context, u *url.URL, profile string) error {
	if !s.Spec.firefox() {
		v, err := devtools.GetVersion(ctx, u.Host)
		if err != nil {
			return fmt.Errorf("announced %s, but: %w", u, err)
		}
		if got, err := url.Parse(v.WSURL); err != nil || got.Path != u.Path {
			return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("another browser answers at %s (it is "+
				"%s, ours is %s)",
				u.Host, v.WSURL, u)}
		}
		return nil
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return fmt.Errorf("announced %s, but: %w", u, err)
	}
	c.Close()
	b, err := os.ReadFile(filepath.Join(profile, "WebDriverBiDiServer.json"))
	if err != nil {
		return nil // older ones write none
	}
	var own struct {
		Port int `json:"ws_port"`
	}
	if err := json.Unmarshal(b, &own); err == nil && own.Port != 0 && strconv.Itoa(own.Port) != u.Port() {
		return fmt.Errorf("announced %s, but its profile says port %d", u, own.Port)
	}
	return nil
}

// record returns the browser's record, without an endpoint.
func (s *Supervisor) record(profile string) *record.Record {
	rec := record.New()
	if s.Spec.Input != nil {
		rec = s.Spec.Input.Clone()
	}
	rec.MustSet("browser", s.Spec.Browser)
	i := record.Instance{
		ID: s.entry.ID, PID: s.child.pid, SupervisorPID: os.Getpid(), Protocol: record.CDP, UserDataDir: profile,
		Temporary: s.Spec.Profile == "", Headless: s.Spec.Headless, Sandbox: !s.Spec.NoSandbox, Owner: s.Spec.OwnedBy,
		StartedAt: record.Now(),
	}
	rec.MustSet("instance", i)
	return rec
}

// hold waits for an end.
func (s *Supervisor) hold(ctx context.Context, profile string) error {
	began := time.Now()
	if s.Spec.TTL > 0 {
		var end context.CancelCauseFunc
		ctx, end = context.WithCancelCause(ctx)
		defer lifetime.After(s.Spec.TTL, func() { end(Expired) })()
	}
	select {
	case <-s.child.exited:
		s.stop(false) // of what it left
		saved := s.saveState()
		code, _, words := s.child.ending()
		if s.Spec.handsOver() && code > 0 && time.Since(began) < s.Spec.Timeout { // it may never have been ready
			return s.explain(ctx, errExited, profile)
		}
		if code == 0 {
			s.Log.Info("the browser ended by itself")
			return saved
		}
		return errors.Join(&diedError{fmt.Errorf("the browser %s", words)}, saved)
	case <-s.lastPageClosed():
		s.Log.Info("the last page was closed: stopping the browser")
	case <-ctx.Done():
		if why := context.Cause(ctx); why == Expired {
			s.Log.Info(fmt.Sprintf("the browser's time to live (%v) has expired: stopping it", s.Spec.TTL))
		} else {
			s.Log.Debug("stopping the browser", "why", why)
		}
	}
	saved := s.saveState()
	if s.stop(true); s.killed {
		_, _, words := s.child.ending()
		return errors.Join(&diedError{fmt.Errorf("the browser %s", words)}, saved)
	}
	return saved
}

// diedError is how a browser ended that was not told to.
type diedError struct{ error }

// stop ends the browser: asked first if graceful, then by SIGKILL to all that
// is left. What counts is that everything is gone, not what was sent.
func (s *Supervisor) stop(graceful bool) {
	c := s.child
	if graceful {
		end := time.After(s.Spec.StopTimeout)
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			c.ask(s.Spec.Profile != "", s.Spec.StopTimeout)
		}()
		select {
		case <-c.exited:
			_, sig, _ := c.ending()
			s.killed = sig == int(syscall.SIGKILL) // not by us: that comes below
		case <-end:
			s.Log.Warn("the browser did not end when asked: killing it", "pid", c.pid)
		case <-s.Now:
		}
		defer func() { <-asked }()
	}
	// With the main process gone its helpers have nothing to save.
	for end := time.Now().Add(killBound); ; {
		c.kill()
		select {
		case <-c.gone:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(end) {
			return // cleanUp says so
		}
	}
}

// cleanUp deletes what was made and writes down how it ended.
func (s *Supervisor) cleanUp(ctx context.Context, why error) error {
	exit := state.Exit{ID: s.entry.ID, ExitedAt: record.Now(), Code: -1, Reason: "it was never started"}
	if c := s.child; c != nil {
		select {
		case <-c.gone:
		default:
			// The entry and the directories stay for whoever sweeps.
			return fmt.Errorf("cannot kill process %d: %s is left to blaunch gc", c.pid, s.dirs[0])
		}
		c.close()
		if s.login != nil {
			s.login.Wait()
		}
		s.joining.wait()
		exit.PID = c.pid
		exit.Code, exit.Signal, exit.Reason = c.ending()
	}
	if cause := context.Cause(ctx); cause != nil {
		exit.Reason = cause.Error()
	} else if why != nil {
		exit.Reason = why.Error()
	}
	var errs []error
	for _, d := range s.dirs {
		if _, err := state.RemoveDir(d); err != nil {
			errs = append(errs, err)
		}
	}
	// A second signal ends the wait for the state's lock as well.
	update, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case <-s.Now:
			cancel(private.ErrLocked)
		case <-update.Done():
		}
	}()
	if err := s.Store.Update(update, func(f *state.File) error {
		if len(errs) == 0 {
			f.Drop(s.entry.ID)
		}
		f.Exits = append(f.Exits, exit)
		return nil
	}); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
