package sessions

import (
	"btools/lib/downloads"
	"btools/lib/forward/upstream"
	book "btools/lib/sessions"
	"btools/lib/settings"
	"btools/lib/states"
	"btools/lib/virtual"
)

// Wanted is a session to create.
type Wanted struct {
	settings.Settings
	States *states.Store // store of the user who names the state; nil without one

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
	o := virtual.Options{Default: isDefault, TabLimit: w.TabLimit, ProxyBypass: w.ProxyBypass,
		Downloads: w.files, Keep: w.keep, UploadRoots: w.UploadRoots, DownloadRoots: w.DownloadRoots,
		Throttle: w.Throttle, StateName: w.State}
	if w.Proxy != "" {
		o.Proxy, _ = upstream.Parse(w.Proxy) // it was checked
	}
	var err error
	switch {
	case w.saved != nil:
		var snapshot *virtual.Snapshot
		if snapshot, err = w.saved.Load(); err == nil {
			o.State, o.Tabs = snapshot.State, snapshot.Tabs
		}
		return o, err
	case w.State == "":
		return o, nil
	}
	o.State, err = w.States.Load(w.State)
	return o, err
}
