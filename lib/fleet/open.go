package fleet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/fleet/book"
	"btools/lib/logins"
	"btools/lib/settings"
	"btools/lib/virtual"
)

// Wanted is what a session is to be like.
type Wanted struct {
	settings.Settings
	States *logins.Store // store of the user who names the state; nil without one
	Login  *logins.State // the state, if it has been read; nil: it is read for each new session
	// Tell, if not nil, takes the events of the session, without waiting or calling the fleet; nil: the fleet has them.
	Tell func(Event)
}

// Policy returns when sessions with these settings end, and how many there may be.
func Policy(s settings.Settings) book.Policy {
	return book.Policy{Grace: s.SessionGrace, Idle: s.SessionIdle, Hibernate: s.Hibernate, Max: s.MaxSessions}
}

// attempts is how many Chromes are tried for a session, in case the first has
// just died; deathTimeout is how long its death may take to be noticed.
const (
	attempts     = 2
	deathTimeout = time.Second
)

// needing is a session that has its Chrome kept until it ends.
type needing struct {
	Session
	chrome Use
}

func (n *needing) End(ctx context.Context) error {
	err := n.Session.End(ctx)
	n.chrome.Ended(err)
	return err
}

// open opens the session of an entry, with what was saved unless that is nil. If the context ends, nobody needs it any
// more. A session is returned with an error if it has to be ended.
func (f *Fleet) open(ctx context.Context, e *Entry, from *virtual.Saved) (Session, error) {
	begin := f.begin
	switch {
	case begin != nil:
	case from == nil && f.Spare != nil:
		begin = f.takeSpare
	default:
		begin = f.onChrome
	}
	s, chrome, err := begin(ctx, e, from)
	if s == nil {
		return nil, err
	}
	return &needing{s, chrome}, err
}

// takeSpare gives an entry a session that was made in advance.
func (f *Fleet) takeSpare(ctx context.Context, e *Entry, _ *virtual.Saved) (Session, Use, error) {
	s, chrome, err := f.Spare(ctx, e)
	if err != nil {
		return nil, Use{}, err
	}
	if before := e.setFiles(s.Downloads()); before != nil {
		before.Close() // what cannot be deleted goes with the program
	}
	return s, chrome, cmp.Or(e.claimFiles(), e.logIn(s))
}

// restoreTimeout bounds how long the cookies of a state take.
const restoreTimeout = 30 * time.Second

// logIn gives the state that an entry starts with to a session before its first use.
func (e *Entry) logIn(s *virtual.Session) error {
	if e.wanted.Login == nil {
		return nil
	}
	// The request that is first may end before the others.
	ctx, cancel := context.WithTimeoutCause(context.Background(), restoreTimeout,
		fmt.Errorf("no answer within %v", restoreTimeout))
	defer cancel()
	if err := s.Restore(ctx, e.wanted.State, e.wanted.Login); err != nil {
		return control.Errorf(control.Failed, "cannot start with the state %q: %v", e.wanted.State, err)
	}
	return nil
}

// onChrome makes a session of an entry on the current Chrome.
func (f *Fleet) onChrome(ctx context.Context, e *Entry, from *virtual.Saved) (Session, Use, error) {
	if err := e.place(); err != nil {
		return nil, Use{}, err
	}
	o, err := e.options(from)
	if err != nil {
		return nil, Use{}, err
	}
	var first sync.WaitGroup
	defer first.Wait()
	if from == nil && f.pathOf(e.Key) != "" {
		first.Go(func() { e.saveBlank(ctx, o) })
	}
	for try := 1; ; try++ {
		b, chrome, err := f.Chrome(ctx, e)
		if err != nil {
			return nil, Use{}, err
		}
		s, err := b.NewSession(ctx, o)
		if chrome.Opened != nil {
			chrome.Opened()
		}
		if err == nil {
			return s, chrome, nil
		}
		died := false
		select {
		case <-b.Done():
			died = true
		case <-ctx.Done():
		case <-time.After(deathTimeout):
		}
		chrome.Ended(nil)
		if !died || try == attempts {
			if from != nil {
				err = fmt.Errorf("cannot restore the hibernated session: %w", err)
			}
			return nil, Use{}, err
		}
	}
}

// options returns the options of a new session, or of one that was saved.
func (e *Entry) options(from *virtual.Saved) (virtual.Options, error) {
	o := virtual.Options{Settings: e.wanted.Settings, DefaultContext: e.Profile, Files: e.Files(), Keep: e.Keeps,
		Login: e.wanted.Login}
	var err error
	switch {
	case from != nil:
		var snapshot *virtual.Snapshot
		if snapshot, err = from.Load(); err == nil {
			o.Login, o.Tabs, o.Emulated = snapshot.State, snapshot.Tabs, snapshot.Emulated
		}
	case o.Login == nil && o.State != "":
		o.Login, err = e.wanted.States.Load(o.State)
	}
	return o, err
}

// place opens what belongs to the address of an entry, whose sessions come and go: its trace, and the directory of its
// downloads, unless it has one from an entry before.
func (e *Entry) place() (err error) {
	f := e.fleet
	if e.isPlaced {
		return nil
	}
	if f.OpenTrace != nil {
		e.trace, err = f.OpenTrace(e.Name, e.wanted.Settings)
	}
	files := e.Files()
	if err == nil && files == nil && f.Downloads && !(f.Foreign && e.Profile) {
		if files, err = f.NewFiles(e.wanted.DownloadLimit); err == nil {
			e.setFiles(files)
		}
	}
	if err == nil {
		err = e.claimFiles()
	}
	e.isPlaced = err == nil
	return err
}

// NewFiles makes a directory for the downloads of a session, which belong to nobody yet.
func (f *Fleet) NewFiles(limit int64) (*downloads.Files, error) {
	at, err := f.MakeDir(context.Background())
	if err != nil {
		return nil, err
	}
	if at, err = os.MkdirTemp(at, "session-"); err != nil { // an earlier one of this name may still end
		return nil, fmt.Errorf("cannot make the directory of the downloads: %w", err)
	}
	return downloads.New(downloads.Options{Dir: at, Limit: limit})
}

// claimFiles says that the downloads of an entry are its own, if it has any: it tells of them, and the settings say
// where they are kept.
func (e *Entry) claimFiles() error {
	files := e.Files()
	if files == nil {
		return nil
	}
	keep := e.wanted.Downloads
	if keep != "" {
		keep = filepath.Join(keep, e.Name)
	}
	return files.Claim(e.Name, keep, e.tellDownload)
}

// tellDownload tells that a download has begun or ended.
func (e *Entry) tellDownload(event string, f downloads.File) {
	e.tell(Event{Event: event, Why: f.Why, Download: &f})
}

// Files returns the downloads of an entry; nil: there are none.
func (e *Entry) Files() *downloads.Files {
	e.fleet.mu.Lock()
	defer e.fleet.mu.Unlock()
	return e.files
}

// setFiles makes downloads those of an entry, which closes them at its end, and returns those that it had; nil: none.
func (e *Entry) setFiles(files *downloads.Files) (before *downloads.Files) {
	e.fleet.mu.Lock()
	defer e.fleet.mu.Unlock()
	before, e.files = e.files, files
	return before
}

// close closes what belongs to the address of an entry of which nothing else is left.
func (e *Entry) close() {
	if files := e.Files(); files != nil {
		files.Close() // what cannot be deleted goes with the program
	}
	if e.trace != nil {
		e.trace.Close()
	}
}
