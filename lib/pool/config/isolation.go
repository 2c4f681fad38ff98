package config

import (
	"path/filepath"
	"runtime"
	"strings"
)

// checkIsolation reports instances whose browser cannot be shared.
func (c *Config) checkIsolation(bad *Error) {
	reported := map[string]bool{} // a value may apply to many instances
	for _, p := range c.Pools {
		for _, i := range p.Instances {
			if i.Isolation != Context {
				c.checkProxy(p, i, reported, bad)
				c.checkState(p, i, reported, bad)
				continue
			}
			e := p.layers.lookup(p.Name, i.ID, "ISOLATION")
			why := i.whyUnshareable()
			if why == "" || reported[p.Name+why] {
				continue
			}
			reported[p.Name+why] = true
			bad.add(e.source, "%s is %q for %s/%s, %s", e.name(), e.text, p.Name, i.ID, why)
		}
	}
}

// checkProxy reports a proxy of an instance whose browser cannot have one. An
// instance must not use the network directly when a proxy is configured for it.
func (c *Config) checkProxy(p Pool, i Settings, reported map[string]bool, bad *Error) {
	e := p.layers.lookup(p.Name, i.ID, "PROXY")
	if i.Proxy != "" && !c.reportedAsJoined(e) && !reported[p.Name+e.source] {
		reported[p.Name+e.source] = true
		bad.add(e.source, "%s is set for %s/%s, which has a browser to itself: it applies only to instances with "+
			"isolation = \"context\"", e.name(), p.Name, i.ID)
	}
}

// checkState reports a state of an instance whose leases cannot start with one.
func (c *Config) checkState(p Pool, i Settings, reported map[string]bool, bad *Error) {
	e := p.layers.lookup(p.Name, i.ID, "STATE")
	if i.State != "" && !c.reportedAsJoined(e) && !reported[p.Name+e.source] {
		reported[p.Name+e.source] = true
		bad.add(e.source, "%s is set for %s/%s, which has a browser to itself: it applies only to instances with "+
			"isolation = \"context\"", e.name(), p.Name, i.ID)
	}
}

// checkUnused reports values that have no effect.
func (s *layers) checkUnused(c *Config, bad *Error) {
	for _, e := range s.entries {
		if c.checkJoined(&e, bad) {
			continue
		}
		switch e.key.name {
		case "DOWNLOADS", "DOWNLOAD_LIMIT":
			if !c.anyInstance(&e, func(i Settings) bool { return i.WhyNoDownloads() == "" }) {
				bad.add(e.source, "%s has no effect here: the browsers write their downloads where they like", e.name())
			}
		case "PER_BROWSER", "SPARES", "PROXY_BYPASS", "THROTTLE", "HIBERNATE", "UPLOAD_ROOTS", "DOWNLOAD_ROOTS":
			if !c.anyInstance(&e, func(i Settings) bool { return i.Isolation == Context }) {
				bad.add(e.source,
					"%s has no effect here: it applies only to instances with isolation = \"context\"", e.name())
			}
		case "MAX_MEMORY":
			switch {
			case e.text == "0":
			case runtime.GOOS != "linux":
				bad.add(e.source, "%s is not supported on %s, where a browser's memory is not known", e.name(),
					runtime.GOOS)
			case !c.anyInstance(&e, func(i Settings) bool { return i.Launch && !i.WSLWindows && !i.Extension }):
				bad.add(e.source, "%s has no effect here: it applies only to browsers that bpool launches on Linux",
					e.name())
			}
		}
	}
}

// WhyNoDownloads says why the leases of the instance have no directory for their
// downloads, or returns "".
func (i *Settings) WhyNoDownloads() string {
	switch {
	case !i.Launch:
		return "bpool does not launch that browser"
	case i.Extension:
		return "that browser has joined by its extension: its hub has them"
	case i.WSLWindows:
		return "it is a browser of Windows"
	case i.otherBrowser() != "":
		return i.otherBrowser() + " reports no downloads"
	}
	return ""
}

// otherBrowser names the browser if it is not based on Chromium, or returns "".
func (i *Settings) otherBrowser() string {
	if kind := strings.ToLower(filepath.Base(i.Browser)); strings.HasPrefix(kind, "firefox") || kind == "webkit" {
		return kind
	}
	return ""
}

// whyUnshareable says why the instance cannot share a browser, or returns "".
func (i *Settings) whyUnshareable() string {
	switch {
	case i.otherBrowser() != "":
		return "whose browser is " + i.otherBrowser() + ": only browsers based on Chromium can be shared"
	case !i.Launch:
		return "which has no browser to share: launch is false"
	case i.UserDataDir != "":
		return "which has a user_data_dir: sessions do not use that profile"
	}
	return ""
}

// anyInstance reports whether a value applies to an instance that satisfies is.
func (c *Config) anyInstance(e *entry, is func(Settings) bool) bool {
	for _, p := range c.Pools {
		if e.level != global && e.pool != p.Name {
			continue
		}
		for _, i := range p.Instances {
			if (e.level != instance || e.id == i.ID) && is(i) {
				return true
			}
		}
	}
	return false
}
