package launch

import (
	"slices"
	"strconv"
	"strings"

	"btools/lib/record"
)

// chromeArgs are what every Chromium gets unless --no-default-args is given:
// no first-run pages, no work in the background that nobody asked for, no
// throttling of what isn't looked at, the same pixels everywhere.
var chromeArgs = []string{
	"--no-first-run",                                       // no welcome page in place of the first tab
	"--no-default-browser-check",                           // no question at the start
	"--disable-default-apps",                               // no apps installed into a new profile
	"--disable-extensions",                                 // the profile's extensions would change pages
	"--disable-component-extensions-with-background-pages", // nor those that are built in
	"--disable-sync",                                       // no account, no upload
	"--disable-background-networking",                      // no calls home: they delay, and fail on closed networks
	"--disable-component-update",                           // the updater fills disks (browserless#5525: 125 GB in 2 h)
	"--disable-domain-reliability",                         // no reports of failed requests
	"--disable-client-side-phishing-detection",             // no model that judges each page
	"--metrics-recording-only",                             // metrics are kept, never sent
	"--disable-field-trial-config",                         // the same features each time, not a trial's
	"--disable-search-engine-choice-screen",                // asked of new profiles in the EEA
	"--disable-background-timer-throttling",                // timers of hidden tabs run on time
	"--disable-backgrounding-occluded-windows",             // a covered window still paints
	"--disable-renderer-backgrounding",                     // hidden tabs keep their priority
	"--disable-ipc-flooding-protection",                    // automation may navigate and push state fast
	"--disable-hang-monitor",                               // no dialog over a busy page
	"--disable-prompt-on-repost",                           // reloading a form's result does not ask
	"--hide-crash-restore-bubble",                          // no bubble after a kill
	"--password-store=basic",                               // no keyring, which would ask
	"--use-mock-keychain",                                  // the same on macOS
	"--force-color-profile=srgb",                           // screenshots alike on every screen
	"--export-tagged-pdf",                                  // printed PDFs keep their structure
	"--mute-audio",                                         // nobody listens
	"--edge-skip-compat-layer-relaunch",                    // Edge's relaunch would lose the pipe
}

// Without a screen a page has 1280 × 720 pixels, as with @playwright/mcp: in the 780 ×
// 493 of Chromium's own default, most sites show what they have for tablets. The window
// of chrome-headless-shell is the page alone; that of Chromium 156 has 87 pixels more.
var (
	shellSize    = []string{"--window-size=1280,720"}
	headlessSize = []string{"--window-size=1280,807", "--screen-info={1280x807}"}
)

// disabledBlink is merged with the user's as well: navigator.webdriver is false, or
// sites that refuse programs would refuse agents, and those under test would show
// others than their users see.
var disabledBlink = []string{"AutomationControlled"}

// disabledFeatures are merged with the user's into one flag: Chrome takes the
// last --disable-features only.
var disabledFeatures = []string{
	"Translate",                    // no bar that offers to translate
	"OptimizationHints",            // no download of hints
	"MediaRouter",                  // no search for cast devices, which asks the firewall on macOS
	"DialMediaRouteProvider",       // likewise
	"AcceptCHFrame",                // a restart of the request that interception sees twice
	"HttpsUpgrades",                // http://localhost stays http
	"DestroyProfileOnBrowserClose", // the last window's end must not take the profile along
	// The address bar's list as web pages: two more renderers, with pages of
	// their own, for each window (Chromium 156: 9 windows took 300 MiB in place
	// of 390 to 570, and a new one half the time).
	"WebUIOmniboxPopup",
	"WebUIOmniboxAimPopup",
}

// chromeCommand returns the arguments of a Chromium for the profile.
func (s *Spec) chromeCommand(profile string, smallShm bool) []string {
	var args []string
	if !s.NoDefaultArgs {
		args = append(args, chromeArgs...)
		if slices.ContainsFunc(s.Args, wantsExtensions) {
			args = slices.DeleteFunc(args, isDisableExtensions)
		}
		if smallShm {
			args = append(args, "--disable-dev-shm-usage") // tabs crash in a small /dev/shm
		}
	}
	args = append(args, s.hold()...)
	if !s.handsOver() {
		args = append(args, "--remote-debugging-port="+strconv.Itoa(s.Port))
	}
	if strings.TrimSpace(profile) != profile {
		profile += "/" // Chrome trims its arguments, and would use another directory
	}
	args = append(args, "--user-data-dir="+profile)
	if s.Headless {
		args = append(args, "--headless=new")
	}
	if s.NoSandbox {
		args = append(args, "--no-sandbox")
	}
	switch {
	case s.WindowSize != "":
		args = append(args, "--window-size="+s.WindowSize)
	case s.NoDefaultArgs:
	case s.Browser.Type == record.HeadlessShell:
		args = append(args, shellSize...)
	case s.Headless:
		args = append(args, headlessSize...)
	}
	args = append(args, s.Args...)
	if !s.NoDefaultArgs {
		args = mergeFeatures(args, "features", disabledFeatures)
		args = mergeFeatures(args, "blink-features", disabledBlink)
	}
	switch {
	case s.pageLater() && !(s.handsOver() && s.URL != ""):
		args = append(args, "--no-startup-window")
	case s.firstPage() != "":
		args = append(args, s.firstPage())
	}
	return args
}

// isDisableExtensions reports whether arg keeps Chrome from starting extensions.
func isDisableExtensions(arg string) bool { return arg == "--disable-extensions" }

// wantsExtensions reports whether a user's argument needs extensions: it loads some, or
// lets a client load them by CDP. With --disable-extensions Chrome starts none, and says nothing.
func wantsExtensions(arg string) bool {
	return strings.HasPrefix(arg, loadSwitch) || arg == debugExtensions
}

// firstPage is the URL to open, "" to leave it to the browser.
func (s *Spec) firstPage() string {
	if s.URL == "" && (!s.NoDefaultArgs || s.SaveState != nil) {
		return "about:blank"
	}
	return s.URL
}

// pageLater reports whether the first page is asked for at the endpoint and
// not on the command line: the endpoint answers only when a page that the
// browser starts with is made, 150 to 200 ms later. With a window, the first
// one is the browser's to make, unless its state is saved: a browser that starts
// without one stays when its last window is closed, and its state can be read. Whoever
// has the browser's pipe asks for the pages that it needs, and for no other.
func (s *Spec) pageLater() bool {
	return s.SaveState != nil || s.Headless && !s.NoDefaultArgs && s.Browser.Type != record.HeadlessShell
}

// mergeFeatures makes one --disable-features of ours and the user's, and one
// --enable-features of the user's; what the user enables is not disabled by
// us. Likewise those of Blink.
func mergeFeatures(args []string, kind string, disabled []string) []string {
	off, on := "--disable-"+kind+"=", "--enable-"+kind+"="
	var disable, enable, rest []string
	for _, a := range args {
		switch {
		case strings.HasPrefix(a, off):
			disable = append(disable, strings.Split(a[len(off):], ",")...)
		case strings.HasPrefix(a, on):
			enable = append(enable, strings.Split(a[len(on):], ",")...)
		default:
			rest = append(rest, a)
		}
	}
	name := func(f string) string { // Feature<Study:param/value is also a feature
		f, _, _ = strings.Cut(f, "<")
		f, _, _ = strings.Cut(f, ":")
		return f
	}
	var ours []string
	for _, f := range disabled {
		if !slices.ContainsFunc(enable, func(e string) bool { return name(e) == f }) && !slices.Contains(disable, f) {
			ours = append(ours, f)
		}
	}
	if disable = append(ours, disable...); len(disable) > 0 {
		rest = append(rest, off+strings.Join(disable, ","))
	}
	if len(enable) > 0 {
		rest = append(rest, on+strings.Join(enable, ","))
	}
	return rest
}

// firefoxCommand returns the arguments of a Firefox for the profile.
func (s *Spec) firefoxCommand(profile string) []string {
	args := []string{"--remote-debugging-port=" + strconv.Itoa(s.Port), "--profile", profile}
	if !s.NoDefaultArgs {
		args = append(args, "--no-remote", "--new-instance") // never hand over to a Firefox that runs
	}
	if s.Headless {
		args = append(args, "--headless")
	}
	if w, h, ok := strings.Cut(s.WindowSize, ","); ok {
		args = append(args, "--width", w, "--height", h)
	}
	args = append(args, s.Args...)
	if s.URL != "" {
		args = append(args, s.URL)
	} else if !s.NoDefaultArgs {
		args = append(args, "about:blank")
	}
	return args
}

// firefoxPrefs go into a temporary profile: as quiet as the Chromium above.
const firefoxPrefs = `user_pref("app.update.enabled", false);
user_pref("app.update.disabledForTesting", true);
user_pref("app.normandy.enabled", false);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("browser.newtabpage.enabled", false);
user_pref("browser.safebrowsing.malware.enabled", false);
user_pref("browser.safebrowsing.phishing.enabled", false);
user_pref("browser.safebrowsing.blockedURIs.enabled", false);
user_pref("browser.safebrowsing.downloads.enabled", false);
user_pref("browser.search.update", false);
user_pref("browser.sessionstore.resume_from_crash", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.homepage_override.mstone", "ignore");
user_pref("browser.startup.page", 0);
user_pref("browser.tabs.unloadOnLowMemory", false);
user_pref("browser.topsites.contile.enabled", false);
user_pref("datareporting.healthreport.uploadEnabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("datareporting.usage.uploadEnabled", false);
user_pref("dom.ipc.reportProcessHangs", false);
user_pref("extensions.getAddons.cache.enabled", false);
user_pref("extensions.update.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
user_pref("services.settings.server", "data:,#remote-settings-dummy/v1");
user_pref("toolkit.telemetry.reportingpolicy.firstRun", false);
user_pref("toolkit.startup.max_resumed_crashes", -1);
`
