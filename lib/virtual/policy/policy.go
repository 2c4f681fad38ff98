// Package policy judges the commands of a CDP client that shares Chrome with
// others: which of them Chrome may see, in which form, and what the others are
// answered. It holds rules only: it does no I/O, takes no lock and keeps no
// state; package virtual does what the rules say.
//
// The rules fail closed. A command is decoded as Chrome decodes it or refused
// (Parse). Its method is looked up in one table (table.go): what only a page's
// own agents serve passes by domain, what the browser serves is listed method
// by method, and anything else is refused. Some parameters are judged, too
// (params.go).
package policy

import "strings"

// Action is what is done with a command.
type Action int

const (
	// Refuse answers with NotAllowed.
	Refuse Action = iota
	// Pass forwards the command as it came.
	Pass
	// Context sets browserContextId to the session's base context where it is
	// missing; a given one must be owned.
	Context
	// Own forwards the command if every target, session, context, window,
	// download or stream that it names is owned.
	Own
	// Filter forwards the command and removes what is not owned from the answer.
	Filter
	// Answer answers without Chrome.
	Answer
	// Fan keeps the setting for the session and sends it to each of its pages,
	// now and later.
	Fan
	// Missing answers as Chrome does for a method that the target has not.
	Missing
	// Optional is Refuse, but on pages of the session of the browser's user.
	Optional
)

func (a Action) String() string {
	return [...]string{"refuse", "pass", "context", "own", "filter", "answer", "fan", "missing", "optional"}[a]
}

// Rule is what the table says of a method on one kind of CDP session.
type Rule struct {
	Action Action
	Why    string // "": it is obvious
}

// Refusal is the answer to a command that is not forwarded: Chrome's own for a
// method that the target has not, NotAllowed for any other.
func (r Rule) Refusal(method string) *Error {
	if r.Action == Missing {
		return NoMethod(method)
	}
	return NotAllowed()
}

// Lookup returns the rule for a method, on a session to a page, frame, tab or
// worker, or else on the root: a connection's own session, and every session
// to the browser target.
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
	if page {
		return Rule{l.page, l.why}
	}
	return Rule{l.root, l.why}
}

// methods are the table's lines by their method, or "Domain.*".
var methods = func() map[string]tableLine {
	all := make(map[string]tableLine, len(table))
	for _, l := range table {
		all[l.method] = l
	}
	return all
}()

// isInspected tells whether anybody looks at the params of a method.
func isInspected(method string) bool {
	if _, ok := rules[method]; ok {
		return true
	}
	looks := func(a Action) bool { return a != Pass && a != Refuse && a != Missing }
	return looks(Lookup(method, false).Action) || looks(Lookup(method, true).Action)
}
