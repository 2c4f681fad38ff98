package sessions

import (
	"btools/lib/control"
	"btools/lib/virtual"
)

// Settings are the properties that one session can have, others not.
type Settings struct {
	TabLimit int `json:"tab_limit,omitempty"` // bounds its pages; 0: no bound
}

// Check returns an error if a setting is invalid.
func (s Settings) Check() error {
	if s.TabLimit < 0 {
		return control.Errorf(control.BadRequest, "the tab limit must be 0 or more, not %d", s.TabLimit)
	}
	return nil
}

func (s Settings) options(isDefault bool) virtual.Options {
	return virtual.Options{Default: isDefault, TabLimit: s.TabLimit}
}
