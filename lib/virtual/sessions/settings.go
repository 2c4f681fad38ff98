package sessions

import (
	"path/filepath"
	"slices"
	"time"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/forward"
	"btools/lib/states"
	"btools/lib/virtual"
)

// Settings are the properties that one session can have, others not.
type Settings struct {
	TabLimit int `json:"tab_limit,omitempty"` // bounds its pages; 0: no bound
	// Trace is the absolute path of the file to which the messages of its
	// clients are appended; "": as the program decides.
	Trace string `json:"trace,omitempty"`
	// Proxy is the URL of its proxy, with credentials, "" for none. ProxyBypass
	// lists the hosts that it reaches without.
	Proxy       string `json:"proxy,omitempty"`
	ProxyBypass string `json:"proxy_bypass,omitempty"`
	// UploadRoots are the directories whose files it may put into forms, besides
	// its own, and DownloadRoots those in which clients of any user may ask for its
	// downloads: absolute, without symbolic links. DownloadLimit bounds the bytes
	// that it downloads; 0: no bound.
	UploadRoots   []string `json:"upload_roots,omitempty"`
	DownloadRoots []string `json:"download_roots,omitempty"`
	DownloadLimit int64    `json:"download_limit,omitempty"`
	// ThrottleMS is for how many milliseconds it is not used until its pages are
	// hidden; 0: they never are.
	ThrottleMS int64 `json:"throttle_ms,omitempty"`
	// State is the name of the state with which it starts, "" for none, and States
	// is the store of the user who names it; no client sets that.
	State  string        `json:"state,omitempty"`
	States *states.Store `json:"-"`

	// Set by the registry:
	files *downloads.Files
	saved *virtual.Saved // of a hibernated session
	keep  bool           // it has a running save
}

// Check returns an error if a setting is invalid.
func (s Settings) Check() error {
	if s.TabLimit < 0 {
		return control.Errorf(control.BadRequest, "the tab limit must be 0 or more, not %d", s.TabLimit)
	}
	if s.Trace != "" && !filepath.IsAbs(s.Trace) {
		return control.Errorf(control.BadRequest, "the path of the trace must be absolute, not %q", s.Trace)
	}
	if s.DownloadLimit < 0 {
		return control.Errorf(control.BadRequest, "the limit of downloads must be 0 or more, not %d", s.DownloadLimit)
	}
	if s.ThrottleMS < 0 {
		return control.Errorf(control.BadRequest, "the time until throttling must be 0 or more, not %d ms",
			s.ThrottleMS)
	}
	for _, dir := range slices.Concat(s.UploadRoots, s.DownloadRoots) {
		if !filepath.IsAbs(dir) {
			return control.Errorf(control.BadRequest,
				"the path of a directory for uploads or downloads must be absolute, not %q", dir)
		}
	}
	if s.Proxy != "" {
		if _, err := forward.Parse(s.Proxy); err != nil {
			return control.Errorf(control.BadRequest, "cannot use the proxy: %v", err)
		}
	}
	if s.State != "" {
		if err := states.CheckName(s.State); err != nil {
			return control.Errorf(control.BadRequest, "%v", err)
		}
	}
	return nil
}

// options returns the options of a new session, or of one that was hibernated.
// The state is read anew for each new session.
func (s Settings) options(isDefault bool) (virtual.Options, error) {
	o := virtual.Options{Default: isDefault, TabLimit: s.TabLimit, ProxyBypass: s.ProxyBypass,
		Downloads: s.files, Keep: s.keep, UploadRoots: s.UploadRoots, DownloadRoots: s.DownloadRoots,
		Throttle: time.Duration(s.ThrottleMS) * time.Millisecond}
	if s.Proxy != "" {
		o.Proxy, _ = forward.Parse(s.Proxy) // it was checked
	}
	o.StateName = s.State
	var err error
	switch {
	case s.saved != nil:
		var snapshot *virtual.Snapshot
		if snapshot, err = s.saved.Load(); err == nil {
			o.State, o.Tabs = snapshot.State, snapshot.Tabs
		}
		return o, err
	case s.State == "":
		return o, nil
	}
	o.State, err = s.States.Load(s.State)
	return o, err
}
