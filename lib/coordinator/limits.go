package coordinator

import (
	"reflect"
	"time"

	"btools/lib/mcp/child"

	"btools/lib/mcp/catalog"
)

// Limits bound what a host and its children may take. What is zero has its default.
type Limits struct {
	Catalog catalog.Limits
	Child   child.Limits

	// Awaiting are the requests of a host that await its input.
	Awaiting int
	// CapabilitySets are the sets of capabilities, of hosts that have one in common, that a host
	// has children for. Other hosts share the children for a host that can be
	// asked nothing.
	CapabilitySets int
	// Subscriptions are the resources of one subscriptions/listen.
	Subscriptions int
	// Questions are those of a child that its host has not answered, and may
	// never answer.
	Questions int
	// Replaced are the processes of a host that run only for calls that
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
	// Slow is how long a start takes that the status tells of.
	Slow time.Duration
}

// DefaultLimits are the limits of bmcp.
var DefaultLimits = Limits{
	Catalog:  catalog.DefaultLimits,
	Child:    child.DefaultLimits,
	Awaiting: 64, CapabilitySets: 8, Subscriptions: 1000, Questions: 64, Replaced: 8,
	AwaitInput: 5 * time.Minute, Settle: 20 * time.Millisecond,
	Start: 5 * time.Minute, Steady: time.Minute, FirstDelay: time.Second, MaxDelay: 30 * time.Second,
	Slow: 5 * time.Second,
}

// orDefault replaces zero fields by the defaults.
func (l Limits) orDefault() Limits {
	fill(reflect.ValueOf(&l).Elem(), reflect.ValueOf(DefaultLimits))
	return l
}

func fill(fields, defaults reflect.Value) {
	for i := range fields.NumField() {
		switch field := fields.Field(i); {
		case field.Kind() == reflect.Struct:
			fill(field, defaults.Field(i))
		case field.IsZero():
			field.Set(defaults.Field(i))
		}
	}
}
