// Package proc knows processes by identity, not by number alone: it tells
// whether one still lives, waits for its end, and ends what it left.
package proc

import (
	"context"
	"errors"
	"os"
	"time"
)

// Identity names one process for good: a number that the system hands out
// again belongs to another start time.
type Identity struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // Linux: clock ticks since boot; elsewhere microseconds since 1970
	Boot  string `json:"boot"`  // the boot, and on Linux the PID namespace, that the number is of
}

// ErrGone says that there is no such process.
var ErrGone = errors.New("no such process")

// Of returns the identity of a running process, ErrGone if it has ended (a
// zombie has). Any other error tells nothing of the process.
func Of(pid int) (Identity, error) {
	if pid <= 0 {
		return Identity{}, ErrGone
	}
	start, err := startOf(pid)
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, Start: start, Boot: Boot()}, nil
}

// Self returns the identity of this process.
func Self() Identity {
	id, err := Of(os.Getpid())
	if err != nil {
		return Identity{PID: os.Getpid(), Boot: Boot()}
	}
	return id
}

// Alive reports whether the process lives. One of another PID namespace of
// this boot can't be judged by its number and counts as alive: who wants to
// know better holds a file lock.
func (id Identity) Alive() bool {
	if id.PID <= 0 {
		return false
	}
	if id.Boot != Boot() {
		return sameBoot(id.Boot)
	}
	now, err := Of(id.PID)
	if err != nil { // out of descriptors, say: which does not show that it has ended
		return !errors.Is(err, ErrGone)
	}
	return now.Start == id.Start
}

// Local reports whether the identity is of this boot and PID namespace, so
// that its number means here what it meant where it was written.
func (id Identity) Local() bool { return id.Boot == Boot() }

// Wait returns when the process has ended, or with the context's error. The
// end of one of another PID namespace can't be seen from here: it counts as
// alive until the boot's end.
func (id Identity) Wait(ctx context.Context) error {
	if !id.Alive() {
		return nil
	}
	if !id.Local() {
		<-ctx.Done()
		return ctx.Err()
	}
	return wait(ctx, id)
}

// poll waits where the system can't tell of a process's end.
func poll(ctx context.Context, id Identity) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for id.Alive() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Ancestor is a process above another one.
type Ancestor struct {
	Identity
	Program string   // the file name of its executable; "": it is another user's
	Title   string   // what it calls itself, at most 15 bytes: a script has its own name, npx "npm exec"
	Leader  bool     // of the session of its terminal
	Args    []string // its command line, if it is a leader
}

// maxAncestors bounds a chain that changes while it is read.
const maxAncestors = 256
