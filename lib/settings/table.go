package settings

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"btools/lib/emulate"
	"btools/lib/forward/limits"
	"btools/lib/forward/upstream"
	"btools/lib/logins"
	"btools/lib/shellwords"
)

// browserTypes returns the types that BROWSER accepts.
func browserTypes() []string {
	return []string{"chromium", "chrome", "msedge", "edge", "brave", "chrome-headless-shell", "firefox", "webkit"}
}

// Why keys have no effect on a browser that joins by its extension.
const (
	isUsers   = "the browser is its user's, and runs already"
	ownTabs   = "each lease has a browser that no other lease has, and tabs of its own in it"
	notOurs   = "bpool neither launches the browser nor stops it"
	isHubs    = "the hub, bproxy hub, has the sessions"
	hasLogins = "leases have the logins of the browser's user"
)

// Formerly are the names that keys had, and today's.
var Formerly = map[string]string{"IDLE_TIMEOUT": "IDLE"}

// Table returns all settings, in the order in which bpool check prints keys and help texts
// list flags. They are made at the first use. A test may add one.
var Table = sync.OnceValue(func() []*Row {
	return []*Row{
		{Name: "instances", Where: Pool, Kind: "1 to 10000"},
		{Name: "is-default", Where: Pool, Default: "false"},
		{Name: "description", Where: Pool, Field: func(s *Settings) any { return &s.Description }},
		{Name: "alias", Where: Instance, Kind: "a name", Field: func(s *Settings) any { return &s.Alias }},
		{Name: "browser", Where: Keys | Launches, Of: Browsers, Default: "chromium", Kind: "a type or a path",
			Field: func(s *Settings) any { return &s.Browser }, Read: readBrowser, NotJoined: isUsers,
			Variable: "BTOOLS_BROWSER",
			Usage: "launch `TYPE|FILE`: the best of a type, or an executable (default: the browser of the input " +
				"record, otherwise the best installed one)",
			At: map[Where]At{Agent: {Usage: "launch `TYPE|FILE`: the best of a type, or an executable; webkit is " +
				"launched by the child (default: the best that is installed)"}}},
		{Name: "headless", Where: Keys | Launches, Of: Browsers, Default: "true", NotJoined: isUsers,
			Field: func(s *Settings) any { return &s.Headless }, Usage: "run without a window (the default)"},
		{Name: "no-headless", Where: Launches, Of: Browsers, Usage: "open a window"},
		{Name: "isolated", Where: Keys, Default: "false", NotJoined: ownTabs,
			Field: func(s *Settings) any { return &s.Isolated }},
		{Name: "isolation", Where: Keys, Default: Process, Values: []string{Process, Context}, NotJoined: ownTabs,
			Field: func(s *Settings) any { return &s.Isolation }},
		{Name: "per-browser", Where: Keys, Default: "16", Kind: "1 to 10000", Low: 1, High: MaxInstances,
			NotJoined: ownTabs, Context: true, Field: func(s *Settings) any { return &s.PerBrowser }},
		{Name: "spares", Where: Keys, Default: "all", Kind: "a number, or all", NotJoined: ownTabs, Context: true,
			Field: func(s *Settings) any { return &s.Spares }, Read: readSpares},
		{Name: "wsl-windows", Where: Keys, Default: "false", NotJoined: isUsers,
			Field: func(s *Settings) any { return &s.WSLWindows }},
		{Name: "timeout", Where: Keys | Proxy, Of: Lives, Default: "30000",
			Kind:  "a duration, or milliseconds, 0 for no limit",
			Field: func(s *Settings) any { return &s.Timeout }, Read: readTimeout,
			Usage: "give up a launch after `DURATION`", At: map[Where]At{Proxy: {Default: "15s"}}},
		{Name: "launch", Where: Keys, Default: "true", Kind: "true, false or extension", Read: readLaunch,
			Field: func(s *Settings) any { return &s.Launch }},
		{Name: "profile", Key: "USER_DATA_DIR", Where: Keys | Launches, Of: Browsers, Path: true, NotJoined: isUsers,
			Field: func(s *Settings) any { return &s.Profile },
			Usage: "use and keep the profile in `DIR` (default: a temporary one)"},
		{Name: "arg", Key: "ARGS", Where: Keys | Launches, Of: Browsers, NotJoined: isUsers,
			Field: func(s *Settings) any { return &s.Args }, Read: readArgs,
			Usage: "pass `ARG` to the browser (repeatable)"},
		{Name: "no-default-args", Where: Launches, Of: Browsers,
			Field: func(s *Settings) any { return &s.NoDefaultArgs },
			Usage: "pass only the flags that the endpoint and the profile need"},
		{Name: "window-size", Where: Launches, Of: Browsers, Field: func(s *Settings) any { return &s.WindowSize },
			Usage: "make the window `W,H` pixels, such as 1280,720"},
		{Name: "env", Where: Launches, Of: Browsers, Field: func(s *Settings) any { return &s.Env },
			Usage: "set `K=V` in the browser's environment (repeatable)"},
		{Name: "sandbox", Where: Keys | Launches, Of: Browsers, Default: "auto", NotJoined: isUsers,
			Values: []string{"auto", "on", "off"}, Field: func(s *Settings) any { return &s.Sandbox },
			Usage: "set the browser's sandbox to `on|off|auto`; auto, the default, is off for root, in CI, and where " +
				"user namespaces are denied"},
		{Name: "start", Where: Keys, Default: "eager", Values: []string{"eager", "lazy"}, NotJoined: notOurs,
			Field: func(s *Settings) any { return &s.Start }},
		{Name: "restart", Where: Keys, Default: "always", Values: []string{"always", "never"}, NotJoined: notOurs,
			Field: func(s *Settings) any { return &s.Restart }},
		{Name: "max-uses", Where: Keys, Default: "0", Kind: "a number, 0 for no limit", NotJoined: notOurs,
			Field: func(s *Settings) any { return &s.MaxUses }},
		{Name: "max-age", Where: Keys, Default: "0s", Kind: "a duration, 0 for no limit", NotJoined: notOurs,
			Field: func(s *Settings) any { return &s.MaxAge }},
		{Name: "max-memory", Where: Keys, Default: "0", NotJoined: notOurs,
			Field: func(s *Settings) any { return &s.MaxMemory }},
		{Name: "idle", Where: Keys | Proxy | Agent, Of: Lives, Default: "0s", Kind: "a duration, 0 for no limit",
			Field: func(s *Settings) any { return &s.Idle }, NotJoined: notOurs,
			Usage: "stop the browser after `DURATION` without client traffic (even if a client is connected)",
			At: map[Where]At{Agent: {Default: "30m", Usage: "stop the browser when nothing has used it for " +
				"`DURATION`, else for BROWSER_TIMEOUT_MINUTES; the next call launches another; 0 means never"}}},
		{Name: "idle-by", Where: Keys | Proxy, Of: Lives, Default: Traffic, Values: []string{Traffic, Connections},
			Field: func(s *Settings) any { return &s.IdleBy }, NotJoined: notOurs,
			Usage: "count `traffic|connections` as use, for --idle: client messages and downloads, or open " +
				"WebSockets and sessions"},
		{Name: "session-grace", Where: Share | Hub, Of: Sessions, Default: "10s",
			Field: func(s *Settings) any { return &s.SessionGrace },
			Usage: "end an anonymous session `DURATION` after its last connection closes"},
		{Name: "session-idle", Where: Share | Hub | Agent, Of: Sessions, Default: "30m",
			Field: func(s *Settings) any { return &s.SessionIdle },
			Usage: "end a named session after `DURATION` without traffic; 0 means never",
			At: map[Where]At{Share: {Shown: orHibernated}, Agent: {Shown: orHibernated,
				Usage: "end a {session} after `DURATION` without a call, else after BROWSER_TIMEOUT_MINUTES; 0 means " +
					"never"}}},
		{Name: "throttle", Where: Keys | Share | Hub | Agent | Request, Of: Sessions, Default: "1m0s",
			Kind: "a duration, 0 for never", Field: func(s *Settings) any { return &s.Throttle },
			NotJoined: isHubs, Context: true,
			Usage: "hide the pages of a {session} after `DURATION` without traffic, until its next command; " +
				"0 means never",
			At: map[Where]At{Request: {Shown: ofProxy}}},
		{Name: "hibernate", Where: Keys | Share | Agent, Of: Sessions, Default: "0s", Kind: "a duration, 0 for never",
			Field: func(s *Settings) any { return &s.Hibernate }, NotJoined: isHubs, Context: true,
			Usage: "save a named session without connections after `DURATION` without traffic and free its pages; " +
				"the next connection gets it back",
			At: map[Where]At{Share: {Shown: "0, never"}, Agent: {Shown: "0, never",
				Usage: "save and free a {session} unused for `DURATION`; the next call gets it back and says so"}}},
		{Name: "max-sessions", Where: Share | Hub | Agent, Of: Sessions, Default: "100", Low: 1,
			Field: func(s *Settings) any { return &s.MaxSessions },
			Usage: "allow at most `N` sessions at once; hibernated sessions do not count",
			At: map[Where]At{Agent: {Default: "0", Shown: "0, no limit", Zero: true,
				Usage: "keep `N` {session}s awake; other calls wait in order; one unused for 5s is " +
					"hibernated to make room"}}},
		{Name: "tab-limit", Where: Share | Hub | Agent | Request, Of: Sessions, Default: "0",
			Field: func(s *Settings) any { return &s.TabLimit },
			Usage: "close the least recently used tab of a {session} with more than `N`; 0 means no limit",
			At:    map[Where]At{Agent: {Default: "15"}, Request: {Shown: ofProxy}}},
		{Name: "default-session", Where: Share, Of: Sessions, Field: func(s *Settings) any { return &s.DefaultSession },
			Usage: "give the session `NAME` the browser's own profile and logins"},
		{Name: "root-session", Where: Share, Of: Sessions, Field: func(s *Settings) any { return &s.RootSession },
			Usage: "send clients of the root address to the session `NAME`, not to a new one each"},
		{Name: "keep", Where: Share, Of: Sessions, Path: true, Field: func(s *Settings) any { return &s.Keep },
			Usage: "keep named sessions in `DIR`: they come back to the next bproxy that keeps its there"},
		{Name: "proxy", Where: Keys | Share | Request, Of: Sessions, Kind: "the URL of a proxy, or @FILE", Secret: true,
			NotJoined: isUsers,
			Field:     func(s *Settings) any { return &s.Proxy }, Read: readProxy, Variable: "BTOOLS_PROXY",
			Usage: "reach the network through the proxy at `URL`, with USER:PASSWORD@ if it needs them, or @FILE"},
		{Name: "proxy-bypass", Where: Keys | Share | Request, Of: Sessions, Kind: "hosts, separated by semicolons",
			Field: func(s *Settings) any { return &s.ProxyBypass }, NotJoined: isUsers, Context: true,
			Usage: "reach the hosts in `LIST` without the proxy, such as .example.com;10.0.0.0/8"},
		{Name: "allow-origins", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isUsers, Context: true,
			Word: limits.CheckPattern, Field: func(s *Settings) any { return &s.AllowOrigins },
			Usage: "let pages reach the origins of `PATTERN` only, such as https://*.example.com (repeatable)"},
		{Name: "block-origins", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isUsers, Context: true,
			Word: limits.CheckPattern, Field: func(s *Settings) any { return &s.BlockOrigins },
			Usage: "keep pages from the origins of `PATTERN`, also from allowed ones (repeatable)"},
		{Name: "block-private", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isUsers, Context: true,
			Field: func(s *Settings) any { return &s.BlockPrivate },
			Usage: "keep pages from this machine, private networks and cloud metadata, whatever their names"},
		{Name: "device", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isHubs, Context: true,
			Word: emulate.CheckDevice, Field: func(s *Settings) any { return &s.Device },
			Usage: "let pages take their screen for that of `NAME`, such as \"iPhone 15\", or a size, " +
				"390x844@3,mobile"},
		{Name: "user-agent", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isHubs, Context: true,
			Word: emulate.CheckUserAgent, Field: func(s *Settings) any { return &s.UserAgent },
			Usage: "give pages and servers `TEXT` as the user agent"},
		{Name: "geolocation", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isHubs, Context: true,
			Word: emulate.CheckGeolocation, Field: func(s *Settings) any { return &s.Geolocation },
			Usage: "tell pages that they are at `LAT,LON`, without asking"},
		{Name: "timezone", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isHubs, Context: true,
			Word: emulate.CheckTimezone, Field: func(s *Settings) any { return &s.Timezone },
			Usage: "let pages have the time of `ZONE`, such as Europe/Berlin"},
		{Name: "locale", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isHubs, Context: true,
			Word: emulate.CheckLocale, Field: func(s *Settings) any { return &s.Locale },
			Usage: "let pages have the language and the formats of `LOCALE`, such as de-DE"},
		{Name: "header", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isHubs, Context: true,
			Word: emulate.CheckHeader, Field: func(s *Settings) any { return &s.Header },
			Usage: "add `NAME:VALUE` to the requests of pages (repeatable)"},
		{Name: "offline", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isHubs, Context: true,
			Field: func(s *Settings) any { return &s.Offline }, Usage: "let pages have no network"},
		{Name: "grant", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isHubs, Context: true,
			Values: emulate.Permissions(),
			Field:  func(s *Settings) any { return &s.Grant },
			Usage:  "give the pages of a {session} the `PERMISSION` without asking, such as geolocation (repeatable)"},
		{Name: "init-script", Where: Keys | Share | Agent | Request, Of: Sessions, NotJoined: isHubs, Context: true,
			Contents: true, Field: func(s *Settings) any { return &s.InitScript }, Kind: "absolute paths of files",
			Usage: "run the script in `FILE` in each document of the pages of a {session} before its own (repeatable)"},
		{Name: "trace", Where: Request, Of: Sessions, Path: true, Field: func(s *Settings) any { return &s.Trace },
			Usage: "append every message of the new session to `FILE`"},
		{Name: "downloads", Where: Keys | Share | Hub, Of: Sessions, Path: true, NotJoined: isHubs,
			Field: func(s *Settings) any { return &s.Downloads },
			Usage: "keep the downloads of each {session} in `DIR`/NAME, also after its end"},
		{Name: "download-limit", Where: Keys | Share | Hub | Request, Of: Sessions, Default: "1GiB", NotJoined: isHubs,
			Field: func(s *Settings) any { return &s.DownloadLimit },
			Usage: "let a session download at most `SIZE`, such as 200MiB; 0 means no limit",
			At:    map[Where]At{Request: {Shown: ofProxy}}},
		{Name: "upload-root", Key: "UPLOAD_ROOTS", Where: Keys | Share | Hub | Agent | Request, Of: Sessions,
			Dirs: true, Field: func(s *Settings) any { return &s.UploadRoots }, NotJoined: isHubs, Context: true,
			Usage: "let {session}s put files of the directory `DIR` into forms (repeatable)",
			At: map[Where]At{Agent: {Usage: "let {session}s put files of the directory `DIR` into forms (repeatable; " +
				"default: the working directory, unless that is or holds the home directory)"}}},
		{Name: "download-root", Key: "DOWNLOAD_ROOTS", Where: Keys | Share | Hub | Agent | Request, Of: Sessions,
			Dirs: true, Field: func(s *Settings) any { return &s.DownloadRoots }, NotJoined: isHubs, Context: true,
			Usage: "let clients of any user name directories of `DIR` for their downloads (repeatable)"},
		{Name: "lease-timeout", Where: queueKeys, Default: "1m0s",
			Field: func(s *Settings) any { return &s.LeaseTimeout }},
		{Name: "lease-ttl", Where: queueKeys, Default: "1h0m0s", Low: int(time.Millisecond),
			Field: func(s *Settings) any { return &s.LeaseTTL }},
		{Name: "state", Where: queueKeys | Share | Agent | Lease | Request, Of: Sessions, Kind: "the name of a state",
			Field: func(s *Settings) any { return &s.State }, NotJoined: hasLogins,
			Read:  readState,
			Usage: "start each session with the logins of the state `NAME`",
			At: map[Where]At{Request: {Usage: "start the new session with the logins of the state `NAME`"},
				Lease: {Usage: "start with the logins of the state `NAME` (default: the pool's STATE)"},
				Agent: {Usage: "start {session}s with the logins of state `NAME` (of bproxy or bpool; with pools: " +
					"each lease)"}}},
		{Name: "queue-limit", Where: queueKeys, Default: "1024",
			Field: func(s *Settings) any { return &s.QueueLimit }},
		{Name: "affinity", Where: queueKeys, Default: "session", Values: []string{"call", "session"},
			Field: func(s *Settings) any { return &s.Affinity }},
		{Name: "affinity-idle", Where: queueKeys, Default: "15s", Low: int(time.Millisecond),
			Field: func(s *Settings) any { return &s.AffinityIdle }},
		{Name: "health-interval", Where: queueKeys | Proxy, Of: Lives, Default: "20s", Low: int(10 * time.Millisecond),
			Field: func(s *Settings) any { return &s.HealthInterval }, At: map[Where]At{Proxy: {Zero: true}},
			Usage: "check the browser's health every `DURATION`; 0 means never"},
		{Name: "health-timeout", Where: queueKeys | Proxy, Of: Lives, Default: "5s", Low: int(time.Millisecond),
			Field: func(s *Settings) any { return &s.HealthTimeout },
			Usage: "stop a browser that does not answer a health check within `DURATION`"},
		{Name: "nats", Where: Global, Kind: "URLs with commas", Field: func(s *Settings) any { return &s.Hosts.NATS },
			Read: readServers},
		{Name: "nats-creds", Where: Global, Path: true, Field: func(s *Settings) any { return &s.Hosts.Credentials }},
		{Name: "nats-nkey", Where: Global, Path: true, Field: func(s *Settings) any { return &s.Hosts.Seed }},
		{Name: "nats-user", Where: Global, Field: func(s *Settings) any { return &s.Hosts.User }},
		{Name: "nats-password-file", Where: Global, Path: true,
			Field: func(s *Settings) any { return &s.Hosts.PasswordFile }},
		{Name: "nats-ca", Where: Global, Path: true, Field: func(s *Settings) any { return &s.Hosts.CA }},
		{Name: "nats-cert", Where: Global, Path: true, Field: func(s *Settings) any { return &s.Hosts.Cert }},
		{Name: "nats-key", Where: Global, Path: true, Field: func(s *Settings) any { return &s.Hosts.Key }},
		{Name: "nats-name", Where: Global, Field: func(s *Settings) any { return &s.Hosts.Name }},
		{Name: "nats-region", Where: Global, Default: "local", Field: func(s *Settings) any { return &s.Hosts.Region }},
		{Name: "nats-regions", Where: Global, Field: func(s *Settings) any { return &s.Hosts.Regions }},
		{Name: "nats-far-after", Where: Global, Default: "200ms",
			Field: func(s *Settings) any { return &s.Hosts.FarAfter }},
		{Name: "place", Where: Global, Default: Spread, Values: []string{Spread, First},
			Field: func(s *Settings) any { return &s.Hosts.Place }},
		{Name: "hosts-token", Where: Global, Secret: true, Field: func(s *Settings) any { return &s.Hosts.Token }},
		{Name: "hosts-ca", Where: Global, Path: true, Field: func(s *Settings) any { return &s.Hosts.HostsCA }},
		{Name: "hosts-plain", Where: Global, Default: "false", Field: func(s *Settings) any { return &s.Hosts.Plain }},
	}
})

// readServers reads URLs of servers of NATS.
func readServers(s *Settings, text string, _ Files) error {
	s.Hosts.NATS = nil
	for one := range strings.SplitSeq(text, ",") {
		one = strings.TrimSpace(one)
		if at := strings.LastIndex(one, "@"); at >= 0 { // first, as errors show the URL
			return fmt.Errorf("must not have a user or password in the URL of %s, where others can read it: "+
				"NATS_USER with NATS_PASSWORD_FILE, NATS_NKEY or NATS_CREDS have it", one[at+1:])
		}
		u, err := url.Parse(one)
		if err != nil || u.Host == "" || u.Scheme != "tls" && u.Scheme != "nats" {
			return fmt.Errorf("must be URLs such as tls://nats.example:4222, not %q", one)
		}
		a, err := netip.ParseAddr(u.Hostname())
		if u.Scheme == "nats" && err == nil && !a.IsLoopback() && !a.IsPrivate() && !a.IsLinkLocalUnicast() {
			return fmt.Errorf("must not be nats://%s without encryption, as the address is public: use tls://", u.Host)
		}
		s.Hosts.NATS = append(s.Hosts.NATS, one)
	}
	return nil
}

// Defaults as help texts show them.
const (
	orHibernated = "30m, with --hibernate 30 days"
	ofProxy      = "that of the proxy"
)

func readBrowser(s *Settings, v string, _ Files) error {
	if !slices.Contains(browserTypes(), v) && !filepath.IsAbs(v) {
		return fmt.Errorf("must be an absolute path or one of %s", strings.Join(browserTypes(), ", "))
	}
	s.Browser = v
	return nil
}

func readSpares(s *Settings, v string, _ Files) (err error) {
	if s.Spares = MaxInstances; v != "all" {
		if s.Spares, err = ParseCount(v, 0, MaxInstances); err != nil {
			err = fmt.Errorf("%w, or all", err)
		}
	}
	return err
}

// readTimeout reads milliseconds, too, as the specification has them.
func readTimeout(s *Settings, v string, _ Files) error {
	d, err := time.ParseDuration(v)
	if ms, bare := strconv.Atoi(v); bare == nil {
		d, err = time.Duration(ms)*time.Millisecond, nil
		if ms > int(MaxTimeout/time.Millisecond) {
			d = MaxTimeout + 1
		}
	}
	if err != nil || d < 0 || d > MaxTimeout || d > 0 && d < time.Millisecond {
		return fmt.Errorf("must be a duration such as 30s or 1m30s, or a number of milliseconds, up to %v; 0 means no "+
			"limit", MaxTimeout)
	}
	s.Timeout = d
	return nil
}

func readLaunch(s *Settings, v string, _ Files) (err error) {
	if s.Extension = v == "extension"; s.Extension {
		s.Launch = true
		return nil
	}
	if s.Launch, err = ParseBool(v); err != nil {
		err = errors.New("must be true, false or extension")
	}
	return err
}

func readArgs(s *Settings, v string, _ Files) (err error) {
	if s.Args, err = shellwords.Split(v); err != nil {
		return err
	}
	for _, a := range s.Args {
		switch name, _, _ := strings.Cut(a, "="); name {
		case "--remote-debugging-port", "--remote-debugging-pipe", "--user-data-dir":
			return fmt.Errorf("%s is set by bpool; choose a profile with USER_DATA_DIR", name)
		}
	}
	return nil
}

func readState(s *Settings, v string, _ Files) error {
	if s.State = v; v == "" {
		return nil
	}
	return logins.CheckName(v)
}

// readProxy reads the URL of a proxy, or the file that has it.
func readProxy(s *Settings, v string, files Files) error {
	name, isFile := strings.CutPrefix(v, "@")
	if isFile {
		if files.Read == nil {
			return errors.New("must be the URL of a proxy, not a file")
		}
		b, err := files.Read(name)
		if err != nil {
			return fmt.Errorf("cannot read the URL of a proxy: %w", err)
		}
		v = strings.TrimSpace(string(b))
	}
	u, err := upstream.Parse(v)
	if err != nil && isFile {
		err = fmt.Errorf("%s: %w", name, err)
	}
	if s.Proxy = ""; u != nil {
		s.Proxy = u.Secret()
	}
	return err
}
