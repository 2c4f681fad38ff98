package record

import "time"

// Time is a moment as records hold it: RFC 3339, UTC, milliseconds.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000Z07:00"

// Now is the present as a Time.
func Now() Time { return Time{time.Now()} }

// MarshalJSON writes the time in UTC with three decimals.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(timeLayout) + `"`), nil
}

// Protocols that a browser can be driven with.
const (
	CDP  = "cdp"  // Chrome DevTools Protocol
	BiDi = "bidi" // WebDriver BiDi
)

// Types of browsers, in the order of preference.
const (
	Chrome        = "chrome"
	Edge          = "edge"
	Chromium      = "chromium"
	Brave         = "brave"
	HeadlessShell = "chrome-headless-shell"
	Firefox       = "firefox"
)

// WebKit is a type that can be found, but not be launched: it serves neither
// protocol.
const WebKit = "webkit"

// Types lists the types of browsers that can be launched, best first.
var Types = []string{Chrome, Edge, Chromium, Brave, HeadlessShell, Firefox}

// Canonical is the type that a name means: Playwright calls Edge msedge.
func Canonical(name string) string {
	if name == "msedge" {
		return Edge
	}
	return name
}

// Browser is an installed browser, the member "browser".
type Browser struct {
	Type      string   `json:"type"`
	Name      string   `json:"name"`
	Channel   string   `json:"channel"`           // stable, beta, dev, canary, testing …
	Path      string   `json:"path"`              // the executable to start
	Version   string   `json:"version,omitempty"` // digits and dots; empty where it can't be read
	Protocols []string `json:"protocols"`
	Source    string   `json:"source"` // where it was found
}

// Proxy is a bproxy that listens, the member "proxy".
type Proxy struct {
	PID     int    `json:"pid"`
	Host    string `json:"host"`
	Port    int    `json:"port"`
	HTTPURL string `json:"http_url"`
	WSURL   string `json:"ws_url"` // reaches whatever browser runs behind it
	// Protocol is the one of its browser, "" while that is not known.
	Protocol string `json:"protocol,omitempty"`
	// Isolated says that each client sees a session as its whole browser.
	Isolated bool `json:"isolated,omitempty"`
	// Extension says that its browsers join by an extension.
	Extension bool `json:"extension,omitempty"`
	// PairingFile is the file with the pairing code of the extension, which only
	// its user can read; "": it has none.
	PairingFile string `json:"pairing_file,omitempty"`
	Owner       string `json:"owner,omitempty"` // the program that it belongs to, such as "bmcp 1234"
}

// Lease is the right to an instance of a pool, the member "lease".
type Lease struct {
	ID        string  `json:"id"`
	Pool      string  `json:"pool"`
	Instance  string  `json:"instance"` // its ID in the pool
	Alias     *string `json:"alias"`
	ExpiresAt Time    `json:"expires_at"` // unless it is renewed
	By        string  `json:"by"`         // its owner, as uid:1000 or token:ci
	// Kept says that its session is that of an earlier lease of its holder, whose
	// instance another request has got.
	Kept bool   `json:"kept,omitempty"`
	Host string `json:"host,omitempty"` // the name of the host that has the instance; "": this one
}

// Instance is a running browser, the member "instance".
type Instance struct {
	ID string `json:"id"`
	// PID is missing if it has joined by its extension, SupervisorPID and UserDataDir also
	// if other leases use it: they are not the holder's.
	PID           int    `json:"pid,omitempty"`
	SupervisorPID int    `json:"supervisor_pid,omitempty"`
	Protocol      string `json:"protocol"`
	// Host, Port, HTTPURL and WSURL are missing if the browser listens on no port: the
	// program that owns it drives it by a pipe.
	Host        string `json:"host,omitempty"`
	Port        int    `json:"port,omitempty"`
	HTTPURL     string `json:"http_url,omitempty"`
	WSURL       string `json:"ws_url,omitempty"`
	UserDataDir string `json:"user_data_dir,omitempty"`
	Temporary   bool   `json:"temporary"` // the profile is deleted when the browser ends
	Headless    bool   `json:"headless"`
	Sandbox     bool   `json:"sandbox"`         // the browser's own is on
	Owner       string `json:"owner,omitempty"` // the program that it belongs to, such as "bpool A/0"
	// Source is "extension" if it has joined by its extension, else "".
	Source    string `json:"source,omitempty"`
	StartedAt Time   `json:"started_at"`
}

// FromExtension is the Source of an instance that has joined by its extension.
const FromExtension = "extension"

// Joined is the member "joined" of the record of a browser that has joined a hub
// by its extension.
type Joined struct {
	ID           string `json:"id"`       // of the instance that it is at the hub
	HTTPURL      string `json:"http_url"` // its endpoint at the hub
	WSURL        string `json:"ws_url"`
	Port         int    `json:"port"` // of the extension's own connection
	UserAgent    string `json:"user_agent"`
	WindowID     int    `json:"window_id"`
	ConnectedAt  Time   `json:"connected_at"`
	LastActivity Time   `json:"last_activity"`
	Tabs         int    `json:"tabs"`    // that clients may use
	Claimed      bool   `json:"claimed"` // a program holds it
}
