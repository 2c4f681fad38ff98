package api

import (
	"btools/lib/forward"
	"btools/lib/proc"
	"btools/lib/record"
)

// LeaseRequest is the parameters of lease, whose answer is a record with the members
// lease and instance.
type LeaseRequest struct {
	Pool     string         `json:"pool,omitempty"`       // "": the default one
	Instance string         `json:"instance,omitempty"`   // an ID or alias; "": any that is free
	Timeout  *int64         `json:"timeout_ms,omitempty"` // nil: the pool's; 0: it does not wait
	TTL      int64          `json:"ttl_ms,omitempty"`     // 0: the pool's
	Hold     bool           `json:"hold,omitempty"`       // the lease ends with the connection
	Confirm  bool           `json:"confirm,omitempty"`    // the same until the method confirm is called
	Holder   string         `json:"holder,omitempty"`     // the holder's name in the status
	Keep     string         `json:"keep,omitempty"`       // the connections stay for the next lease that says the same
	Owner    *proc.Identity `json:"owner,omitempty"`      // the lease ends with this process
	State    string         `json:"state,omitempty"`      // the name of the state with which it starts
}

// LeaseID is the parameters of confirm, held, release, renew and rest. The answer to
// renew is that of lease.
type LeaseID struct {
	Lease string `json:"lease,omitempty"`
	All   bool   `json:"all,omitempty"`    // of release: all leases, in the place of Lease
	TTL   int64  `json:"ttl_ms,omitempty"` // of renew; 0: as before
	After int    `json:"after,omitempty"`  // of held: number of notices already known
}

// Released is the answer to release: the leases that have ended by it.
type Released struct {
	Released []string `json:"released"`
}

// Notices is the answer to held: what the holder of a lease may not know yet. It comes
// when there is something.
type Notices struct {
	// Ended says how the lease ended, for example "the lease was released"; it
	// is "" while the lease lasts.
	Ended string `json:"ended,omitempty"`
	// Yielded says that another request got the instance, as it was not used.
	Yielded bool `json:"yielded,omitempty"`
	// Lines describes what happened to the browser, one sentence each, after
	// the lines that the holder has read. Last counts all lines so far.
	Lines []string `json:"lines,omitempty"`
	Last  int      `json:"last"`
}

// RestartRequest is the parameters of restart.
type RestartRequest struct {
	Instance string `json:"instance"` // an ID or alias; "": all of the pool
	Pool     string `json:"pool"`
}

// DrainRequest is the parameters of drain.
type DrainRequest struct {
	Off  bool   `json:"off"`  // grant leases again
	Pool string `json:"pool"` // "": all pools
}

// ScaleRequest is the parameters of scale.
type ScaleRequest struct {
	Instances int    `json:"instances"`
	Pool      string `json:"pool"`
}

// Instances is the answer to restart, drain and scale: how many instances it concerns.
type Instances struct {
	Instances int `json:"instances"`
}

// PoolsRequest is the parameters of status.
type PoolsRequest struct {
	Pool string `json:"pool_name"` // "": all pools
}

// PoolsStatus is the answer to status: the state of the pools, as the specification of
// browser_pool_status defines it.
type PoolsStatus struct {
	Pools   []PoolStatus `json:"pools"`
	Summary PoolsSummary `json:"summary"`
}

// PoolsSummary adds up the pools that are shown.
type PoolsSummary struct {
	Pools     int `json:"total_pools"`
	Total     int `json:"total_instances"`
	Healthy   int `json:"healthy_instances"`
	Failed    int `json:"failed_instances"`
	Leased    int `json:"leased_instances"`
	Available int `json:"available_instances"`
	Waiting   int `json:"waiting"`
}

// PoolStatus is the state of a pool.
type PoolStatus struct {
	Name        string           `json:"name"`
	Description string           `json:"description"`
	IsDefault   bool             `json:"is_default"`
	Total       int              `json:"total_instances"`
	Healthy     int              `json:"healthy_instances"`
	Leased      int              `json:"leased_instances"`
	Available   int              `json:"available_instances"`
	Waiting     int              `json:"waiting"`  // requests
	Affinity    string           `json:"affinity"` // call or session
	LeaseTTL    int64            `json:"lease_ttl_ms"`
	Interval    int64            `json:"health_interval_ms"`
	Timeout     int64            `json:"health_timeout_ms"`
	Instances   []InstanceStatus `json:"instances"`
}

// InstanceStatus is the state of an instance.
type InstanceStatus struct {
	ID            string       `json:"id"`
	Alias         *string      `json:"alias"`
	Status        string       `json:"status"` // starting, waiting, healthy, failed or draining
	Leased        bool         `json:"leased"`
	LeaseDuration *int64       `json:"lease_duration_ms"`
	LeaseStarted  *record.Time `json:"lease_started_at"`
	LeaseIdle     *int64       `json:"lease_idle_ms,omitempty"` // since its holder used it; nil: it does
	LeaseExpires  *record.Time `json:"lease_expires_at"`        // null if the lease lasts as long as its holder
	Browser       string       `json:"browser"`
	Headless      bool         `json:"headless"`
	UserDataDir   string       `json:"user_data_dir,omitempty"` // a profile that is kept
	WSLWindows    bool         `json:"wsl_windows,omitempty"`   // its browser and its clients run on Windows, from WSL
	Isolated      bool         `json:"isolated,omitempty"`
	Timeout       int64        `json:"timeout_ms"` // of a launch, and in bmcp of a tool call; 0: no limit
	ProcessID     *int         `json:"process_id"`
	Health        HealthStatus `json:"health_check"`
	NextTry       *record.Time `json:"next_try_at,omitempty"` // if it has failed and will be retried
	Isolation     string       `json:"isolation"`             // process, or context for a shared browser
	Uses          int          `json:"uses"`                  // leases of this browser
	Restarts      int          `json:"restarts"`
	Lease         string       `json:"lease,omitempty"`
	Holder        string       `json:"holder,omitempty"` // the lease holder's name for itself
	UID           *int         `json:"uid,omitempty"`    // of the lease's owner
	User          string       `json:"user,omitempty"`   // the owner's name, unless that runs the service
	Endpoint      string       `json:"http_url,omitempty"`

	Proxy *forward.Status `json:"proxy,omitempty"` // of a leased session
	Login *StateStatus    `json:"login,omitempty"` // the state with which the session of a lease has started
	// HibernateAfter is when an unused lease is hibernated; 0: never.
	HibernateAfter int64 `json:"hibernate_ms,omitempty"`
	Hibernation
	// KeptAt is a time as of which the session comes back if its browser ends; nil: there
	// is none yet.
	KeptAt *record.Time `json:"kept_at,omitempty"`
	// Tabs is how many tabs the session of a lease has; nil: it has not begun, or the
	// lease has a browser to itself.
	Tabs *int `json:"tab_count,omitempty"`
}

// HealthStatus is the result of the latest health check.
type HealthStatus struct {
	LastCheck  *record.Time `json:"last_check"`
	Responsive bool         `json:"responsive"`
	Error      *string      `json:"error"`
}

// Find returns the instance with an ID or alias; nil: there is none.
func (p *PoolStatus) Find(name string) *InstanceStatus {
	for i := range p.Instances {
		if at := &p.Instances[i]; at.ID == name || at.Alias != nil && *at.Alias == name {
			return at
		}
	}
	return nil
}
