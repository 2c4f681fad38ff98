package config

import (
	"path/filepath"
	"runtime"
	"strings"

	"btools/lib/settings"
)

// checkIsolation reports instances whose browser cannot be shared.
func (c *Config) checkIsolation(bad *Error) {
	reported := map[string]bool{} // a value may apply to many instances
	for _, p := range c.Pools {
		for _, i := range p.Instances {
			if i.Isolation != settings.Context {
				c.checkNeedsContext(p, i, reported, bad)
				continue
			}
			e := p.layers.lookup(p.Name, i.ID, "ISOLATION")
			why := whyUnshareable(i)
			if why == "" || reported[p.Name+why] {
				continue
			}
			reported[p.Name+why] = true
			bad.add(e.source, "%s is %q for %s/%s, %s", e.name(), e.text, p.Name, i.ID, why)
		}
	}
}

// checkNeedsContext reports a proxy, a state or limits of an instance whose browser cannot
// have them: an instance must not go without what is configured for it.
func (c *Config) checkNeedsContext(p Pool, i settings.Settings, reported map[string]bool, bad *Error) {
	private := ""
	if i.BlockPrivate {
		private = "true"
	}
	for key, value := range map[string]string{"PROXY": i.Proxy, "STATE": i.State, "BLOCK_PRIVATE": private,
		"ALLOW_ORIGINS": strings.Join(i.AllowOrigins, " "), "BLOCK_ORIGINS": strings.Join(i.BlockOrigins, " ")} {
		e := p.layers.lookup(p.Name, i.ID, key)
		if value == "" || c.reportedAsJoined(e) || reported[p.Name+e.source] {
			continue
		}
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
		switch e.row.KeyName() {
		case "DOWNLOADS", "DOWNLOAD_LIMIT":
			if !c.anyInstance(&e, func(i settings.Settings) bool { return WhyNoDownloads(i) == "" }) {
				bad.add(e.source, "%s has no effect here: the browsers write their downloads where they like", e.name())
			}
		case "MAX_MEMORY":
			switch {
			case e.text == "0":
			case runtime.GOOS != "linux":
				bad.add(e.source, "%s is not supported on %s, where a browser's memory is not known", e.name(),
					runtime.GOOS)
			case !c.anyInstance(&e, func(i settings.Settings) bool {
				return i.Launch && !i.WSLWindows && !i.Extension
			}):
				bad.add(e.source, "%s has no effect here: it applies only to browsers that bpool launches on Linux",
					e.name())
			}
		}
		if e.row.Context && !c.anyInstance(&e, func(i settings.Settings) bool {
			return i.Isolation == settings.Context
		}) {
			bad.add(e.source, "%s has no effect here: it applies only to instances with isolation = \"context\"",
				e.name())
		}
	}
}

// WhyNoDownloads says why the leases of the instance have no directory for their
// downloads, or returns "".
func WhyNoDownloads(i settings.Settings) string {
	switch {
	case !i.Launch:
		return "bpool does not launch that browser"
	case i.Extension:
		return "that browser has joined by its extension: its hub has them"
	case i.WSLWindows:
		return "it is a browser of Windows"
	case otherBrowser(i) != "":
		return otherBrowser(i) + " reports no downloads"
	}
	return ""
}

// otherBrowser names the browser if it is not based on Chromium, or returns "".
func otherBrowser(i settings.Settings) string {
	if kind := strings.ToLower(filepath.Base(i.Browser)); strings.HasPrefix(kind, "firefox") || kind == "webkit" {
		return kind
	}
	return ""
}

// whyUnshareable says why the instance cannot share a browser, or returns "".
func whyUnshareable(i settings.Settings) string {
	switch {
	case otherBrowser(i) != "":
		return "whose browser is " + otherBrowser(i) + ": only browsers based on Chromium can be shared"
	case !i.Launch:
		return "which has no browser to share: launch is false"
	case i.Profile != "":
		return "which has a user_data_dir: sessions do not use that profile"
	case i.ProxyBypass != "" && i.Limits().Any():
		return "which has a proxy_bypass: allow_origins, block_origins and block_private judge all requests"
	}
	return ""
}

// anyInstance reports whether a value applies to an instance that satisfies is.
func (c *Config) anyInstance(e *entry, is func(settings.Settings) bool) bool {
	for _, p := range c.Pools {
		if e.level != settings.Global && e.pool != p.Name {
			continue
		}
		for _, i := range p.Instances {
			if (e.level != settings.Instance || e.id == i.ID) && is(i) {
				return true
			}
		}
	}
	return false
}
