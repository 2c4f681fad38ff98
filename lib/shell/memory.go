package shell

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"reflect"
	"time"

	"btools/lib/private"
	"btools/lib/proc"
)

// memory is the file in which the services note their sessions: which of them has one, and what is to be told when the
// next one begins in its place.
type memory struct {
	path string
	keep string // the directory in which bproxy keeps the browsers of sessions
	self place
}

// place is where a session is.
type place struct {
	Process proc.Identity `json:"process,omitzero"`  // the service
	Control string        `json:"control,omitempty"` // its socket; "": the session has ended
}

// noted is a session in the file.
type noted struct {
	place
	Page string `json:"page,omitempty"`
	// Browser is the name of its virtual browser, which is kept by that, and Options are those with which it began.
	Browser string   `json:"browser,omitempty"`
	Options []string `json:"options,omitempty"`

	Why   string    `json:"why,omitempty"`  // it has ended
	Since time.Time `json:"since,omitzero"` // when it was seen that it has ended, or that its service has
}

// remembered is for how long the next session is told of the one before.
const remembered = time.Hour

// runs reports whether the service that has the session runs. Of one of another PID namespace its socket tells.
func (n noted) runs() bool {
	if n.Control == "" || n.Process.Local() {
		return n.Control != "" && n.Process.Alive()
	}
	c, err := net.Dial("unix", n.Control)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// told returns what the next session says of this one, and when it was kept, if it comes back.
func (n noted) told(kept time.Time) string {
	switch {
	case n.Control != "" && !kept.IsZero():
		return "the service in the background was killed: this session comes back as it was kept at " +
			kept.UTC().Format(time.TimeOnly+" MST") + ", with its logins; its pages are reloaded, what was typed " +
			"into them is gone, and so are the elements of earlier snapshots: take a new one"
	case n.Control != "":
		return "the service in the background was killed, and with it this session: its page " +
			cmp.Or(n.Page, "about:blank") + " and its cookies are lost, and it begins anew"
	}
	return fmt.Sprintf("a new session begins; the one before has ended %v ago: %s",
		time.Since(n.Since).Round(time.Second), n.Why)
}

// load returns the sessions of the file by their keys. What is damaged has none.
func (m *memory) load() map[string]noted {
	var all map[string]noted
	if b, err := private.ReadFile(m.path); err != nil || json.Unmarshal(b, &all) != nil || all == nil {
		return map[string]noted{}
	}
	return all
}

// find returns the socket of another service that has the session of a caller, or the one of a program that it names;
// "": none has.
func (m *memory) find(who *caller) string {
	all := m.load()
	n := all[who.key]
	if !n.runs() && who.named {
		n = all[who.byName()]
	}
	if n.runs() && n.Process != m.self.Process {
		return n.Control
	}
	return ""
}

// change lets a function change the sessions of the file, which no other process changes meanwhile. Those that ended
// long ago are forgotten.
func (m *memory) change(ctx context.Context, f func(all map[string]noted)) error {
	unlock, err := private.LockSocket(ctx, m.path, true)
	if err != nil {
		return err
	}
	defer unlock()
	all := m.load()
	before := maps.Clone(all)
	for key, n := range all {
		switch {
		case n.runs():
		case n.Since.IsZero():
			n.Since = time.Now().UTC()
			all[key] = n
		case time.Since(n.Since) > remembered:
			delete(all, key)
			m.forget(n)
		}
	}
	f(all)
	switch {
	case reflect.DeepEqual(all, before):
		return nil
	case len(all) == 0:
		return os.Remove(m.path)
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return private.WriteFile(m.path, b)
}
