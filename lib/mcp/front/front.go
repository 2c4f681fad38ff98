// Package front serves the hosts of an MCP server, by standard streams and by
// streamable HTTP: sessions, batches, streams that are resumed, and what a host that
// reads nothing or goes away costs. It relays messages and knows nothing of what they
// ask for: a Host answers them.
package front

import (
	"context"
	"encoding/json"
	"time"

	"btools/lib/jsonrpc"
)

// Host is what a host talks to: the server's side of one connection, or of all hosts
// that have one in common.
type Host interface {
	// Handle takes a message, or the error of parsing it: with a nil message, it
	// had no ID. It does not wait for an answer.
	Handle(m *jsonrpc.Message, err error)
	// Cancel ends a request, which gets no answer.
	Cancel(id json.RawMessage, why string)
	// Open is how many requests are being answered.
	Open() int
	// TakesBatches reports whether the host may send arrays of messages.
	TakesBatches() bool
	// InputSchema is that of a tool, as a host of these capabilities is given it; nil:
	// there is no such tool.
	InputSchema(tool string, capabilities json.RawMessage) json.RawMessage
	// Mute says that the host answers nothing any more.
	Mute()
	// Away says that the host seems to be gone, and may come back. It reports whether
	// something is still being done for it: then it is to be called again.
	Away() (busy bool)
	// Drain ends the subscriptions and waits until every request is answered, or the
	// context ends.
	Drain(ctx context.Context)
	// Close answers the open requests and ends what is there for the host.
	Close()
}

// Send sends a message to a host. To is the ID of the host's request that the
// message belongs to, nil if it belongs to none; last says that the message
// answers that request. The message is nil if the request gets no answer.
type Send func(to json.RawMessage, last bool, message []byte)

// Hosts is a server that has many hosts.
type Hosts interface {
	// New begins a host, or with shared what several hosts have in common, which know
	// nothing of each other. It calls send for each message, in order.
	New(send Send, shared bool) Host
}

// Limits bound what hosts may take.
type Limits struct {
	// Sessions are the sessions by HTTP: each has child processes.
	Sessions int
	// Requests are those of a session by HTTP that are being answered: each takes
	// a connection, of which other hosts need some.
	Requests int
	// Batch are the messages of a batch.
	Batch int

	// SessionIdle is how long a session by HTTP lives that nobody asks for
	// anything and nobody listens to.
	SessionIdle time.Duration
	// Lost is how long after its connections are cut a host by HTTP counts as gone.
	Lost time.Duration
	// Read is how long a host may take to send a message by HTTP, Write how
	// long it may take nothing of an answer.
	Read, Write time.Duration
	// Drain is how long the end of a host's input waits for answers, Flush how
	// long for a host that reads nothing, and Linger for connections that have
	// nothing more to say.
	Drain, Flush, Linger time.Duration
}

// DefaultLimits are the limits of bmcp.
var DefaultLimits = Limits{
	Sessions: 256, Requests: 128, Batch: 1024, SessionIdle: time.Hour, Lost: 3 * time.Second,
	Read: time.Minute, Write: time.Minute, Drain: 30 * time.Second, Flush: 4 * time.Second, Linger: 2 * time.Second,
}
