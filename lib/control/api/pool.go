package api

import (
	"btools/lib/record"
)

// PoolsStatus is the answer of bpool to status: the state of the pools, as the specification of
// browser_pool_status defines it.
type PoolsStatus struct {
	Pools   []PoolStatus `json:"pools"`
	Summary PoolsSummary `json:"summary"`
	// Hosts are other hosts, as a service knows them that leases from these.
	Hosts []HostStatus `json:"hosts,omitempty"`
}

// HostStatus is what a service knows of a host of which it has leases, or which it does not ask now.
type HostStatus struct {
	Name    string `json:"name"`
	URL     string `json:"http_url,omitempty"`
	Leases  int    `json:"leases"`
	Suspect bool   `json:"suspect,omitempty"` // it has not answered
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
	Elsewhere   string           `json:"elsewhere,omitempty"` // where the oldest request waits on other hosts
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
	Memory        int64        `json:"memory_bytes,omitempty"` // of this browser, as it was measured last
	Lease         string       `json:"lease,omitempty"`
	Holder        string       `json:"holder,omitempty"` // the lease holder's name for itself
	By            string       `json:"by,omitempty"`     // the lease's owner, as uid:1000 or token:ci
	User          string       `json:"user,omitempty"`   // the owner's name, unless that runs the service
	Stays         string       `json:"stays,omitempty"`  // why a lease of a pool that is emptied has not moved
	Endpoint      string       `json:"http_url,omitempty"`
	Host          string       `json:"host,omitempty"` // the host that has it; "": this one

	Proxy  *UpstreamStatus `json:"proxy,omitempty"`  // of a leased session
	Limits *LimitsStatus   `json:"limits,omitempty"` // of what its pages may reach
	Login  *StateStatus    `json:"login,omitempty"`  // the state with which the session of a lease has started
	// HibernateAfter is when an unused lease is hibernated; 0: never.
	HibernateAfter int64 `json:"hibernate_ms,omitempty"`
	Hibernation
	Control *Control `json:"control,omitempty"` // the person who has taken over the session of the lease
	Ask     *Ask     `json:"ask,omitempty"`     // what a person is asked to do in it; nil: nothing
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

// FindLeased returns the instance of a lease; nil: there is none.
func (p *PoolStatus) FindLeased(l record.Lease) *InstanceStatus {
	for i := range p.Instances {
		if at := &p.Instances[i]; at.ID == l.Instance && at.Host == l.Host && (l.Host == "" || at.Lease == l.ID) {
			return at
		}
	}
	return nil
}
