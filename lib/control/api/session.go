package api

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"

	"btools/lib/launch/options"
	"btools/lib/record"
)

// AttachRequest is the request of a person who looks at a session, a lease of bpool or a browser of a hub.
type AttachRequest struct {
	Session  string `json:"session,omitempty"`
	Lease    string `json:"lease,omitempty"`
	Instance string `json:"instance,omitempty"`
	Who      string `json:"who"`            // as others are told
	Tile     bool   `json:"tile,omitempty"` // a small picture among others
	View     bool   `json:"view,omitempty"` // the person may not take control
	Wake     bool   `json:"wake,omitempty"` // a hibernated session comes back
}

// Attached is its answer.
type Attached struct {
	Lock bool   `json:"lock"`          // the person may take control
	Why  string `json:"why,omitempty"` // if not
}

// Session is a session, the member "session" of a record.
type Session struct {
	Name string `json:"name"`
	// HTTPURL is its address if it is a named one, WSURL the one of any. In the status
	// of a proxy sessions have neither.
	HTTPURL   string `json:"http_url,omitempty"`
	WSURL     string `json:"ws_url,omitempty"`
	Anonymous bool   `json:"anonymous,omitempty"` // it ends by itself once no client is connected
	Hibernation
	// KeptAt is a time as of which the session is kept; nil: it is not yet.
	KeptAt *record.Time `json:"kept_at,omitempty"`
	Stats
}

// The end of a name that nobody is to guess has a hyphen and a rand.Text, and a name 64 characters at most.
const (
	secret    = 1 + 26
	maxCalled = 64 - secret
	sum       = 10 // digits in place of the rest of a longer one
)

// NameOf returns a name for a session, by which IsCalled knows what people call it. Nobody guesses it, as others on
// this machine may connect to a session whose name they know.
func NameOf(called string) string { return begin(called) + "-" + rand.Text() }

// begin returns the beginning of the names of sessions that people call so, by which none is called otherwise.
func begin(called string) string {
	if len(called) <= maxCalled {
		return called
	}
	return called[:maxCalled-sum] + fmt.Sprintf("%x", sha256.Sum256([]byte(called)))[:sum]
}

// Called returns the name of a session without what nobody is to guess: its end, or what is before a dot.
func Called(name string) string {
	for at := 1; at+secret <= len(name); at++ {
		end := at + secret
		if name[at] == '-' && (end == len(name) || name[end] == '.') &&
			strings.Trim(name[at+1:end], "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == "" {
			return name[:at] + name[end:]
		}
	}
	return name
}

// IsCalled reports whether a session has a name, or is what people call so.
func (s *Session) IsCalled(name string) bool {
	called := Called(s.Name)
	return s.Name == name || called != s.Name && called == begin(name)
}

// Hibernation is what a session, or the instance of a lease that has one, says of it.
type Hibernation struct {
	Hibernated bool         `json:"hibernated,omitempty"`  // it is saved, and its next user gets it back
	RestoredAt *record.Time `json:"restored_at,omitempty"` // when that happened last; nil: never
	// Crash is the end of the browser from which it came back last; nil: it was saved before that.
	Crash *Crash `json:"crash,omitempty"`
	// Lost is what of its storage did not come back then, and why; Unkept is what would not now.
	Lost   []string `json:"lost,omitempty"`
	Unkept []string `json:"unkept,omitempty"`
}

// Crash is the end of a browser without warning.
type Crash struct {
	KeptAt  record.Time `json:"kept_at"` // as of when what is back was kept
	EndedAt record.Time `json:"ended_at"`
}

// Stats are the figures of a session.
type Stats struct {
	TabCount    int             `json:"tab_count"`
	Clients     int             `json:"clients"`
	IdleSeconds float64         `json:"idle_seconds"` // since the session was used last
	StartedAt   record.Time     `json:"started_at"`
	Control     *Control        `json:"control,omitempty"` // the person who has it; nil: nobody
	Ask         *Ask            `json:"ask,omitempty"`     // what a person is asked to do; nil: nothing
	BytesIn     int64           `json:"bytes_in"`          // from clients
	BytesOut    int64           `json:"bytes_out"`         // to clients
	Proxy       *UpstreamStatus `json:"proxy,omitempty"`   // nil: it has none
	State       *StateStatus    `json:"state,omitempty"`   // with which it has started; nil: none
	Limits      *LimitsStatus   `json:"limits,omitempty"`  // of what its pages may reach; nil: none
	Gaps        []string        `json:"-"`                 // what of its storage is not kept, and why
}

// Control is that a person has taken over a session.
type Control struct {
	By    string      `json:"by"`
	Since record.Time `json:"since"`
	// Private says that clients and other persons see nothing of the pages.
	Private bool `json:"private,omitempty"`
}

// Ask is that a person is asked to do something in a session.
type Ask struct {
	Instructions string      `json:"instructions"`
	By           string      `json:"by,omitempty"` // "": the agent
	Since        record.Time `json:"since"`
}

// UpstreamStatus is the proxy through which a session reaches the web.
type UpstreamStatus struct {
	URL   string `json:"url"`             // without credentials
	Error string `json:"error,omitempty"` // why its last use failed
}

// LimitsStatus is the rules about what the pages of a session may reach.
type LimitsStatus struct {
	AllowOrigins []string `json:"allow_origins,omitempty"`
	BlockOrigins []string `json:"block_origins,omitempty"`
	BlockPrivate bool     `json:"block_private,omitempty"`
	Refused      int      `json:"refused"`                // requests so far that they forbade
	LastRefused  string   `json:"last_refused,omitempty"` // the rule that forbade the last one, and why
}

// StateStatus is the state with which a session has started.
type StateStatus struct {
	Name  string `json:"name"`
	Error string `json:"error,omitempty"` // the last origin whose storage could not be filled, and why
}

// ProxyStatus is the state of a proxy, the member "status" of the record with which
// bproxy answers status, launch, restart and stop.
type ProxyStatus struct {
	State       string          `json:"state"`       // stopped, launching, ready, stopping, foreign, or unresponsive
	Owned       bool            `json:"owned"`       // false: another program launches and stops the browser
	Connections int             `json:"connections"` // of clients, WebSockets included
	WebSockets  int             `json:"websockets"`
	Launches    int             `json:"launches"` // so far
	Options     options.Options `json:"options"`
	// IdleSeconds is the time since the last use of the browser, by the rule of
	// --idle-by; nil: there is no browser.
	IdleSeconds *float64 `json:"idle_seconds,omitempty"`
	// With sessions only:
	ActiveSessions *int      `json:"active_sessions,omitempty"`
	Sessions       []Session `json:"sessions,omitempty"`

	LastExit string `json:"last_exit,omitempty"` // why the last browser ended; "": none has
	// LastError is why the last launch failed, or why a browser of another owner is
	// unresponsive.
	LastError string       `json:"last_error,omitempty"`
	LastCheck *record.Time `json:"last_check,omitempty"` // time of the last health check
}
