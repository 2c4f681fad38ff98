package source

import "slices"

// Kind is what hosts and agents notice of where browsers come from.
type Kind struct {
	// Arguments are the arguments of a call that choose a browser, as RefIn reads them.
	Arguments []string
	// Apart gives each host a virtual browser of its own for the calls without a session_id. The calls of others
	// use the whole browser.
	Apart bool
	// Instructions are for an agent with browser tools, Bare for one without.
	Instructions, Bare string
	// AnyProtocol means that the browser need not speak CDP.
	AnyProtocol bool

	// The tools by which an agent controls the browser:
	Launch, Restart, PoolStatus bool
	Stop                        string // what the agent is told of the tool that stops it; "": there is none
}

// The kinds of sources.
var (
	// SharedProfile is one browser, which all hosts see as it is.
	SharedProfile = &Kind{Instructions: launches, Bare: bareLaunches, Launch: true, Restart: true,
		Stop: "Stop the browser, which loses its pages." + notNeeded}
	// ProfileAndSessions shows the host the profile of the one browser; calls with a session_id have virtual
	// browsers beside it.
	ProfileAndSessions = &Kind{Arguments: withState, Instructions: launches + sessionIDs, Bare: bareLaunches,
		Launch: true, Restart: true, Stop: stopSession}
	// SessionsOnly gives each host a virtual browser of its own, and others by session_id.
	SessionsOnly = &Kind{Arguments: withState, Apart: true, Instructions: apart + sessionIDs, Bare: bareLaunches,
		Restart: true, Stop: stopSession}
	// Hub is the browsers that have joined, with tabs of each host's and session_id's own.
	Hub = &Kind{Arguments: []string{"session_id", "instanceId"}, Apart: true, Instructions: joins + sessionIDs,
		Bare: bareJoins, Stop: "Close the tabs of this session, or of that of a session_id. The browser itself stays " +
			"with its user. Not needed when done: they close with the session."}
	// Pool is leases of a bpool service.
	Pool = &Kind{Arguments: []string{"browser_pool", "browser_instance"}, Instructions: pools, Bare: barePools,
		AnyProtocol: true, PoolStatus: true}
	// ByChild is a browser that a child launches.
	ByChild = &Kind{AnyProtocol: true}
)

var withState = []string{"session_id", "state"}

// ofGuest returns the kind of a browser that another program launches and stops.
func (k Kind) ofGuest() *Kind {
	k.Launch, k.Restart, k.Stop, k.Instructions = false, false, "", guests
	if k.HasSessions() {
		k.Instructions += sessionIDs
		k.Stop = "Close the pages of a session_id. The browser itself stays. Not needed at the end: they close with " +
			"the session."
	}
	return &k
}

// HasSessions reports whether a call can name a session of its own.
func (k *Kind) HasSessions() bool { return slices.Contains(k.Arguments, "session_id") }

const (
	notNeeded   = " Not needed at the end: it stops with the session."
	stopSession = "Stop the browser, or that of a session_id, which loses its pages." + notNeeded

	launches = `The browser tools launch their browser by themselves, at the first call that needs one. ` +
		`The coordinator_ tools are for exceptions: to see what is wrong, to choose another browser, to ` +
		`begin afresh. ` +
		`Stopping or restarting the browser loses its pages and logins.`
	sessionIDs = ` Agents that work at the same time each give a session_id of their own, such ` +
		`as sub-agent-1: ` +
		`calls with the same one share a browser of its own, without the logins of this one; state at its first ` +
		`call has it start with a saved login, which browser_state lists.`
	apart = `The browser tools launch their browser by themselves, at the first call that needs one, and ` +
		`show a browser that is this session's own. ` +
		`The coordinator_ tools are for exceptions: to see what is wrong, to begin afresh.`
	guests = `The browser tools use a browser that another program has launched, and that stays: tabs ` +
		`that were open before may be a person's.`
	joins = `The browser tools use the browser of a person, with its logins, which has joined by an ` +
		`extension. They see the tabs that they have opened, and those that the person shares. If no browser has ` +
		`joined, a call says what the person has to do. browser_instance launches other browsers: without ` +
		`a person's browser, the browser tools use the one that was launched last. instanceId names another one. ` +
		`The coordinator_ tools are for exceptions: to see what is wrong, to begin afresh.`
	bareJoins = `There are no browser tools here. coordinator_status shows the browser of a person that ` +
		`has joined by an extension, and its address for programs that speak DevTools.`
	bareLaunches = `There are no browser tools here. coordinator_launch_browser launches a browser that programs ` +
		`can drive by DevTools, ` +
		`at the port that coordinator_status shows.`
	pools = `The browser tools use a pool of browsers that are up already, and stay on the one that the ` +
		`first call got. ` +
		`browser_instance and browser_pool name another one. In a pool whose affinity is "call", each call that ` +
		`names none may be on another one; ` +
		`results say which. browser_pool_status shows the pools.`
	barePools = `There are no browser tools here. browser_pool_status shows the pools of browsers, which ` +
		`programs can drive by DevTools.`
)
