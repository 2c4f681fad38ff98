package policy

import "btools/lib/jsonrpc"

// Target is the state of a target that a command may depend on.
type Target struct {
	Type    string  // "": not known
	Crashed bool    // its renderer has
	Scale   float64 // the device scale factor that clients emulate; 0: none
}

// CheckTarget checks a command against the target of its session: it refuses
// commands that crash Chromium 156 on a kind of target for which they are not
// made. It calls state only if the result matters.
func CheckTarget(c Command, state func() Target) *Error {
	switch c.Method {
	case "Page.printToPDF", "Input.synthesizePinchGesture", "Input.synthesizeScrollGesture",
		"Input.synthesizeTapGesture":
		if t := state(); t.Crashed || t.Type == "" {
			return serverError("Target crashed")
		}
	case "Page.captureScreenshot":
		clip := jsonrpc.Get(c.Params, "clip")
		if clip == nil {
			return nil
		}
		if err := checkScaledClip(clip, max(state().Scale, 1)); err != nil {
			return invalidParams("Invalid parameters: clip: " + err.Error())
		}
	case "Network.setCookies": // on a worker; Network.setCookie is harmless there
		if typ := state().Type; typ != "page" && typ != "iframe" {
			return serverError("Network.setCookies is for pages and frames in a shared browser; " +
				"Storage.setCookies is for all")
		}
	}
	return nil
}
