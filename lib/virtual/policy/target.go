package policy

// CheckTarget checks a command against the target of its session: it refuses
// commands that crash Chromium 156 on a kind of target for which they are not
// made. It calls state only if the result matters: the type of the target, ""
// if it is not known, and whether its renderer has crashed.
func CheckTarget(method string, state func() (typ string, crashed bool)) *Error {
	switch method {
	case "Page.printToPDF", "Input.synthesizePinchGesture", "Input.synthesizeScrollGesture",
		"Input.synthesizeTapGesture":
		if typ, crashed := state(); crashed || typ == "" {
			return serverError("Target crashed")
		}
	case "Network.setCookies": // on a worker; Network.setCookie is harmless there
		if typ, _ := state(); typ != "page" && typ != "iframe" {
			return serverError("Network.setCookies is for pages and frames in a shared browser; " +
				"Storage.setCookies is for all")
		}
	}
	return nil
}
