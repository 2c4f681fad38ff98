package sessions

import (
	"path/filepath"

	"btools/lib/control"
	"btools/lib/virtual"
)

// Settings are the properties that one session can have, others not.
type Settings struct {
	TabLimit int `json:"tab_limit,omitempty"` // bounds its pages; 0: no bound
	// Trace is the absolute path of the file to which the messages of its
	// clients are appended; "": as the program decides.
	Trace string `json:"trace,omitempty"`
}

// Check returns an error if a setting is invalid.
func (s Settings) Check() error {
	if s.TabLimit < 0 {
		return control.Errorf(control.BadRequest, "the tab limit must be 0 or more, not %d", s.TabLimit)
	}
	if s.Trace != "" && !filepath.IsAbs(s.Trace) {
		return control.Errorf(control.BadRequest, "the path of the trace must be absolute, not %q", s.Trace)
	}
	return nil
}

func (s Settings) options(isDefault bool) virtual.Options {
	return virtual.Options{Default: isDefault, TabLimit: s.TabLimit}
}
