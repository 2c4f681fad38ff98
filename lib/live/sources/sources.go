// Package sources has the sessions of this user's programs, as the state file and the programs tell them, and connects
// a person to one. It starts nothing and keeps nothing.
package sources

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/spell"
	"btools/lib/state"
	"btools/lib/websocket"
)

const (
	// patience is how long a program may take to tell its sessions.
	patience = time.Second
	// attachTimeout is how long a program may take to let a person in.
	attachTimeout = 5 * time.Second
	// wakeTimeout is how long a hibernated session may take to come back.
	wakeTimeout = 30 * time.Second
)

// Kinds of what a person looks at.
const (
	Virtual = "session" // it can be taken over
	Browser = "browser" // a whole one
	Firefox = "firefox" // there is no picture
)

// profile is the name of the session of bmcp that has the browser's own profile, in each bmcp.
const profile = "host"

// Session is a session of a program, or a browser that one has for itself.
type Session struct {
	Key        string       `json:"key"`     // its name, with the program's process ID if others have the same
	Name       string       `json:"name"`    // as people call it
	Program    string       `json:"program"` // bproxy, bpool, bmcp, bmcp call or hub
	Holder     string       `json:"holder"`  // the program or person that it is for; "": not known
	Tabs       int          `json:"tabs"`
	Idle       int          `json:"idle"` // seconds since the last use; -1: not known
	Hibernated bool         `json:"hibernated"`
	Control    *api.Control `json:"control,omitempty"` // the person who has it; nil: nobody
	Ask        *api.Ask     `json:"ask,omitempty"`     // what a person is asked to do; nil: nothing
	Kind       string       `json:"kind"`
	Why        string       `json:"why"` // why there is no picture; "": there is one

	at  control.Path // of its program
	pid int
	of  api.AttachRequest
}

// All returns the sessions, in the order of their names. A program that does not answer in time has those that it had
// in an earlier list.
func All(ctx context.Context, store *state.Store, was []Session) ([]Session, error) {
	f, err := store.Read()
	if err != nil {
		return nil, state.Explain(err)
	}
	proxies, err := client.Any.All(store)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var mu sync.Mutex
	var work sync.WaitGroup
	all := []Session{}
	ask := func(at control.Path, pid int, program, holder string,
		list func(context.Context, control.Caller) ([]Session, error),
	) {
		work.Go(func() {
			found, err := list(ctx, at)
			if err != nil && ctx.Err() != nil {
				found = slices.DeleteFunc(slices.Clone(was), func(s Session) bool { return s.at != at })
			}
			mu.Lock()
			defer mu.Unlock()
			for _, s := range found {
				if s.Name == profile && holder != "" {
					s.Name = strings.ReplaceAll(holder, " ", "-")
				}
				s.at, s.pid = at, pid
				s.Program, s.Holder = cmp.Or(s.Program, program), cmp.Or(s.Holder, holder)
				all = append(all, s)
			}
		})
	}
	for _, p := range proxies {
		program, holder := programOf(p, f)
		switch {
		case p.Isolated:
			ask(p.Control, p.PID, program, holder, sessionsOf)
		case p.Extension:
			ask(p.Control, p.PID, program, holder, browsersOf)
		default:
			ask(p.Control, p.PID, program, holder, browserOf(p))
		}
	}
	shared, private := client.RunningPools(ctx, f)
	for _, p := range shared {
		ask(control.Path(p.Control), p.Process.PID, "bpool", "", leasesOf)
	}
	for _, p := range private { // bmcp runs it
		ask(control.Path(p.Control), p.Process.PID, "bmcp", "", leasesOf)
	}
	work.Wait()
	setKeys(all)
	return all, nil
}

// programOf returns which program the sessions of a proxy are of, and the process that it works for.
func programOf(p client.Proxy, f *state.File) (program, holder string) {
	if p.Owner == "" && p.Extension {
		return "hub", ""
	}
	name, pid, _ := strings.Cut(p.Owner, " ")
	if slices.ContainsFunc(f.Calls, func(s state.CallService) bool { return strconv.Itoa(s.Process.PID) == pid }) {
		return "bmcp call", ""
	}
	return cmp.Or(name, "bproxy"), p.Owner
}

// sessionsOf returns the sessions of bproxy share.
func sessionsOf(ctx context.Context, c control.Caller) (all []Session, err error) {
	rs, err := api.List.Ask(ctx, c, api.Of{All: true})
	for _, r := range rs {
		all = append(all, sessionOf(r))
	}
	return all, err
}

// sessionOf returns the session of a record.
func sessionOf(r *record.Record) Session {
	s := record.Member[api.Session](r, "session")
	return Session{Name: api.Called(s.Name), Tabs: s.TabCount, Idle: int(s.IdleSeconds), Hibernated: s.Hibernated,
		Control: s.Control, Ask: s.Ask, Kind: Virtual, of: api.AttachRequest{Session: s.Name}}
}

// browsersOf returns the browsers of a hub, and their sessions.
func browsersOf(ctx context.Context, c control.Caller) (all []Session, err error) {
	rs, err := api.List.Ask(ctx, c, api.Of{})
	for _, r := range rs {
		j := record.Member[record.Joined](r, "joined")
		all = append(all, Session{Name: j.ID, Tabs: j.Tabs, Idle: int(time.Since(j.LastActivity.Time).Seconds()),
			Kind: Browser, of: api.AttachRequest{Instance: j.ID}})
	}
	if err != nil {
		return nil, err
	}
	rs, err = api.List.Ask(ctx, c, api.Of{All: true})
	for _, r := range rs {
		s := sessionOf(r)
		_, s.of.Instance, _ = strings.Cut(record.Member[record.Proxy](r, "proxy").HTTPURL, "/session/")
		all = append(all, s)
	}
	return all, err
}

// browserOf returns the browser of a bproxy without sessions, if it runs.
func browserOf(p client.Proxy) func(context.Context, control.Caller) ([]Session, error) {
	return func(ctx context.Context, c control.Caller) ([]Session, error) {
		r, err := api.Status.Ask(ctx, c, api.Of{})
		if err != nil || r.Raw("browser") == nil {
			return nil, err
		}
		s := Session{Name: fmt.Sprintf("bproxy-%d", p.Port), Kind: Browser}
		if idle := record.Member[api.ProxyStatus](r, "status").IdleSeconds; idle != nil {
			s.Idle = int(*idle)
		}
		return []Session{s.speaks(record.Member[record.Proxy](r, "proxy").Protocol)}, nil
	}
}

// leasesOf returns the leases of bpool.
func leasesOf(ctx context.Context, c control.Caller) (all []Session, err error) {
	status, err := api.Pools.Ask(ctx, c, api.Of{})
	for _, p := range status.Pools {
		for _, i := range p.Instances {
			if i.Lease == "" {
				continue
			}
			s := Session{Name: p.Name + "-" + i.ID, Idle: -1, Holder: i.Holder, Hibernated: i.Hibernated,
				Control: i.Control, Ask: i.Ask, Kind: Virtual, of: api.AttachRequest{Lease: i.Lease}}
			if i.Isolation != "context" {
				s.Kind = Browser
			}
			if i.Tabs != nil {
				s.Tabs = *i.Tabs
			}
			if i.LeaseIdle != nil {
				s.Idle = int(*i.LeaseIdle / 1000)
			}
			if i.Browser == record.Firefox {
				s = s.speaks(record.BiDi)
			}
			all = append(all, s)
		}
	}
	return all, err
}

// speaks returns a browser of this protocol.
func (s Session) speaks(protocol string) Session {
	if protocol == record.BiDi {
		s.Kind, s.Why = Firefox, "Firefox sends no pictures of its pages"
	}
	return s
}

// setKeys sorts sessions, and gives each a key of its own.
func setKeys(all []Session) {
	slices.SortStableFunc(all, func(a, b Session) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.pid-b.pid, strings.Compare(string(a.at), string(b.at)),
			strings.Compare(a.of.Instance, b.of.Instance))
	})
	names, keys := map[string]int{}, map[string]int{}
	for i := range all {
		names[all[i].Name]++
	}
	for i := range all {
		s := &all[i]
		s.Key = s.Name
		if names[s.Name] > 1 {
			s.Key = s.Name + "~" + strconv.Itoa(s.pid)
		}
		if keys[s.Key]++; keys[s.Key] > 1 {
			s.Key += "~" + strconv.Itoa(keys[s.Key])
		}
	}
}

// Find returns the session with a key, with a name that no other has, or with the whole name or the lease by which its
// program knows it.
func Find(all []Session, key string) (*Session, error) {
	var of, keys []string
	for i := range all {
		s := &all[i]
		isOther := key != "" && key != s.Name
		if s.Key == key || isOther && (s.of.Session == key || s.of.Lease == key) ||
			s.Key == s.Name && fmt.Sprintf("%s~%d", s.Name, s.pid) == key {
			return s, nil
		}
		if keys = append(keys, s.Key); s.Name == key {
			of = append(of, s.Key)
		}
	}
	if len(of) > 0 {
		return nil, exit.Errorf(exit.Usage, "several programs have a session %q; name one: %s", key,
			strings.Join(of, ", "))
	}
	hint := "there are none"
	if near := spell.Nearest(key, keys); near != "" {
		hint = "do you mean " + near + "?"
	} else if len(keys) > 0 {
		hint = "there are " + strings.Join(keys[:min(len(keys), 20)], ", ")
	}
	return nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("no program has a session %q", key), Hint: hint}
}

// Attach connects a person to the session; of the request who, tile, view and wake are read.
func (s *Session) Attach(ctx context.Context, r api.AttachRequest) (*websocket.Conn, api.Attached, error) {
	bound := attachTimeout
	if r.Wake {
		bound = wakeTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound,
		exit.Errorf(exit.TryAgain, "the program of the session does not answer"))
	defer cancel()
	r.Session, r.Lease, r.Instance = s.of.Session, s.of.Lease, s.of.Instance
	var a api.Attached
	conn, early, err := control.Take(ctx, string(s.at), string(api.Attach), r, &a)
	if err != nil {
		return nil, a, err
	}
	return websocket.New(conn, true, early), a, nil
}
