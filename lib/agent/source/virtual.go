package source

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/lazy"
	"btools/lib/logins"
	"btools/lib/settings"
)

// A virtual browser is a session of bproxy share: its clients take it for a
// whole browser, and see nothing of the others on it.

// Sharing says how hosts share the one browser, and how their virtual browsers are set.
type Sharing struct {
	Kind  *Kind // nil: SharedProfile
	Hosts int   // at a time, at most
	settings.Settings
}

// The maximum numbers of session_ids of one host, and of all hosts.
const (
	maxIDsOfHost = 32
	maxIDs       = 256
)

// hostSession is the name of the session with the browser's profile, or with the state or the limits, of
// ProfileAndSessions. The names of others begin with that of their host.
const hostSession = "host"

// flags returns bproxy's flags for such sessions. bmcp, not bproxy, decides when they
// end.
func (v Sharing) flags() []string {
	all := []string{"--isolate"}
	if !v.Kind.HasSessions() { // one session, which is the browser's own: its Chrome has no port either
		return append(all, "--session-idle=0", "--root-session="+hostSession, "--default-session="+hostSession)
	}
	if v.Keep != "" {
		all = append(all, "--keep="+v.Keep)
	}
	its := v.Settings
	its.SessionIdle, its.MaxSessions = 0, 2*(v.Hosts+maxIDs)
	for _, r := range settings.Rows(settings.Agent) {
		if r.Where&settings.Share != 0 {
			all = append(all, r.Args(&its)...)
		}
	}
	if !v.Kind.Apart {
		all = append(all, "--root-session="+hostSession)
		if v.State == "" && !v.Limits().Any() {
			all = append(all, "--default-session="+hostSession)
		}
	}
	return all
}

var idRule = lazy.Regexp(`^[A-Za-z0-9._-]{1,64}$`)

// CheckSession checks the name of a session, which the error calls what.
func CheckSession(what, name string) error {
	if idRule().MatchString(name) {
		return nil
	}
	return fmt.Errorf(`%s is 1 to 64 letters, digits, ".", "_" and "-", such as sub-agent-1, not %.200q`, what, name)
}

// RefIn reads the arguments with these names, which choose the browser of a call.
func RefIn(args json.RawMessage, names []string) (w BrowserRef, err error) {
	for _, name := range names {
		value, bad := nameIn(args, name)
		switch name {
		case "session_id":
			if w.Session = value; value != "" {
				bad = cmp.Or(bad, CheckSession("session_id", value))
			}
		case "state":
			if w.State = value; value != "" {
				bad = cmp.Or(bad, logins.CheckName(value))
			}
		case "browser_pool":
			w.Pool = value
		case "browser_instance", "instanceId":
			w.Instance = value
		}
		err = errors.Join(err, bad)
	}
	return w, err
}

// SessionIn returns the session_id among a call's arguments; "": there is none.
func SessionIn(args json.RawMessage) (string, error) {
	w, err := RefIn(args, []string{"session_id"})
	return w.Session, err
}

// nameIn returns the text or number of an argument as a name; "": there is none.
func nameIn(args json.RawMessage, name string) (string, error) {
	v := jsonrpc.Get(args, name)
	switch {
	case v == nil || string(v) == "null":
		return "", nil
	case v[0] == '"':
		return jsonrpc.GetString(args, name), nil
	case v[0] == '-' || v[0] >= '0' && v[0] <= '9':
		return string(v), nil
	}
	return "", fmt.Errorf("%s is a text, not %s", name, v)
}

// maxName is the maximum length of the name of a session of bproxy.
const maxName = 64

// nameOf returns the name of the owner's session with this session_id, unique among owners; "": the calls use all of
// the browser.
func (b *ownerUse) nameOf(id string) string {
	name := b.owner.Name()
	switch {
	case !b.HasSessions(), id == "" && !b.Apart:
		return ""
	case id == "":
		return name
	}
	name += idMark + id
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(id))
		const end = 16
		name = name[:maxName-end-1] + idMark + hex.EncodeToString(sum[:end/2])
	}
	return name
}

// idMark stands before the session_id in the name of a virtual browser.
const idMark = "."

// HasID reports whether a virtual browser is one of an owner with a session_id.
func HasID(virtual, owner string) bool { return strings.HasPrefix(virtual, owner+idMark) }

// inSession returns the browser as the clients of one of its sessions see it; with "", all of it.
func (b Browser) inSession(name string) Browser {
	if name == "" || b.HTTPURL == "" {
		return b
	}
	b.Session, b.Port = name, 0
	b.HTTPURL += "/session/" + name
	b.WSURL = "ws" + strings.TrimPrefix(b.HTTPURL, "http") + "/devtools/browser/" + name
	return b
}

// VirtualStatus is a virtual browser as its host sees it.
type VirtualStatus struct {
	SessionID *string `json:"session_id"` // null: the host's own
	Instance  string  `json:"instanceId,omitempty"`
	HTTPURL   string  `json:"http_url"`
	Tabs      int     `json:"tab_count"`
	Idle      float64 `json:"idle_seconds"`
	api.Hibernation
	id string
}

// statuses returns the owner's virtual browsers, by instance and session_id.
func (b *ownerUse) statuses(ctx context.Context) []VirtualStatus {
	all := []VirtualStatus{}
	if !b.HasSessions() {
		return all
	}
	ids := map[string]string{b.nameOf(""): ""}
	b.mu.Lock()
	for id, v := range b.all {
		ids[v.name] = id.id
	}
	b.mu.Unlock()
	if !b.Apart {
		ids[hostSession] = ""
	}
	for _, s := range b.list(ctx) {
		id, his := ids[s.Name]
		if !his {
			continue
		}
		v := VirtualStatus{Instance: s.instance, HTTPURL: s.HTTPURL, Tabs: s.TabCount, Idle: s.IdleSeconds,
			Hibernation: s.Hibernation, id: id}
		if id != "" {
			v.SessionID = &id
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b VirtualStatus) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.id, b.id))
	})
	return all
}
