package policy

// CheckTarget judges a command by what its session leads to: it refuses those
// that end Chromium 156 on another kind of target than they are made for. The
// state of the target is asked for only where it matters: its type, "" if it is
// not known, and whether its renderer is gone.
func CheckTarget(method string, state func() (typ string, crashed bool)) *Error {
	switch method {
	case "Page.printToPDF", "Input.synthesizePinchGesture", "Input.synthesizeScrollGesture", "Input.synthesizeTapGesture":
		if typ, crashed := state(); crashed || typ == "" {
			return serverError("Target crashed")
		}
	case "Network.setCookies": // on a worker; Network.setCookie is harmless there
		if typ, _ := state(); typ != "page" && typ != "iframe" {
			return serverError("Network.setCookies is for pages and frames in a shared browser; Storage.setCookies is for all")
		}
	}
	return nil
}
