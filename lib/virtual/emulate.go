package virtual

import (
	"encoding/json"

	"btools/lib/emulate"
	"btools/lib/jsonrpc"
)

// The settings of a session may emulate a device, a place or a language. Chrome does so for
// each page by itself, for as long as the CDP session that wants it lasts. So the session's
// own one wants it, before the page runs: then it is so for all clients, in pop-ups, and
// after hibernation. A client that emulates something else overrides it, but the
// time zone and the language, of which Chrome refuses a second.

// readEmulation makes the commands by which pages emulate what the settings say.
func (s *Session) readEmulation() {
	o := &s.options
	e := emulate.Emulation{Device: o.Device, UserAgent: o.UserAgent, Geolocation: o.Geolocation, Timezone: o.Timezone,
		Locale: o.Locale, Headers: o.Header, Offline: o.Offline}
	commands := e.Commands(jsonrpc.GetString(s.browser.version, "userAgent"))
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	s.emulates = commands
	for _, c := range commands {
		if c.Method == "Emulation.setDeviceMetricsOverride" {
			s.metrics, _ = json.Marshal(c.Params)
		}
	}
}

// emulateLocked makes a new page, given by the session's own CDP session, emulate what the
// settings say.
func (s *Session) emulateLocked(own string) {
	for _, c := range s.emulates {
		s.link.Send(own, c.Method, c.Params)
	}
}
