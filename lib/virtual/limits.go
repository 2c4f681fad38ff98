package virtual

import "errors"

// What one session or client may hold. Honest clients hold far less: the
// bounds keep one that runs wild from filling the memory of the others' Chrome,
// or making the work long that is done under the browser's lock.
const (
	maxClients   = 200    // of a session
	maxContexts  = 200    // of a session
	maxPages     = 1000   // of a session, by Target.createTarget
	maxRoots     = 20     // sessions with the browser, of a client
	maxAttached  = 2000   // sessions with targets, of a client
	maxFilter    = 100    // entries of a filter
	maxListeners = 100    // sessions of a client that discover targets
	maxPending   = 10_000 // commands of a client that Chrome is asked under an id of ours
)

// errFlood ends a client that sends commands faster than they are answered.
var errFlood = errors.New("too many commands are waiting for an answer")
