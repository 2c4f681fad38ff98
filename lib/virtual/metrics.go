package virtual

import (
	"encoding/json"

	"btools/lib/virtual/policy"
)

// overrides are what the CDP sessions of a client emulate for their pages. The browser's lock guards them.
type overrides struct {
	k        *Client
	focusing map[string]bool            // the sessions that emulate the focus
	metrics  map[string]json.RawMessage // the parameters of setDeviceMetricsOverride, by session
}

// noteMetrics notes the size of a page that a command emulates, or ends.
func (o *overrides) noteMetrics(c policy.Command) {
	emulates := false
	switch c.Method {
	case "Emulation.setDeviceMetricsOverride", "Page.setDeviceMetricsOverride":
		emulates = true
	case "Emulation.clearDeviceMetricsOverride", "Page.clearDeviceMetricsOverride":
	default:
		return
	}
	b := o.k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(o.metrics, c.Session)
	if emulates && (o.k.sessions.attached[c.Session] != nil || c.Session == "" && o.k.page != "") {
		o.metrics[c.Session] = c.Params
	}
}

// captureAmongOthers takes a screenshot of a page whose size another client emulates, and reports whether it does:
// Chromium 156 ends that emulation with a screenshot of a clip on a CDP session that emulates nothing, so it is begun
// again.
func (r request) captureAmongOthers() bool {
	b := r.k.session.browser
	b.mu.Lock()
	t := r.k.sessions.targetLocked(r.Session)
	var others []emulation
	if t != nil && r.k.overrides.metrics[r.Session] == nil {
		others = r.k.session.emulates.metricsLocked(t)
	}
	b.mu.Unlock()
	if len(others) == 0 {
		return false
	}
	other := others[0] // more than one would contend for the page anyway
	r.k.calls.Begin(r.Session, r.Method, r.Params, func(result json.RawMessage, err error) {
		// Chrome does nothing for parameters that it has already.
		other.calls.Send(other.session, "Emulation.clearDeviceMetricsOverride", nil)
		other.calls.Begin(other.session, "Emulation.setDeviceMetricsOverride", other.params,
			func(json.RawMessage, error) { r.answerTo(nil)(result, err) })
	})
	return true
}
