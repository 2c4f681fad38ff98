package takeover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Ask is what a client asks a person to do in the session.
type Ask struct {
	Instructions string
	Until        string // the condition on which the page offers to give back, as text=Welcome; "": none
	Private      bool   // clients see nothing of the page while the person has control
	By           string // who asks; "": the agent
	Since        time.Time
}

// Bounds of asks.
const (
	// MaxAsks is how many a session has in AskInterval.
	MaxAsks     = 6
	AskInterval = time.Hour
	// MaxInstructions is how many bytes the instructions of one have.
	MaxInstructions = 2 << 10
)

// Asks are those of a session, one at a time. The zero value is none.
type Asks struct {
	Open *Ask // nil: none
	last []time.Time
}

// Begin opens an ask.
func (a *Asks) Begin(ask Ask) error {
	if a.Open != nil {
		return errors.New("a person has been asked already, and has not answered: one ask at a time")
	}
	if n := len(a.last); n >= MaxAsks {
		if next := a.last[n-MaxAsks].Add(AskInterval); next.After(ask.Since) {
			return fmt.Errorf("a person has been asked %d times within %v: the next ask is possible at %s", MaxAsks,
				AskInterval, next.Format("15:04"))
		}
		a.last = a.last[n-MaxAsks+1:]
	}
	a.last = append(a.last, ask.Since)
	a.Open = &ask
	return nil
}

// End closes an ask, and reports whether it was open.
func (a *Asks) End(ask *Ask) bool {
	if a.Open == nil || a.Open != ask {
		return false
	}
	a.Open = nil
	return true
}

// conditions are the kinds of those on which the page offers to give back.
var conditions = []string{"url", "text", "selector", "cookie"}

// CheckCondition returns an error for a condition that is none; "" is one that never holds.
func CheckCondition(condition string) error {
	kind, value, ok := strings.Cut(condition, "=")
	switch {
	case condition == "":
		return nil
	case !ok || value == "" || !slices.Contains(conditions, kind):
		return fmt.Errorf("%q is none of url=GLOB, text=TEXT, selector=CSS and cookie=NAME", condition)
	case len(condition) > MaxInstructions:
		return fmt.Errorf("the condition has more than %d bytes", MaxInstructions)
	}
	return nil
}
