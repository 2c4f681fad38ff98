package config

import "slices"

// notJoined are the keys that have no effect on a browser that joins by its
// extension: it is its user's, runs already, and every lease has a session of
// its own in it.
var notJoined = []string{"BROWSER", "HEADLESS", "ISOLATED", "ISOLATION", "PER_BROWSER", "SPARES", "WSL_WINDOWS", "ARGS",
	"USER_DATA_DIR", "SANDBOX", "START", "RESTART", "MAX_USES", "MAX_AGE", "MAX_MEMORY", "IDLE", "IDLE_BY",
	"THROTTLE", "HIBERNATE", "PROXY", "PROXY_BYPASS", "DOWNLOADS", "DOWNLOAD_LIMIT", "UPLOAD_ROOTS",
	"DOWNLOAD_ROOTS", "STATE"}

// asJoined returns the settings of an instance whose browser joins by its
// extension, without what holds for browsers that bpool launches. The proxy and
// the state stay: they are refused, as a lease must not go without them.
func (i Settings) asJoined() Settings {
	i.Browser, i.Headless, i.WSLWindows, i.Args, i.UserDataDir, i.Sandbox = "", false, false, nil, "", "auto"
	i.Isolated, i.Isolation, i.PerBrowser, i.Spares = true, Process, 0, 0
	i.Start, i.Restart, i.MaxUses, i.MaxAge, i.MaxMemory, i.Idle = "eager", "always", 0, 0, 0, 0
	i.Throttle, i.Hibernate, i.ProxyBypass = 0, 0, ""
	i.Downloads, i.DownloadLimit, i.UploadRoots, i.DownloadRoots = "", 0, nil, nil
	return i
}

// checkJoined reports values that apply only to instances whose browsers join by
// the extension, on which they have no effect. It returns true for these.
func (c *Config) checkJoined(e *entry, bad *Error) bool {
	if !c.reportedAsJoined(e) {
		return false
	}
	why := "the browser is its user's, and runs already"
	switch e.key.name {
	case "ISOLATED", "ISOLATION", "PER_BROWSER", "SPARES":
		why = "each lease has a browser that no other lease has, and tabs of its own in it"
	case "START", "RESTART", "MAX_USES", "MAX_AGE", "MAX_MEMORY", "IDLE", "IDLE_BY":
		why = "bpool neither launches the browser nor stops it"
	case "STATE":
		why = "leases have the logins of the browser's user"
	case "DOWNLOADS", "DOWNLOAD_LIMIT", "UPLOAD_ROOTS", "DOWNLOAD_ROOTS", "THROTTLE", "HIBERNATE":
		why = "the hub, bproxy hub, has the sessions"
	}
	bad.add(e.source, "%s has no effect with launch = \"extension\": %s", e.name(), why)
	return true
}

// reportedAsJoined reports whether a value applies only to instances whose
// browsers join, on which it has no effect.
func (c *Config) reportedAsJoined(e *entry) bool {
	return slices.Contains(notJoined, e.key.name) && c.anyInstance(e, func(i Settings) bool { return i.Extension }) &&
		!c.anyInstance(e, func(i Settings) bool { return !i.Extension })
}
