package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"btools/lib/exit"
)

// reasons are what browsers print before they give up, and what to do.
var reasons = []struct {
	says []string // one of them
	code int
	text string
	hint string
}{
	{[]string{"Missing X server or $DISPLAY", "cannot open display", "no DISPLAY environment variable",
		"Unable to open X display"},
		exit.Unavailable, "there is no display to open a window on",
		"leave out --no-headless, or run under a display (xvfb-run)"},
	{[]string{"Running as root without --no-sandbox", "No usable sandbox", "Failed to move to new namespace",
		"setuid sandbox", "sandbox_host_linux", "zygote_host_impl_linux"},
		exit.Failed, "its sandbox cannot be set up here", "--sandbox off runs it without"},
	{[]string{"error while loading shared libraries"},
		exit.Unavailable, "a library that it needs is missing", "install the browser's dependencies"},
	{[]string{"No space left on device", "ENOSPC"},
		exit.Failed, "the disk is full", ""},
	{[]string{"Out of memory", "out of memory", "Cannot allocate memory"},
		exit.Failed, "there is not enough memory",
		"ulimit -v and a container's limit count what a browser only reserves, too"},
	{[]string{"Failed To Create Data Directory", "Cannot create profile", "Your Firefox profile cannot be loaded"},
		exit.Failed, "its profile directory cannot be used", ""},
}

var inUse = []string{"Failed to create a ProcessSingleton", "profile appears to be in use",
	"Firefox is already running"}

func containsAny(s string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}

// explain tells why a launch failed, from what the browser did and printed.
func (s *Supervisor) explain(ctx context.Context, err error, profile string) error {
	var known *exit.Error
	switch {
	case errors.As(err, &known):
		return err
	case ctx.Err() != nil: // told to stop in the middle
		return context.Cause(ctx)
	}
	<-s.logEnd()
	name, text := filepath.Base(s.Spec.Browser.Path), s.log.tail.String()
	_, _, ended := s.child.ending()
	if errors.Is(err, errNoServer) {
		return s.portTaken("the browser could not listen on it")
	}
	if errors.Is(err, errExited) && containsAny(text, inUse) {
		host, pid := "", 0
		if to, err := os.Readlink(filepath.Join(profile, "SingletonLock")); err == nil {
			if i := strings.LastIndexByte(to, '-'); i > 0 {
				host = to[:i]
				pid, _ = strconv.Atoi(to[i+1:])
			}
		}
		return profileInUse(profile, holder{PID: pid, Host: host})
	}
	what := fmt.Sprintf("%s %s before its endpoint answered", name, ended)
	switch {
	case errors.Is(err, errTimeout):
		what = fmt.Sprintf("%s has no endpoint after %v", name, s.Spec.Timeout)
	case !errors.Is(err, errExited):
		what = fmt.Sprintf("%s %v", name, err)
	}
	e := &exit.Error{Code: exit.Failed}
	if _, sig, _ := s.child.ending(); errors.Is(err, errExited) && sig != 0 {
		e.Hint = "too little memory is a common reason: see ulimit -v, and a container's limit"
	} else if errors.Is(err, errExited) && s.Spec.Browser.Source == "flag" {
		e.Hint = "is " + s.Spec.Browser.Path + " a browser? bfind lists those that are installed"
	}
	if errors.Is(err, errTimeout) {
		e.Code, e.Hint = exit.TryAgain, "a slow machine may need a longer --timeout"
	} else {
		for _, r := range reasons {
			if containsAny(text, r.says) {
				e.Code, e.Hint, what = r.code, r.hint, what+": "+r.text
				break
			}
		}
	}
	if lines := s.log.last(5); len(lines) > 0 {
		what += "; its last words:\n\t" + strings.Join(lines, "\n\t")
	}
	e.Err = errors.New("cannot launch: " + what)
	return e
}

// logEnd is closed when the log has been read to its end: all that could
// write to it is gone.
func (s *Supervisor) logEnd() <-chan struct{} {
	select {
	case <-s.child.gone:
		return s.log.done
	default: // something does not die and holds it open
		done := make(chan struct{})
		close(done)
		return done
	}
}
