// Package api has the methods of the control sockets of bproxy, its hub and bpool, with their requests
// and answers: each once, for the programs and for their clients. It has no I/O and no state.
//
// A member that is left out has its zero value, unless it says otherwise. Times are
// record.Time; what ends in _ms is in milliseconds, in _seconds in seconds.
package api

import (
	"encoding/json"

	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/launch/options"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/settings"
)

// The methods, in the order of btools(7).
const (
	// Status answers with the record of the proxy or hub; see Pools.
	Status control.Method[Of, *record.Record] = "status"
	// List answers with the sessions of bproxy, and the browsers of a hub or, if the request names one or
	// all, their sessions.
	List control.Method[Of, []*record.Record] = "list"
	// Watch waits for what happens to the lease or browser that the request names; see Events.
	Watch control.Method[WatchRequest, Notices] = "watch"

	// Hold gets a lease of bpool, a session of bproxy or a browser of a hub, and answers with its record.
	Hold control.Method[HoldRequest, *record.Record] = "hold"
	// Renew extends a lease.
	Renew control.Method[RenewRequest, *record.Record] = "renew"
	// Rest notes that a lease is not used until it is renewed, or hibernates a session.
	Rest control.Method[Of, struct{}] = "rest"
	// Release ends leases or sessions, and answers with those that it has ended.
	Release control.Method[Of, []*record.Record] = "release"

	// Attach has a person look at a session: after the answer the connection is a WebSocket that carries CDP.
	Attach control.Method[AttachRequest, Attached] = "attach"

	// Downloads answers with the downloads of a lease or session, the oldest first.
	Downloads control.Method[DownloadsRequest, []downloads.File] = "downloads"

	// StateSave saves the state of a lease or session under a name.
	StateSave control.Method[StateRequest, States] = "state_save"
	// LeaseState answers with the state of a lease, as StateSave saves it.
	LeaseState control.Method[Of, States]           = "lease_state"
	StateList  control.Method[StateRequest, States] = "state_list"
	// StateGet describes a state, or answers with a part of it.
	StateGet control.Method[StateRequest, States] = "state_get"
	// StatePut takes a part of a state, and saves the state with the last one.
	StatePut    control.Method[StateRequest, States] = "state_put"
	StateDelete control.Method[StateRequest, States] = "state_delete"

	// Launch, Restart and Stop answer with the status of the proxy or hub; Restart of bpool answers with Instances.
	Launch  control.Method[options.Options, *record.Record] = "launch"
	Restart control.Method[Of, *record.Record]              = "restart"
	Stop    control.Method[Of, *record.Record]              = "stop"

	Drain control.Method[DrainRequest, Instances] = "drain"
	// Freeze has nobody use a lease that is about to move.
	Freeze control.Method[FreezeRequest, struct{}] = "freeze"
	Scale  control.Method[ScaleRequest, Instances] = "scale"
	Reload control.Method[struct{}, any]           = "reload"
	// Upgrade starts a successor of the service, and answers when that is ready.
	Upgrade control.Method[struct{}, Upgraded] = "upgrade"
	// Relay is for the processes of one service: it answers as the method in it.
	Relay control.Method[RelayRequest, json.RawMessage] = "relay"
	// HTTP is for them, too: after the answer the connection is one to the port of --http.
	HTTP control.Method[HTTPRequest, struct{}] = "http"
)

// Pools is Status of bpool, RestartInstances is its Restart.
const (
	Pools            = control.Method[Of, PoolsStatus](Status)
	RestartInstances = control.Method[Of, Instances](Restart)
)

// Events returns Watch for the events of a program.
func Events[E any]() control.Method[WatchRequest, EventList[E]] {
	return control.Method[WatchRequest, EventList[E]](Watch)
}

// Of names the browsers that a request is about.
type Of struct {
	Pool     string `json:"pool,omitempty"`     // of bpool; "": the default one, or all
	Instance string `json:"instance,omitempty"` // an ID or alias of a pool's instance; an ID or port of a hub's browser
	Lease    string `json:"lease,omitempty"`    // the ID of a lease of bpool
	Session  string `json:"session,omitempty"`  // the name of a session of bproxy
	All      bool   `json:"all,omitempty"`      // all leases, sessions or browsers
}

// HoldRequest says which browser is wanted, and how long it is held. A session of bproxy takes Session
// and Settings.
type HoldRequest struct {
	Of
	// Settings are those of a session or a lease that differ from the proxy's or the pool's.
	Settings settings.Values `json:"settings,omitempty"`

	// Of bpool:
	Timeout *int64 `json:"timeout_ms,omitempty"` // nil: the pool's; 0: it does not wait
	TTL     int64  `json:"ttl_ms,omitempty"`     // 0: the pool's
	Bound   bool   `json:"bound,omitempty"`      // the lease ends with the connection
	// Confirm is Bound until a renew confirms the lease.
	Confirm bool           `json:"confirm,omitempty"`
	Holder  string         `json:"holder,omitempty"` // the holder's name in the status
	Keep    string         `json:"keep,omitempty"`   // the connections stay for the next lease that says the same
	Owner   *proc.Identity `json:"owner,omitempty"`  // the lease ends with this process
	Region  string         `json:"region,omitempty"` // the only one of its host; "": any
	Offer   string         `json:"offer,omitempty"`  // ID of the offer that is leased
	Saved   []byte         `json:"-"`                // by HTTP only: a session that another host has saved
	Here    bool           `json:"-"`                // by HTTP only: the lease must be of this host

	// Of a hub, where the browser is held until the connection ends:
	As  string `json:"as,omitempty"`  // finds the browser below /session/ meanwhile
	By  string `json:"by,omitempty"`  // who may hold a browser several times; "": nobody
	Now bool   `json:"now,omitempty"` // fail instead of waiting for the browser, named by its ID
	Own bool   `json:"own,omitempty"` // give the holder a session, which ends with the connection
	// Launch waits for the browser with this mark of its launch, and does not hold it.
	Launch string `json:"launch,omitempty"`
}

// RenewRequest is the parameters of renew.
type RenewRequest struct {
	Of
	TTL     int64 `json:"ttl_ms,omitempty"`  // 0: as before
	Confirm bool  `json:"confirm,omitempty"` // the lease outlives its connection; it is not extended
}

// WatchRequest is the parameters of watch.
type WatchRequest struct {
	Of
	// After is the number of the last known event or notice; -1: only new events.
	After int64 `json:"after,omitempty"`
}

// EventList is the answer to watch, which comes when there is an event.
type EventList[E any] struct {
	Events []E `json:"events"`
}

// Notices is the answer to watch for a lease or a browser: what its holder may not know yet. It comes
// when there is something. Of a browser it is only Ended.
type Notices struct {
	// Ended says how the lease ended, for example "the lease was released", or why the
	// browser has left; it is "" while the lease lasts.
	Ended string `json:"ended,omitempty"`
	// Yielded says that another request got the instance, as it was not used.
	Yielded bool `json:"yielded,omitempty"`
	// Lines describes what happened to the browser, one sentence each, after
	// the lines that the holder has read. Last counts all lines so far.
	Lines []string `json:"lines,omitempty"`
	Last  int      `json:"last"`
}

// DownloadsRequest is the parameters of downloads.
type DownloadsRequest struct {
	Of
	Wait      bool  `json:"wait,omitempty"`       // until there is a download and none is in progress
	TimeoutMS int64 `json:"timeout_ms,omitempty"` // of Wait; 0: no limit
}

// StateRequest is the parameters of the methods for states. What is put or got in several parts takes
// one connection.
type StateRequest struct {
	Of
	Name   string `json:"name,omitempty"`
	Create bool   `json:"create,omitempty"` // save only if there is no state of this name
	Data   []byte `json:"data,omitempty"`   // the next part of a storageState of Playwright to put
	More   bool   `json:"more,omitempty"`   // other parts to put follow
	Export bool   `json:"export,omitempty"` // get the first part of the storageState, not the description
	Next   bool   `json:"next,omitempty"`   // get the next part
}

// States is the answer to the methods for states.
type States struct {
	States []*record.Record `json:"states,omitempty"` // with the member "state"
	Lost   []string         `json:"lost,omitempty"`   // what could not be read, or is not kept
	Bad    []string         `json:"bad,omitempty"`    // why a state in the list cannot be read, for each
	Data   []byte           `json:"data,omitempty"`   // a part of a storageState
	More   bool             `json:"more,omitempty"`   // there are others
}

// DrainRequest is the parameters of drain.
type DrainRequest struct {
	Of
	Off    bool  `json:"off,omitempty"`       // grant leases again
	Move   bool  `json:"move,omitempty"`      // have the leases move to other hosts
	Within int64 `json:"within_ms,omitempty"` // with Move: time until leases move that are in use; 0: they do not
}

// ReleaseRequest is the parameters of release of a bpool.
type ReleaseRequest struct {
	Of
	Moved bool `json:"moved,omitempty"` // the lease goes on at another host
}

// FreezeRequest is the parameters of freeze.
type FreezeRequest struct {
	Of
	Off bool   `json:"off,omitempty"` // let the lease be used again
	Why string `json:"why,omitempty"` // with Off: why it has not moved
}

// ScaleRequest is the parameters of scale.
type ScaleRequest struct {
	Of
	Instances int `json:"instances"`
}

// Instances is the answer to restart, drain and scale: how many instances it concerns.
type Instances struct {
	Instances int `json:"instances"`
}

// Upgraded is the answer to upgrade.
type Upgraded struct {
	PID    int `json:"pid"`    // of the successor
	Leases int `json:"leases"` // that the process before it serves to their end
}

// RelayRequest is a request that one process of a service has for another one, on behalf of the process or token
// that made it.
type RelayRequest struct {
	UID    int             `json:"uid"`
	PID    int             `json:"pid,omitempty"`
	Token  string          `json:"token,omitempty"` // the name of one; "": it was a process
	Admin  bool            `json:"admin,omitempty"` // of that token
	Method string          `json:"method"`
	Params json.RawMessage `json:"params,omitempty"`
}

// HTTPRequest is the parameters of http.
type HTTPRequest struct {
	TLS bool `json:"tls,omitempty"` // the client's connection is encrypted
}
