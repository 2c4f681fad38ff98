// Package takeover says who has control of a session, and which commands of its clients wait meanwhile. It takes no
// lock, reads no clock and does no I/O: package virtual applies it.
package takeover

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of control and of what waits for its end.
const (
	// Lost is how long a person whose connection has ended keeps control.
	Lost = 30 * time.Second
	// Quiet is how long a person without any input keeps it.
	Quiet = 15 * time.Minute
	// Patience is how long a command waits. Clients give up theirs after 5 seconds or later, and CDP cannot cancel
	// one: it must not be done once its client has been told that it failed.
	Patience = 4 * time.Second
	// MaxWaiting is how many commands of a client wait.
	MaxWaiting = 1000
)

// Hold is who has control of a session. The zero value is that nobody has.
type Hold struct {
	Holder  string    // "": nobody
	Since   time.Time // when it was taken
	Scripts bool      // those of clients go on
	Private bool      // clients and other persons see nothing of the pages

	used time.Time // the last input of the holder
	lost time.Time // when the holder's connection ended; zero: it has one
}

// Take gives a person control, or again after a lost connection. Its error is that another person has it.
func (h *Hold) Take(holder string, scripts, private bool, now time.Time) error {
	if h.Holder != "" && h.Holder != holder {
		return fmt.Errorf("another person has control of this session since %s", h.Since.Format("15:04"))
	}
	if h.Holder == "" {
		h.Holder, h.Since = holder, now
	}
	h.Scripts, h.Private, h.used, h.lost = scripts, private, now, time.Time{}
	return nil
}

// Use notes an input of the holder.
func (h *Hold) Use(now time.Time) { h.used = now }

// Lose notes that the connection of a person has ended.
func (h *Hold) Lose(holder string, now time.Time) {
	if holder == h.Holder && h.Holder != "" {
		h.lost = now
	}
}

// Give ends the control of a person, and reports whether it had it.
func (h *Hold) Give(holder string) bool {
	if holder == "" || holder != h.Holder {
		return false
	}
	*h = Hold{}
	return true
}

// Ends returns when control ends by itself if nothing else happens; zero: nobody has it.
func (h *Hold) Ends() time.Time {
	if h.Holder == "" {
		return time.Time{}
	}
	end := h.used.Add(Quiet)
	if lost := h.lost.Add(Lost); !h.lost.IsZero() && lost.Before(end) {
		return lost
	}
	return end
}

// Over ends control that has ended by itself, and reports whether it has.
func (h *Hold) Over(now time.Time) bool {
	if h.Holder == "" || now.Before(h.Ends()) {
		return false
	}
	*h = Hold{}
	return true
}

// Refusal returns the error of a command that has waited for the end of control.
func (h *Hold) Refusal() error {
	return fmt.Errorf("%s; nothing was done", h.said())
}

// Withheld returns the error of a command whose answer would tell what the person does.
func (h *Hold) Withheld() error { return fmt.Errorf("%s; the answer is withheld", h.said()) }

// said says who has control.
func (h *Hold) said() string {
	how := ""
	if h.Private {
		how = ", in private"
	}
	return fmt.Sprintf("a person has control of this session since %s%s", h.Since.Format("15:04"), how)
}

// ErrTooMany is the error of a command that has no room to wait.
var ErrTooMany = errors.New("a person has control of this session, and too many commands wait already; " +
	"nothing was done")

// Queue is the commands of one client that wait, in their order. The zero value is empty.
type Queue[C any] struct {
	all []waiting[C]
}

type waiting[C any] struct {
	session string // of CDP
	until   time.Time
	command C
}

// IsEmpty reports whether no command waits.
func (q *Queue[C]) IsEmpty() bool { return len(q.all) == 0 }

// Blocks reports whether a command of a CDP session waits because one before it does: a client sees the commands of a
// CDP session done in its order.
func (q *Queue[C]) Blocks(session string) bool {
	for i := range q.all {
		if q.all[i].session == session {
			return true
		}
	}
	return false
}

// Add makes a command of a CDP session wait.
func (q *Queue[C]) Add(session string, command C, now time.Time) error {
	if len(q.all) >= MaxWaiting {
		return ErrTooMany
	}
	q.all = append(q.all, waiting[C]{session, now.Add(Patience), command})
	return nil
}

// Due returns when the first of those that wait is late; zero: none waits.
func (q *Queue[C]) Due() time.Time {
	if len(q.all) == 0 {
		return time.Time{}
	}
	return q.all[0].until
}

// Late takes out the first command if it has waited for too long.
func (q *Queue[C]) Late(now time.Time) (command C, ok bool) {
	if len(q.all) == 0 || now.Before(q.all[0].until) {
		return command, false
	}
	return q.Next()
}

// Next takes out the first command.
func (q *Queue[C]) Next() (command C, ok bool) {
	if len(q.all) == 0 {
		return command, false
	}
	command = q.all[0].command
	q.all = q.all[1:]
	return command, true
}
