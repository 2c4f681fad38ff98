package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"btools/lib/downloads"
	"btools/lib/forward"
	"btools/lib/shellwords"
	"btools/lib/states"
)

// level is where a key can be set.
type level int

const (
	global level = 1 << iota
	pool
	instance
)

func (l level) String() string {
	switch l {
	case global:
		return "global"
	case pool:
		return "pool"
	}
	return "instance"
}

// key describes a setting: where it can be set, and how its value is read.
type key struct {
	name   string
	levels level
	kind   string // a description of the values, for people
	def    string // the default, as it would be written
	read   func(*Settings, string) error
}

// shown returns a value as messages and bpool check may show it.
func (k *key) shown(text string) string {
	if k.name != "PROXY" || text == "" || strings.HasPrefix(text, "@") {
		return text
	}
	u, err := forward.Parse(text)
	if err != nil {
		return "…" // it may hold a password
	}
	return u.String()
}

const (
	anywhere = global | pool | instance
	shared   = global | pool // the pool's queue uses them, so instances cannot differ
)

// Limits of values.
const (
	MaxInstances = 10000
	maxCount     = 1 << 30
	// MaxDuration is a hundred years; the sum of a few does not overflow a
	// Duration.
	MaxDuration = 876000 * time.Hour
	// MaxTimeout is the longest TIMEOUT.
	MaxTimeout = 24 * time.Hour
)

// Browsers are the types that BROWSER accepts.
var Browsers = []string{"chromium", "chrome", "msedge", "edge", "brave", "chrome-headless-shell", "firefox", "webkit"}

var keys = []key{
	{"INSTANCES", pool, "1 to 10000", "", nil},
	{"IS_DEFAULT", pool, "true or false", "false", nil},
	{"DESCRIPTION", pool, "a string", "", func(s *Settings, v string) error { s.Description = v; return nil }},
	{"ALIAS", instance, "a name", "", func(s *Settings, v string) error { s.Alias = v; return nil }},
	{"BROWSER", anywhere, "a type or a path", "chromium", func(s *Settings, v string) error {
		if !slices.Contains(Browsers, v) && !filepath.IsAbs(v) {
			return fmt.Errorf("must be an absolute path or one of %s", strings.Join(Browsers, ", "))
		}
		s.Browser = v
		return nil
	}},
	{"HEADLESS", anywhere, "true or false", "true", boolKey(func(s *Settings) *bool { return &s.Headless })},
	{"ISOLATED", anywhere, "true or false", "false", boolKey(func(s *Settings) *bool { return &s.Isolated })},
	{"ISOLATION", anywhere, "process or context", "process",
		enumKey(func(s *Settings) *string { return &s.Isolation }, Process, Context)},
	{"PER_BROWSER", anywhere, "1 to 10000", "16", func(s *Settings, v string) (err error) {
		s.PerBrowser, err = parseCount(v, 1, MaxInstances)
		return err
	}},
	{"SPARES", anywhere, "a number, or all", "all", func(s *Settings, v string) (err error) {
		if s.Spares = MaxInstances; v != "all" {
			if s.Spares, err = parseCount(v, 0, MaxInstances); err != nil {
				err = fmt.Errorf("%w, or all", err)
			}
		}
		return err
	}},
	{"WSL_WINDOWS", anywhere, "true or false", "false", boolKey(func(s *Settings) *bool { return &s.WSLWindows })},
	{"TIMEOUT", anywhere, "a duration, or milliseconds, 0 for no limit", "30000", func(s *Settings, v string) error {
		d, err := time.ParseDuration(v)
		if ms, bare := strconv.Atoi(v); bare == nil { // milliseconds, as in the specification
			d, err = time.Duration(ms)*time.Millisecond, nil
			if ms > int(MaxTimeout/time.Millisecond) {
				d = MaxTimeout + 1
			}
		}
		if err != nil || d < 0 || d > MaxTimeout || d > 0 && d < time.Millisecond {
			return fmt.Errorf("must be a duration such as 30s or 1m30s, or a number of milliseconds, up to %v; 0 "+
				"means no limit",
				MaxTimeout)
		}
		s.Timeout = d
		return nil
	}},
	{"LAUNCH", anywhere, "true, false or extension", "true", func(s *Settings, v string) (err error) {
		if s.Extension = v == "extension"; s.Extension {
			s.Launch = true
			return nil
		}
		if s.Launch, err = parseBool(v); err != nil {
			err = errors.New("must be true, false or extension")
		}
		return err
	}},
	{"ARGS", anywhere, "words", "", func(s *Settings, v string) (err error) {
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
	}},
	{"USER_DATA_DIR", anywhere, "an absolute path", "", func(s *Settings, v string) error {
		if !filepath.IsAbs(v) {
			return fmt.Errorf("must be an absolute path")
		}
		s.UserDataDir = filepath.Clean(v)
		return nil
	}},
	{"SANDBOX", anywhere, "auto, on or off", "auto",
		enumKey(func(s *Settings) *string { return &s.Sandbox }, "auto", "on", "off")},
	{"START", anywhere, "eager or lazy", "eager", enumKey(func(s *Settings) *string { return &s.Start }, "eager",
		"lazy")},
	{"RESTART", anywhere, "always or never", "always",
		enumKey(func(s *Settings) *string { return &s.Restart }, "always", "never")},
	{"MAX_USES", anywhere, "a number, 0 for no limit", "0", countKey(func(s *Settings) *int { return &s.MaxUses })},
	{"MAX_AGE", anywhere, "a duration, 0 for no limit", "0s",
		durationKey(func(s *Settings) *time.Duration { return &s.MaxAge }, 0)},
	{"MAX_MEMORY", anywhere, "a size, 0 for no limit", "0",
		func(s *Settings, v string) (err error) { s.MaxMemory, err = downloads.ParseSize(v); return err }},
	{"IDLE", anywhere, "a duration, 0 for no limit", "0s",
		durationKey(func(s *Settings) *time.Duration { return &s.Idle }, 0)},
	{"THROTTLE", anywhere, "a duration, 0 for never", "1m0s",
		durationKey(func(s *Settings) *time.Duration { return &s.Throttle }, 0)},
	{"HIBERNATE", anywhere, "a duration, 0 for never", "0s",
		durationKey(func(s *Settings) *time.Duration { return &s.Hibernate }, 0)},
	{"IDLE_BY", anywhere, "traffic or connections", "traffic",
		enumKey(func(s *Settings) *string { return &s.IdleBy }, Traffic, Connections)},
	{"PROXY", anywhere, "the URL of a proxy, or @FILE", "", func(s *Settings, v string) error {
		u, err := forward.Read(v)
		if s.Proxy = ""; u != nil {
			s.Proxy = u.Secret()
		}
		return err
	}},
	{"PROXY_BYPASS", anywhere, "hosts, separated by semicolons", "",
		func(s *Settings, v string) error { s.ProxyBypass = v; return nil }},
	{"DOWNLOADS", anywhere, "an absolute path", "", func(s *Settings, v string) error {
		if !filepath.IsAbs(v) {
			return fmt.Errorf("must be an absolute path")
		}
		s.Downloads = filepath.Clean(v)
		return nil
	}},
	{"DOWNLOAD_LIMIT", anywhere, "a size, 0 for no limit", "1GiB",
		func(s *Settings, v string) (err error) { s.DownloadLimit, err = downloads.ParseSize(v); return err }},
	{"UPLOAD_ROOTS", anywhere, "absolute paths", "",
		rootsKey(func(s *Settings) *[]string { return &s.UploadRoots })},
	{"DOWNLOAD_ROOTS", anywhere, "absolute paths", "",
		rootsKey(func(s *Settings) *[]string { return &s.DownloadRoots })},
	{"LEASE_TIMEOUT", shared, "a duration", "1m0s",
		durationKey(func(s *Settings) *time.Duration { return &s.LeaseTimeout }, 0)},
	{"LEASE_TTL", shared, "a duration", "1h0m0s",
		durationKey(func(s *Settings) *time.Duration { return &s.LeaseTTL }, time.Millisecond)},
	{"STATE", shared, "the name of a state", "", func(s *Settings, v string) error {
		s.State = v
		return states.CheckName(v)
	}},
	{"QUEUE_LIMIT", shared, "a number", "1024", countKey(func(s *Settings) *int { return &s.QueueLimit })},
	{"AFFINITY", shared, "call or session", "session",
		enumKey(func(s *Settings) *string { return &s.Affinity }, "call", "session")},
	{"AFFINITY_IDLE", shared, "a duration", "15s",
		durationKey(func(s *Settings) *time.Duration { return &s.AffinityIdle }, time.Millisecond)},
	{"HEALTH_INTERVAL", shared, "a duration", "20s",
		durationKey(func(s *Settings) *time.Duration { return &s.HealthInterval }, 10*time.Millisecond)},
	{"HEALTH_TIMEOUT", shared, "a duration", "5s",
		durationKey(func(s *Settings) *time.Duration { return &s.HealthTimeout }, time.Millisecond)},
}

func boolKey(of func(*Settings) *bool) func(*Settings, string) error {
	return func(s *Settings, v string) (err error) { *of(s), err = parseBool(v); return err }
}

// parseBool accepts the usual spellings of a boolean in the environment.
func parseBool(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	}
	return false, fmt.Errorf("must be true or false")
}

func enumKey(of func(*Settings) *string, values ...string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		if !slices.Contains(values, v) {
			return fmt.Errorf("must be %s", strings.Join(values, " or "))
		}
		*of(s) = v
		return nil
	}
}

func countKey(of func(*Settings) *int) func(*Settings, string) error {
	return func(s *Settings, v string) (err error) { *of(s), err = parseCount(v, 0, maxCount); return err }
}

func parseCount(v string, low, high int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("must be a number from %d to %d", low, high)
	}
	return n, nil
}

// rootsKey reads directories, whose links are resolved now.
func rootsKey(field func(*Settings) *[]string) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		roots := []string(nil)
		for _, dir := range filepath.SplitList(v) {
			real, err := filepath.EvalSymlinks(dir)
			if !filepath.IsAbs(dir) || err != nil {
				return fmt.Errorf("must be absolute paths of directories, separated by %q: %s", os.PathListSeparator,
					dir)
			}
			roots = append(roots, real)
		}
		*field(s) = roots
		return nil
	}
}

func durationKey(of func(*Settings) *time.Duration, low time.Duration) func(*Settings, string) error {
	return func(s *Settings, v string) error {
		d, err := time.ParseDuration(v)
		if n, bare := strconv.Atoi(v); bare == nil && n > 0 {
			return fmt.Errorf("must have a unit: %ds is seconds, %dms is milliseconds", n, n)
		}
		if err != nil || d < low || d > MaxDuration {
			return fmt.Errorf("must be a duration such as 90s, 5m or 1h30m, at least %v, at most 876000h", low)
		}
		*of(s) = d
		return nil
	}
}

// formerly are the names that keys had, and today's.
var formerly = map[string]string{"IDLE_TIMEOUT": "IDLE"}

// keyNamed returns the key with the name, or nil.
func keyNamed(name string) *key {
	name = cmp.Or(formerly[name], name)
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

func keyNames() (names []string) {
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}
