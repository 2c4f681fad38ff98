// Package policy checks the commands of a CDP client that shares Chrome with
// others: which commands Chrome may see, in which form, and how the others are
// answered. It contains rules only: it does no I/O, takes no lock and keeps no
// state; package virtual applies the rules.
//
// The rules fail closed. A command is decoded as Chrome decodes it, or refused
// (Parse). Its method is looked up in one table (table.go): domains that only
// the page itself serves pass as a whole, domains that the browser serves are
// listed method by method, and everything else is refused. Some parameters are
// checked, too (params.go).
package policy

import "strings"

// Action says what happens to a command.
type Action int

const (
	// Refuse answers with NotAllowed.
	Refuse Action = iota
	// Pass forwards the command unchanged.
	Pass
	// Context sets browserContextId to the session's base context where it is
	// missing; a given one must be owned.
	Context
	// Own forwards the command if every target, session, context, window,
	// download or stream that it names is owned.
	Own
	// Filter forwards the command and removes what the session does not own from
	// the answer.
	Filter
	// Answer answers without Chrome.
	Answer
	// Fan keeps the setting for the session and sends it to each of its pages,
	// now and later.
	Fan
	// Missing answers as Chrome does for a method that the target does not have.
	Missing
	// Optional is Refuse, except on pages of the session of the browser's user.
	Optional
)

// Effects are what a command does besides, which a line of the table adds to its Action.
const (
	NoUse     Action = 1 << (iota + 8) // it keeps no session alive
	Uploads                            // it names files, in its member files
	Crashes                            // the target is gone before Chrome says so
	Navigates                          // its page must have been set up
	Pauses                             // requests wait for the client: all storage is filled before
	Resumes                            // the target stays paused until all clients have set it up
	Clips                              // it may end what another client emulates
	Casts                              // it begins or ends a screencast
	Recalls                            // Chrome tells of the time before, which nothing makes it forget

	effects = ^(NoUse - 1)
)

func (a Action) String() string {
	return [...]string{"refuse", "pass", "context", "own", "filter", "answer", "fan", "missing", "optional"}[a]
}

// Rule is the table's rule for one method on one kind of CDP session.
type Rule struct {
	Action  Action
	effects Action
	Why     string // the reason; "": obvious
}

// Has reports whether a command has an effect.
func (r Rule) Has(effect Action) bool { return r.effects&effect != 0 }

// Refusal returns the answer to a command that is not forwarded: Chrome's own
// for a method that the target does not have, NotAllowed for all others.
func (r Rule) Refusal(method string) *Error {
	if r.Action == Missing {
		return NoMethod(method)
	}
	return NotAllowed()
}

// Lookup returns the rule for a method: on a session with a page, frame, tab or
// worker if page is true, else on the root, which is a connection's own session
// or a session with the browser target.
func Lookup(method string, page bool) Rule {
	l, ok := methods[method]
	if !ok {
		domain, _, dot := strings.Cut(method, ".")
		if !dot {
			return Rule{Action: Missing}
		}
		if l, ok = methods[domain+".*"]; !ok {
			return Rule{Action: Refuse, Why: "a domain that the table lacks"}
		}
	}
	a := l.root
	if page {
		a = l.page
	}
	return Rule{a &^ effects, a & effects, l.why}
}

// methods are the lines of the table by their method, or "Domain.*".
var methods = func() map[string]tableLine {
	all := make(map[string]tableLine, len(table))
	for _, l := range table {
		all[l.method] = l
	}
	return all
}()

// isInspected reports whether a rule inspects the params of a method.
func isInspected(method string) bool {
	if _, ok := rules[method]; ok {
		return true
	}
	looks := func(a Action) bool { return a != Pass && a != Refuse && a != Missing }
	return looks(Lookup(method, false).Action) || looks(Lookup(method, true).Action)
}
