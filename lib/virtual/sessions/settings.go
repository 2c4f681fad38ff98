package sessions

import (
	"btools/lib/downloads"
	"btools/lib/logins"
	book "btools/lib/sessions"
	"btools/lib/settings"
	"btools/lib/virtual"
)

// Wanted is a session to create.
type Wanted struct {
	settings.Settings
	States *logins.Store // store of the user who names the state; nil without one

	// Set by the registry:
	files *downloads.Files
	saved *virtual.Saved // of a hibernated session
	keep  bool           // it has a running save
}

// Policy returns when sessions with these settings end, and how many there may be.
func Policy(s settings.Settings) book.Policy {
	return book.Policy{Grace: s.SessionGrace, Idle: s.SessionIdle, Hibernate: s.Hibernate, Max: s.MaxSessions}
}

// options returns the options of a new session, or of one that was hibernated.
// The state is read anew for each new session.
func (w Wanted) options(isDefault bool) (virtual.Options, error) {
	o := virtual.Options{Settings: w.Settings, DefaultContext: isDefault, Files: w.files, Keep: w.keep}
	var err error
	switch {
	case w.saved != nil:
		var snapshot *virtual.Snapshot
		if snapshot, err = w.saved.Load(); err == nil {
			o.Login, o.Tabs, o.Emulated = snapshot.State, snapshot.Tabs, snapshot.Emulated
		}
		return o, err
	case w.State == "":
		return o, nil
	}
	o.Login, err = w.States.Load(w.State)
	return o, err
}
