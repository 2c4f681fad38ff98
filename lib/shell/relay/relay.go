// Package relay runs a command line of bmcp call in the service that has its session, where all is loaded already.
//
// The service has what it needs to run the command as the caller would: it is this user's, and has the caller's
// environment, umask and view of the system (see Around). So the program that was started has to do very little: it
// sends its arguments and prints what comes back. It does so before main, while Go initialises the packages: Go
// initialises them in the order of their paths, each after those that it imports, so that this package, which imports
// few, comes before the libraries that only servers need. They are most of what a start costs.
//
// Whatever is not plain (a terminal, standard input, no service, another version of it, a session elsewhere, a wrong
// option, a help text) is left to main, which begins anew: nothing has been done then.
package relay

import "os"

// Method is the method of the control socket that runs a command line; errors of it mean that nothing has been done.
const Method = "run"

// Request is a command line.
type Request struct {
	// Program is the caller's executable, which the service is of, too.
	Program string   `json:"program"`
	Args    []string `json:"args"` // after "call"
	Dir     string   `json:"dir"`
	Environ []string `json:"environ"`
}

// Answer is what a command line has printed, and its exit code.
type Answer struct {
	Code int    `json:"code"`
	Out  []byte `json:"out"`
	Err  []byte `json:"err"`
}

// Print prints the answer: notes before a result, and why there is none after it. Its error is that of standard output.
func (a *Answer) Print() (err error) {
	first, second := os.Stderr, os.Stdout
	b, c := a.Err, a.Out
	if a.Code != 0 {
		first, second, b, c = second, first, c, b
	}
	for _, part := range []struct {
		to   *os.File
		text []byte
	}{{first, b}, {second, c}} {
		if len(part.text) == 0 {
			continue
		}
		if _, failed := part.to.Write(part.text); part.to == os.Stdout {
			err = failed
		}
	}
	return err
}

// Pending is a command line that a service runs and that it has not answered yet.
type Pending struct {
	Conn *os.File // the connection
	Read []byte   // what has come on it since the last whole line
	// Begun says that the service has read the request.
	Begun bool
}

// pending is the one of this process.
var pending *Pending

// Take returns the command line that was handed over and is not answered, once; nil: there is none.
func Take() *Pending {
	p := pending
	pending = nil
	return p
}
