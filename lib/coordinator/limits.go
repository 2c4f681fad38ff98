package coordinator

import (
	"reflect"
	"time"
)

// Limits bound what a session and its children may take. What is zero has its default.
type Limits struct {
	// Awaiting are the requests of a session that await input of their hosts.
	Awaiting int
	// CapabilitySets are the sets of capabilities of its hosts that a session
	// has children for. Other hosts share the children for a host that can be
	// asked nothing.
	CapabilitySets int
	// Subscriptions are the resources of one subscriptions/listen.
	Subscriptions int
	// Questions are those of a child that its host has not answered, and may
	// never answer.
	Questions int
	// Replaced are the processes of a session that run only for calls that
	// await input.
	Replaced int

	// AwaitInput is how long a request awaits input: people may have to be
	// asked.
	AwaitInput time.Duration
	// Settle is how long a question of a child waits for more of them, so that
	// the host has to repeat its request only once.
	Settle time.Duration
	// Start is how long a child may take to start: npx may have to fetch it
	// first.
	Start time.Duration
	// Steady is how long a child lives that does not crash repeatedly. One that
	// does is started again after FirstDelay, and at most MaxDelay.
	Steady, FirstDelay, MaxDelay time.Duration
	// Initialize is how long the answer to the host's initialize waits for
	// children that are run for the first time: hosts give up after a second.
	Initialize time.Duration
	// List is how long the host's first tools/list waits: for each child once,
	// all requests together.
	List time.Duration
	// Late is how long a child is waited for that did not answer in time
	// before.
	Late time.Duration
	// Slow is how long a start takes that the status tells of.
	Slow time.Duration
	// Stop is how long a child may take to end after the end of its input, and
	// again after TERM. Closed is the same for one that has closed its input.
	Stop, Closed time.Duration
}

// DefaultLimits are the limits of bmcp.
var DefaultLimits = Limits{
	Awaiting: 64, CapabilitySets: 8, Subscriptions: 1000, Questions: 64, Replaced: 8,
	AwaitInput: 5 * time.Minute, Settle: 20 * time.Millisecond,
	Start: 5 * time.Minute, Steady: time.Minute, FirstDelay: time.Second, MaxDelay: 30 * time.Second,
	Initialize: 800 * time.Millisecond, List: 20 * time.Second, Late: time.Second, Slow: 5 * time.Second,
	Stop: 2 * time.Second, Closed: time.Second,
}

// orDefault has the defaults in place of what is zero.
func (l Limits) orDefault() Limits {
	fields, defaults := reflect.ValueOf(&l).Elem(), reflect.ValueOf(DefaultLimits)
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			fields.Field(i).Set(defaults.Field(i))
		}
	}
	return l
}
