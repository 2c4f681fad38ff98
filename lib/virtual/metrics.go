package virtual

import (
	"encoding/json"

	"btools/lib/virtual/policy"
)

// noteMetrics notes the size of a page that a command emulates, or ends.
func (k *Client) noteMetrics(c policy.Command) {
	emulates := false
	switch c.Method {
	case "Emulation.setDeviceMetricsOverride", "Page.setDeviceMetricsOverride":
		emulates = true
	case "Emulation.clearDeviceMetricsOverride", "Page.clearDeviceMetricsOverride":
	default:
		return
	}
	b := k.session.browser
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(k.metrics, c.Session)
	if emulates && (k.attached[c.Session] != nil || c.Session == "" && k.page != "") {
		k.metrics[c.Session] = c.Params
	}
}

// captureAmongOthers takes a screenshot of a page whose size another client
// emulates, and reports whether it does: Chromium 156 ends that emulation with a
// screenshot of a clip on a CDP session that emulates nothing, so it is begun
// again.
func (k *Client) captureAmongOthers(c policy.Command) bool {
	b := k.session.browser
	b.mu.Lock()
	t := k.targetLocked(c.Session)
	var others []emulation
	if t != nil && k.metrics[c.Session] == nil {
		others = k.session.emulates.metricsLocked(t)
	}
	b.mu.Unlock()
	if len(others) == 0 {
		return false
	}
	other := others[0] // more than one would contend for the page anyway
	k.calls.Begin(c.Session, c.Method, c.Params, func(result json.RawMessage, err error) {
		// Chrome does nothing for parameters that it has already.
		other.calls.Send(other.session, "Emulation.clearDeviceMetricsOverride", nil)
		other.calls.Begin(other.session, "Emulation.setDeviceMetricsOverride", other.params,
			func(json.RawMessage, error) { k.answerTo(c, nil)(result, err) })
	})
	return true
}
