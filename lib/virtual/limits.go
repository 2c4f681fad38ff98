package virtual

import "errors"

// Limits of one session or client. Well-behaved clients stay far below them. They keep a client that runs wild from
// filling the memory of the shared Chrome, and from slowing down the work under the browser's lock.
const (
	maxClients   = 200    // of a session
	maxContexts  = 200    // of a session
	maxPages     = 1000   // of a session, by Target.createTarget
	maxRoots     = 20     // of a client: sessions with the browser
	maxAttached  = 2000   // of a client: sessions with targets
	maxFilter    = 100    // entries of a filter
	maxListeners = 100    // of a client: sessions that discover targets
	maxPending   = 10_000 // of a client: commands sent to Chrome under an id of our own

	maxUnfinished = 256 << 20 // of all clients: bytes of commands that have not been handled
)

// errFlood ends a client that sends commands faster than they are answered.
var errFlood = errors.New("too many commands are waiting for an answer")
