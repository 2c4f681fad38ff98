package config

import (
	"btools/lib/launch/options"
	"btools/lib/settings"
)

// ofJoined are the settings of an instance whose browser joins by its extension: it is
// its user's, runs already, and every lease has a session of its own in it.
var ofJoined = settings.Settings{Isolated: true, Isolation: settings.Process, Start: "eager", Restart: "always",
	Options: options.Options{Headless: new(false), Sandbox: "auto"}}

// asJoined returns the settings of an instance whose browser joins, without what holds
// for browsers that bpool launches. The proxy and the state stay: they are refused, as
// a lease must not go without them.
func asJoined(s settings.Settings) settings.Settings {
	proxy, state := s.Proxy, s.State
	for _, r := range settings.Rows(settings.Keys) {
		if r.NotJoined != "" {
			r.Copy(&s, &ofJoined)
		}
	}
	s.Proxy, s.State = proxy, state
	return s
}

// checkJoined reports values that apply only to instances whose browsers join by
// the extension, on which they have no effect. It returns true for these.
func (c *Config) checkJoined(e *entry, bad *Error) bool {
	if !c.reportedAsJoined(e) {
		return false
	}
	bad.add(e.source, "%s has no effect with launch = \"extension\": %s", e.name(), e.row.NotJoined)
	return true
}

// reportedAsJoined reports whether a value applies only to instances whose
// browsers join, on which it has no effect.
func (c *Config) reportedAsJoined(e *entry) bool {
	return e.row.NotJoined != "" && c.anyInstance(e, func(i settings.Settings) bool { return i.Extension }) &&
		!c.anyInstance(e, func(i settings.Settings) bool { return !i.Extension })
}
