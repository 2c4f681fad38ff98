package cli

import (
	"btools/lib/record"
	"btools/lib/state"
)

// Schema lists the members that records can have, for --field.
func Schema(also map[string]any) map[string]any {
	s := map[string]any{"v": nil, "port": nil, "browser": record.Browser{}, "instance": record.Instance{},
		"proxy": record.Proxy{}, "lease": record.Lease{}, "joined": record.Joined{}}
	for k, v := range also {
		s[k] = v
	}
	return s
}

// State opens the shared state file of this context; what it mends is told
// as a warning.
func (c *Context) State() *state.Store {
	s := state.Open(c.Getenv)
	s.Warn = func(msg string) { c.Log.Warn(msg) }
	return s
}
