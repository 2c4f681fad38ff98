// Package pending keeps the requests of a host that are not over yet: which
// child answers each, what the children ask in their course, and which of them
// await input of the host. It is a state machine without locks, goroutines or
// clocks: callers must call the methods of a Table one at a time, and then
// execute the effects that these return, in order.
package pending

import (
	"encoding/json"

	"btools/lib/jsonrpc"
)

// Child is a process that answers requests.
type Child interface {
	comparable
	// Alone reports whether the child can mean no other request than the one
	// with this number when it sends a message that names none.
	Alone(number int64) bool
}

// State is the state of a request.
type State int

const (
	// Accepted means that no child has the request yet.
	Accepted State = iota
	// Relayed means that a child answers the request.
	Relayed
	// Settling means that a child answers the request and has asked something.
	// The host is asked once no more questions are expected.
	Settling
	// AwaitingInput means that the host has been asked, by the answer to the
	// request, and has to repeat the request with its input.
	AwaitingInput
	// Answered is AwaitingInput, but the child has answered meanwhile: the host
	// gets that when it repeats the request.
	Answered
	// Ended means that the request is answered, cancelled or expired.
	Ended
)

// Lease is what is held for a request until it ends.
type Lease struct {
	Release func()
	Died    <-chan struct{} // closed when it is of no use any more; nil: never
}

// Request is a request of the host. The caller sets the exported fields before
// Add; they may be read at any time, but for Level and Detached.
type Request[C Child, V any] struct {
	ID      json.RawMessage
	Method  string
	Subject string          // what the request is about: it stays the same when the request is repeated
	Token   json.RawMessage // of its progress; nil: the host wants none
	MayAsk  bool            // the host may be asked by the answer to it
	Level   int             // of the log messages that the host wants; that of the last repetition
	Input   json.RawMessage // what the host answers, by key, before it is asked
	// Detached says that the host does not wait for the answer: it is given at once,
	// also while the request awaits input.
	Detached  bool
	Value     V // the caller's
	state     State
	age       int // the number of the request in its table
	child     C
	number    int64  // of the request at the child
	cancelled bool   // its child need not answer it any more
	reason    string // for that
	lease     Lease
	asked     map[string]question[C] // what the host is to be asked, by key
	filter    json.RawMessage        // of a subscription
	repeated  json.RawMessage        // the ID of the last repetition; nil: there is none
	newToken  json.RawMessage        // the progress token of the last repetition
	key       string                 // that the repetition has to bring; "": the host has not been asked
	lastKey   string                 // the key before: the answer with the new one may be lost
	round     int                    // how often the host has been asked
	answer    []byte                 // of a request that is Answered
}

// question is what a child asks in the course of a request.
type question[C Child] struct {
	child   C
	id      json.RawMessage
	request json.RawMessage
}

// ServerRequest is a request of a child that the host answers by a message of
// its own.
type ServerRequest[C Child] struct {
	Child C
	ID    json.RawMessage // of the child
	Token json.RawMessage // of its progress; nil: the child wants none
	Of    json.RawMessage // the ID of the host's request that it belongs to, set by the table; nil: none
}

// Kind says what an effect is.
type Kind int

const (
	// Stop ends what is done for Request: its context, its turn, its timers.
	Stop Kind = iota
	// Answer sends Message to the host, under ID; nil: ID is not answered any
	// more.
	Answer
	// Release releases Lease.
	Release
	// Settle calls Table.Settle for Request after a delay.
	Settle
	// RequireInput answers ID with the Questions of Request, which has to be
	// repeated with Key; Table.Expire is called with Round after a while.
	RequireInput
	// Resume means that Request does not await input any more.
	Resume
	// Cancel tells Child that Number is cancelled, and why.
	Cancel
	// Reply answers ID of Child with Message.
	Reply
	// Refuse answers ID of Child with Err.
	Refuse
)

// Effect is what a caller does after a method, without its lock.
type Effect[C Child, V any] struct {
	Kind      Kind
	Request   *Request[C, V]
	ID        json.RawMessage
	Message   []byte
	Lease     Lease
	Questions map[string]json.RawMessage
	Key       string
	Round     int
	Child     C
	Number    int64
	Reason    string
	Err       *jsonrpc.Error
}
