// Package launch starts one browser with its debugging endpoint open, holds
// it, and cleans up after it. A supervisor process owns the browser
// (Supervise); whoever wants one runs a supervisor (Start) and either keeps
// hold of it or lets it go.
package launch

import (
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"btools/lib/client"
	"btools/lib/lifetime"
	"btools/lib/record"
)

// Spec says what to launch. It travels as JSON to the supervisor.
type Spec struct {
	Browser       record.Browser `json:"browser"`
	Input         *record.Record `json:"input"` // the record that the instance is added to
	Port          int            `json:"port"`  // 0: the browser chooses
	Headless      bool           `json:"headless"`
	Profile       string         `json:"profile"` // "": a temporary one
	Args          []string       `json:"args"`
	NoDefaultArgs bool           `json:"no_default_args"`
	URL           string         `json:"url"`
	WindowSize    string         `json:"window_size"` // "W,H" in pixels
	Env           []string       `json:"env"`         // K=V
	NoSandbox     bool           `json:"no_sandbox"`
	Timeout       time.Duration  `json:"timeout"`      // from the start to the answering endpoint
	StopTimeout   time.Duration  `json:"stop_timeout"` // from asking the browser to end to SIGKILL
	TTL           time.Duration  `json:"ttl"`          // 0: no end
	Owner         lifetime.Owner `json:"owner"`        // stop when it is gone; its descriptor does not travel
	// Pipe has the browser's ends of its debugging pipe, if another program has the
	// other ends and drives the browser by them: it opens no port then. A Firefox has
	// no such pipe. It does not travel.
	Pipe *Pipe `json:"-"`
	// SaveState is where the state of the browser is saved when its last page is
	// closed or it is stopped; nil: nowhere.
	SaveState *SaveState `json:"save_state,omitempty"`
	// Hub is the hub that the browser joins by the extension that it gets; nil: it
	// gets none.
	Hub       *client.Proxy `json:"hub,omitempty"`
	OwnedBy   string        `json:"owned_by"` // the program that the browser belongs to; "": to nobody
	LogLevel  string        `json:"log_level"`
	LogFormat string        `json:"log_format"`
}

// Pipe are the browser's ends of its debugging pipe.
type Pipe struct{ Commands, Answers *os.File }

// Close closes them in this process.
func (p *Pipe) Close() {
	p.Commands.Close()
	p.Answers.Close()
}

// handsOver reports whether another program drives the browser by its pipe.
func (s *Spec) handsOver() bool { return s.Pipe != nil && !s.firefox() }

// SaveState names a state of package logins.
type SaveState struct {
	Name string `json:"name"`
	Dir  string `json:"dir"` // of the store
}

func (s *Spec) firefox() bool { return s.Browser.Type == record.Firefox }

// newID makes an instance ID: inst_, the time in milliseconds, six random
// characters.
func newID() string {
	const alphabet = "0123456789abcdefghijklmnopqrstuvwxyz"
	var b [6]byte
	rand.Read(b[:]) // never fails
	for i := range b {
		b[i] = alphabet[int(b[i])%len(alphabet)]
	}
	return fmt.Sprintf("inst_%d_%s", time.Now().UnixMilli(), b[:])
}
