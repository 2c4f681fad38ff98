package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
	Tell   func(Event)   // takes the events of the session, without waiting or calling the fleet; nil: the fleet has them
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
	release func()
}

func (n *needing) End(ctx context.Context) error {
	defer n.release()
	return n.Session.End(ctx)
}

// open opens the session of an entry on the current Chrome, with what was saved unless that is nil. If the context
// ends, nobody needs it any more.
func (f *Fleet) open(ctx context.Context, e *Entry, from *virtual.Saved) (Session, error) {
	if f.Open != nil {
		return f.Open(ctx, e, from)
	}
	if err := f.place(e); err != nil {
		return nil, err
	}
	o, err := e.options(from)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		b, release, err := f.Chrome(ctx)
		if err != nil {
			return nil, err
		}
		s, err := b.NewSession(ctx, o)
		if err == nil {
			return &needing{s, release}, nil
		}
		died := false
		select {
		case <-b.Done():
			died = true
		case <-ctx.Done():
		case <-time.After(deathTimeout):
		}
		release()
		if !died || try == attempts {
			return nil, err
		}
	}
}

// options returns the options of a new session, or of one that was saved. The state is read anew for each new session.
func (e *Entry) options(from *virtual.Saved) (virtual.Options, error) {
	o := virtual.Options{Settings: e.wanted.Settings, DefaultContext: e.Profile, Files: e.Files(), Keep: e.Keeps}
	var err error
	switch {
	case from != nil:
		var snapshot *virtual.Snapshot
		if snapshot, err = from.Load(); err == nil {
			o.Login, o.Tabs, o.Emulated = snapshot.State, snapshot.Tabs, snapshot.Emulated
		}
		return o, err
	case e.wanted.State == "":
		return o, nil
	}
	o.Login, err = e.wanted.States.Load(e.wanted.State)
	return o, err
}

// place opens what belongs to the address of an entry, whose sessions come and go: its trace, and the directory of its
// downloads.
func (f *Fleet) place(e *Entry) (err error) {
	if e.isPlaced {
		return nil
	}
	if f.OpenTrace != nil {
		e.trace, err = f.OpenTrace(e.Name, e.wanted.Settings)
	}
	if err == nil && f.Downloads && !(f.Foreign && e.Profile) {
		var files *downloads.Files
		if files, err = f.NewFiles(e.wanted.DownloadLimit); err == nil {
			e.SetFiles(files)
			err = e.ClaimFiles()
		}
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

// ClaimFiles says that the downloads of an entry are its own: it tells of them, and the settings say where they are
// kept.
func (e *Entry) ClaimFiles() error {
	keep := e.wanted.Downloads
	if keep != "" {
		keep = filepath.Join(keep, e.Name)
	}
	return e.Files().Claim(e.Name, keep, e.tellDownload)
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

// SetFiles makes downloads those of an entry, which closes them at its end, and returns those that it had; nil: none.
func (e *Entry) SetFiles(files *downloads.Files) (before *downloads.Files) {
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
