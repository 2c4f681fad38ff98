// Package bus carries messages between hosts and gateways on NATS: their subjects, their JSON, the connection with its
// keys, and hosts as micro services. No other package names NATS. Who gets a lease is not decided here, and no lease
// depends on a message.
package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// MaxSize is the greatest size of a message, in bytes. Larger ones are dropped.
const MaxSize = 8 << 10

// Errors of requests.
var (
	// ErrNobody means that nobody listens to a subject; it is known at once.
	ErrNobody = errors.New("nobody answers")
	// ErrLate means that there was no answer in time.
	ErrLate = errors.New("there is no answer")
	// ErrRefused means that the user of the connection may not do so.
	ErrRefused = errors.New("no right")
	// ErrDown means that there is no connection to a server.
	ErrDown = errors.New("no NATS server is connected")
)

// Bus is a connection.
type Bus interface {
	// Request sends a message to one of those who listen, and reads its answer into a value. The context bounds it.
	Request(ctx context.Context, subject string, body, answer any) error
	// Publish sends a message to all who listen.
	Publish(subject string, body any) error
	// Subscribe calls serve with each message to a subject, one at a time, or in a group with those that the server
	// has chosen for this member. Stop it with the function.
	Subscribe(subject, group string, serve func(*Message)) (stop func(), err error)
}

// Message is a message that has arrived.
type Message struct {
	Subject string
	Data    []byte
	Answer  func(body any) // answers a request
}

// Read reads the JSON of a message. Unknown members are ignored: later versions add some.
func (m *Message) Read(into any) error {
	if len(m.Data) > MaxSize {
		return fmt.Errorf("it has %d bytes, more than %d", len(m.Data), MaxSize)
	}
	return json.Unmarshal(m.Data, into)
}

// Tokens returns the parts of a message's subject.
func (m *Message) Tokens() []string { return strings.Split(m.Subject, ".") }

// Ask asks one host with room for a slot.
type Ask struct {
	Want string   `json:"want"`
	Pool string   `json:"pool"`
	Not  []string `json:"not,omitempty"` // hosts that must not offer one
}

// Want asks for a place in the queue of a host.
type Want struct {
	Want    string `json:"want"`
	Pool    string `json:"pool,omitempty"` // of one host; else the subject has it
	Age     int64  `json:"age_ms"`         // of the request
	Timeout int64  `json:"timeout_ms"`     // from now
}

// Placed answers a want.
type Placed struct {
	Host   string `json:"host"`
	Before int    `json:"before"` // requests that are older
}

// Offer is a slot that a host has reserved.
type Offer struct {
	ID   string `json:"offer,omitempty"`
	Pool string `json:"pool,omitempty"`
	Want string `json:"want,omitempty"` // "": of anyone
	URL  string `json:"url,omitempty"`  // of the host's HTTPS
	Host string `json:"host,omitempty"`
	Boot string `json:"boot,omitempty"` // ID of the host's process
	Code string `json:"code,omitempty"` // None in place of an offer
}

// None is the code of an answer without an offer.
const None = "none"

// Answer answers an offer.
type Answer struct {
	Yes  bool   `json:"yes"`
	By   string `json:"by,omitempty"`   // the gateway
	Left *int   `json:"left,omitempty"` // requests that the gateway has for the pool
}

// Cancel gives places up, and offers that answered an ask.
type Cancel struct {
	Wants  []string `json:"wants,omitempty"`
	Offers []string `json:"offers,omitempty"`
}

// PoolLoad is how busy a pool of a host is.
type PoolLoad struct {
	Name    string `json:"name"`
	Total   int    `json:"total"`
	Free    int    `json:"free"`
	Waiting int    `json:"waiting"`
}

// Load is how busy a host is.
type Load struct {
	N        uint64     `json:"n"` // grows with each message of a process
	Boot     string     `json:"boot"`
	Host     string     `json:"host"`
	Region   string     `json:"region"`
	Version  string     `json:"version"`
	URL      string     `json:"url"`
	Draining bool       `json:"draining,omitempty"`
	Gone     bool       `json:"gone,omitempty"` // it grants no leases any more
	Pools    []PoolLoad `json:"pools"`
}

// Drain asks a host to grant no more leases.
type Drain struct {
	Pool   string `json:"pool,omitempty"` // "": all
	Off    bool   `json:"off,omitempty"`
	Move   bool   `json:"move,omitempty"`      // leases move to other hosts
	Within int64  `json:"within_ms,omitempty"` // time until those move that are in use; 0: they do not
	Look   bool   `json:"look,omitempty"`      // nothing is to change
}

// Drained answers it.
type Drained struct {
	OK     bool   `json:"ok"`
	Error  string `json:"error,omitempty"`
	Leases int    `json:"leases"`         // that the host has
	Left   string `json:"left,omitempty"` // says which, and why they have not moved
}
