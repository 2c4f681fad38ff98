// Package settings is the table of all that a browser, a session or a pool can be
// set to: a row each, from which the keys of pools, the flags of programs, their help
// and the JSON of requests come. It reads no file, variable or flag.
package settings

import (
	"time"

	"btools/lib/emulate"
	"btools/lib/forward/limits"
	"btools/lib/launch/options"
)

// Settings are the values of one browser, session, pool or instance of a pool. Which
// of them apply to what is said by the rows of Table.
type Settings struct {
	ID          string // number of an instance
	Alias       string // "": none
	Description string

	options.Options          // of the launch
	emulate.Emulation        // of the pages of sessions
	Isolated          bool   // each lease gets a fresh browser
	Isolation         string // Process or Context
	PerBrowser        int    // with Context: instances that share one browser
	Spares            int    // with Context: spare sessions per browser; MaxInstances: one for each free instance
	WSLWindows        bool
	Timeout           time.Duration // of a launch, and in bmcp of a tool call; 0: no limit
	Launch            bool          // false: bpool launches no browser for it
	Extension         bool          // with Launch: its browser is one that joins by its extension
	Start             string        // eager or lazy
	Restart           string        // always or never
	MaxUses           int           // leases until the browser is replaced; 0: no limit
	MaxAge            time.Duration
	MaxMemory         int64         // bytes; 0: no limit
	Idle              time.Duration // without use, until the browser is stopped; 0: never
	IdleBy            string        // what counts as use: Traffic or Connections

	// Of sessions, and of leases with Context:
	SessionGrace   time.Duration // from the last connection of an anonymous session until it ends
	SessionIdle    time.Duration // without traffic, until a named session ends; 0: never
	Throttle       time.Duration // without traffic, until pages are hidden; 0: never
	Hibernate      time.Duration // without traffic and clients, until a session is hibernated; 0: never
	MaxSessions    int           // sessions that are awake at once; 0: no limit
	TabLimit       int           // pages of a session; 0: no limit
	DefaultSession string        // name of the session that has the browser's profile; "": none
	Keep           string        // directory in which named sessions outlive the program; "": they end with it
	RootSession    string        // name of the session at the root address; "": each client has its own
	State          string        // name of the state with which sessions start; "": none
	Proxy          string        // URL of their proxy, with credentials; "": none
	ProxyBypass    string        // hosts that they reach without it, as Chrome's --proxy-bypass-list has them
	AllowOrigins   []string      // patterns of the origins that their pages may reach; none: any
	BlockOrigins   []string      // patterns of origins that their pages may not reach
	BlockPrivate   bool          // their pages may not reach addresses that are not public
	InitScript     []string      // files of scripts that run in each document before its own, as Row.Contents says
	Trace          string        // absolute path of the file that gets their messages; "": none
	Downloads      string        // directory that keeps the downloads of each; "": they end with it
	DownloadLimit  int64         // bytes that each may download; 0: no limit
	UploadRoots    []string      // directories whose files each may put into forms; absolute, without symbolic links
	DownloadRoots  []string      // directories that clients of any user may name for their downloads; as those

	LeaseTimeout   time.Duration // for which a request may wait
	LeaseTTL       time.Duration // of a lease, unless it is renewed
	QueueLimit     int           // requests that may wait
	Affinity       string        // of bmcp's sessions: call or session
	AffinityIdle   time.Duration // after which another request gets an instance that a session keeps
	HealthInterval time.Duration // between health checks; 0: none
	HealthTimeout  time.Duration // of a health check

	Hosts Hosts
}

// Hosts is how a service finds the services of other machines, and is found by them. It is the same for all pools.
type Hosts struct {
	NATS         []string      // URLs of servers; none: it is alone
	Credentials  string        // file with a JWT and its seed
	Seed         string        // file with the seed of an nkey
	User         string        // with a password
	PasswordFile string        // of User
	CA           string        // file with the certificates that servers of NATS may have; "": the system's
	Cert, Key    string        // files of a certificate for NATS
	Name         string        // in subjects; "": the machine's
	Region       string        // of this machine
	Regions      []string      // in which requests look, the nearest first; none: Region
	FarAfter     time.Duration // until a request looks in one region more
	Place        string        // Spread or First
	Token        string        // for the HTTPS of hosts
	HostsCA      string        // file with the certificates that hosts may have; "": the system's
	Plain        bool          // hosts at private addresses may have no encryption
}

// Limits returns the rules about what pages of sessions may reach.
func (s *Settings) Limits() limits.Limits {
	return limits.Limits{Allow: s.AllowOrigins, Block: s.BlockOrigins, Private: s.BlockPrivate}
}

// What keeps a browser from being idle.
const (
	Traffic     = "traffic"     // what clients send, and downloads
	Connections = "connections" // open WebSockets
)

// What an instance has to itself.
const (
	Process = "process" // a browser
	Context = "context" // a session in a shared browser
)

// On which host a request gets a browser.
const (
	Spread = "spread" // on any
	First  = "first"  // on the one with the smallest number
)

// Limits of values.
const (
	MaxInstances = 10000
	maxCount     = 1 << 30
	// MaxDuration is a hundred years; the sum of a few does not overflow a
	// Duration.
	MaxDuration = 876000 * time.Hour
	// MaxTimeout is the longest TIMEOUT.
	MaxTimeout = 24 * time.Hour
	// HibernatedIdle is SessionIdle of sessions that are hibernated, unless it is set:
	// one costs no more than a file.
	HibernatedIdle = 30 * 24 * time.Hour
)
