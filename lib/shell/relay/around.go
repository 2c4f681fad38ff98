package relay

import (
	"bytes"
	"hash/fnv"
	"runtime"
	"slices"
	"strconv"
)

// socketPrefix begins the names of the services' control sockets beside the state file.
const socketPrefix = "calls-"

// Around is what a service takes from the call that starts it and cannot change later: the environment of its browsers
// and programs, the directory, the umask, and what the kernel lets it see. Calls with other surroundings have another
// service, so that none holds what belongs to one of its callers.
type Around struct {
	Env []string // of the service
	Dir string
}

// AroundCall returns the surroundings of sessions that a call begins. Those with programs of the caller have its whole
// environment and its directory, the others only the variables that a browser heeds.
func AroundCall(environ []string, dir string, programs bool) Around {
	a := Around{Dir: "/"}
	if programs {
		a.Dir = dir
	}
	for _, kv := range environ {
		if name, ok := nameOf(kv); ok && !isPassing(name) && (programs || isHeeded(name)) {
			a.Env = append(a.Env, kv)
		}
	}
	slices.Sort(a.Env)
	return a
}

// Socket returns the name of the control socket of the service that has these surroundings.
func (a Around) Socket() string {
	h := fnv.New64a()
	for _, text := range append(a.Env, a.Dir, ofProcess()) {
		h.Write([]byte(text))
		h.Write([]byte{0})
	}
	return socketPrefix + strconv.FormatUint(h.Sum64(), 36)
}

// nameOf returns the name of a variable. Package strings would be initialised after libraries.
func nameOf(kv string) (name string, ok bool) {
	i := slices.Index([]byte(kv), '=')
	if i < 0 {
		return kv, false
	}
	return kv[:i], true
}

// isPassing reports whether a variable is of one command only.
func isPassing(name string) bool {
	return slices.Contains([]string{"_", "PWD", "OLDPWD", "SHLVL", "BTOOLS_STATE", "BTOOLS_SESSION", "BTOOLS_LOG_LEVEL",
		"BTOOLS_LOG_FORMAT"}, name)
}

// isHeeded reports whether bmcp without programs of the caller, or a browser, heeds a variable.
func isHeeded(name string) bool {
	return runtime.GOOS == "windows" || slices.Contains(heeded, string(bytes.ToUpper([]byte(name)))) ||
		slices.ContainsFunc(heededPrefixes, func(p string) bool { return len(name) >= len(p) && name[:len(p)] == p })
}

var (
	heeded = []string{"HOME", "USER", "LOGNAME", "PATH", "TMPDIR", "LANG", "LANGUAGE", "TZ", "TZDIR", "CI",
		"DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS",
		"XDG_DATA_HOME", "XDG_DATA_DIRS", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CURRENT_DESKTOP", "XDG_SESSION_TYPE",
		"DESKTOP_SESSION", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "GNOME_DESKTOP_SESSION_ID",
		"KDE_FULL_SESSION", "KDE_SESSION_VERSION", "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
		"BROWSER_TIMEOUT_MINUTES", "SEARCH_URL", "CHROME_PATH", "GODEBUG",
		"__CF_USER_TEXT_ENCODING"}
	heededPrefixes = []string{"BTOOLS_", "PW_MCP_", "LC_", "CHROME_", "CHROMIUM_", "MOZ_", "LD_", "DYLD_", "NIX_",
		"SSL_", "NSS_", "GTK_", "GDK_", "QT_", "FONTCONFIG_", "LIBGL_", "MESA_", "GALLIUM_", "__GL", "__EGL", "EGL_",
		"VK_", "LIBVA_", "VDPAU_", "PULSE_", "PIPEWIRE_", "ALSA_", "WSL"}
)
