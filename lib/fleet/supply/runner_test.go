package supply

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/sibling"
)

// owner notes what a Runner tells.
type owner struct {
	mu   sync.Mutex
	told []string
}

func (o *owner) tell(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.told = append(o.told, what)
}

func (o *owner) Launched(_, before *Chrome, err error) {
	what := "launched"
	if err != nil {
		what = err.Error()
	}
	if before != nil {
		what += " to replace"
	}
	o.tell(what)
}
func (o *owner) Running(*Chrome)      { o.tell("running") }
func (o *owner) Ending(c *Chrome)     { o.tell("ending: " + c.Cause().Error()) }
func (o *owner) Over(c *Chrome) error { o.tell("over"); return c.Cause() }
func (o *owner) Changed()             {}

func (o *owner) has(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.told, want) {
		t.Errorf("it is told %q, not %q", o.told, want)
	}
	o.told = nil
}

// runs is a Runner of a test, whose launches wait for their results.
type runs struct {
	Runner
	*owner
	launches chan options.Options
	results  chan error
	log      bytes.Buffer
}

// withRunner runs a test on a clock of its own.
func withRunner(t *testing.T, do func(t *testing.T, r *runs)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &runs{owner: &owner{}, launches: make(chan options.Options, 10), results: make(chan error, 10)}
		b := found(t)
		r.Runner = Runner{Owner: r.owner, Closed: errors.New("closed"), Overlap: true,
			Spec: Spec{Log: slog.New(slog.NewTextHandler(&r.log, nil))},
			Launch: func(ctx context.Context, o options.Options, _ string) (*sibling.Browser, error) {
				r.launches <- o
				select {
				case err := <-r.results:
					return b, err
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				}
			}}
		do(t, r)
		r.Close()
		n := len(r.launches)
		if _, err := r.Enter(); err == nil || err.Error() != "closed" {
			t.Errorf("after the end: %v", err)
		}
		if err := r.Relaunch(t.Context(), options.Options{}, true); err == nil || err.Error() != "closed" {
			t.Errorf("after the end: %v", err)
		}
		r.Replace()
		r.Begin()
		if len(r.launches) > n {
			t.Error("a browser is launched after the end")
		}
	})
}

// state fails the test if the browser is in another state.
func (r *runs) state(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if s := r.Status(); s.State != want {
		t.Errorf("it is %s, not %s", s.State, want)
	}
}

func TestOneLaunchForAllWhoWait(t *testing.T) {
	t.Parallel()
	withRunner(t, func(t *testing.T, r *runs) {
		r.state(t, Stopped)
		cut := make(chan struct{})
		close(cut)
		c, _ := r.Enter()
		if again, err := r.Enter(); again != c || err != nil || c.Users() != 2 {
			t.Error("two launches", err)
		}
		if err := r.Await(t.Context(), c, cut); err != ErrCutOff {
			t.Error(err)
		}
		r.state(t, Launching)
		r.results <- nil
		if err := r.Await(t.Context(), c, nil); err != nil {
			t.Error(err)
		}
		r.Leave(c)
		r.state(t, Ready)
		r.has(t, "launched", "running")
		r.Stop(t.Context(), false)
		r.state(t, Stopped)
		r.has(t, "ending: it was told to stop", "over")
		if s := r.Status(); s.Exit != ToldToStop || s.Launches != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A launch is cancelled when nobody waits for it any more, unless a command wants it.
func TestUnwantedLaunch(t *testing.T) {
	t.Parallel()
	withRunner(t, func(t *testing.T, r *runs) {
		ctx, cancel := context.WithCancelCause(t.Context())
		impatient := errors.New("impatient")
		cancel(impatient)
		c, _ := r.Enter()
		if err := r.Await(ctx, c, nil); err != impatient {
			t.Error(err)
		}
		<-c.Gone()
		if c.Failed() || c.Err() != ErrCancelled || c.Cause() != Unused {
			t.Error(c.Err(), c.Cause())
		}
		r.has(t, "the launch was cancelled")
		if err := r.Relaunch(ctx, options.Options{}, false); err != impatient {
			t.Error(err)
		}
		r.state(t, Launching)
		r.results <- nil
		r.state(t, Ready)
		r.Begin() // there is one
		if n := len(r.launches); n > 2 {
			t.Error(n, "launches")
		}
	})
}

func TestFailureIsLoggedOnce(t *testing.T) {
	t.Parallel()
	withRunner(t, func(t *testing.T, r *runs) {
		r.results <- &exit.Error{Err: errors.New("no display"), Hint: "open one"}
		r.Begin() // nobody waits, so it is logged
		synctest.Wait()
		s := r.Status()
		s.Current.LogFailure()
		if got := r.log.String(); strings.Count(got, `"no browser: no display" hint="open one"`) != 1 {
			t.Error(got)
		}
		if s.State != Stopped || s.Failure == nil || s.Launches != 0 || !s.Current.Failed() {
			t.Errorf("%+v", s)
		}
		r.has(t, "no display")
		r.results <- nil // it is launched again
		c, _ := r.Enter()
		if err := r.Await(t.Context(), c, nil); err != nil || r.Status().Failure != nil {
			t.Error(err)
		}
		r.Leave(c)
	})
}

// A browser that is replaced serves until the other is ready, and ends then, or drains.
func TestReplace(t *testing.T) {
	t.Parallel()
	for _, drains := range []bool{false, true} {
		withRunner(t, func(t *testing.T, r *runs) {
			r.Drains = drains
			r.Replace() // nothing
			r.results <- nil
			r.Relaunch(t.Context(), options.Options{}, false)
			first := r.Status().Current
			r.Replace()
			r.Replace()
			r.state(t, Ready)
			r.results <- errors.New("no memory")
			synctest.Wait()
			if c := r.Status().Current; c != first || c.IsEnding() {
				t.Error("a replacement that fails ends the browser")
			}
			r.has(t, "launched", "running", "no memory to replace")
			r.Replace()
			r.results <- nil
			r.state(t, Ready)
			if c := r.Status().Current; c == first || first.IsEnding() == drains {
				t.Error("it was not replaced, or ends although it drains, or does not end")
			}
			want := []string{"launched to replace", "running", "ending: it was told to stop", "over"}
			if drains {
				want = want[:2]
			}
			r.owner.mu.Lock()
			slices.Sort(want)
			slices.Sort(r.told)
			r.owner.mu.Unlock()
			r.has(t, want...)
			r.Stop(t.Context(), false)
			if first.IsEnding() == drains {
				t.Error("a browser that drains is stopped")
			}
			if err := r.Stop(t.Context(), true); err != nil || !first.IsEnding() {
				t.Error("it goes on", err)
			}
		})
	}
}

// Other options replace a browser: beside it, unless both would use one profile.
func TestRelaunchWithOtherOptions(t *testing.T) {
	t.Parallel()
	withRunner(t, func(t *testing.T, r *runs) {
		launch := func(o options.Options, force bool, result error) error {
			r.results <- result
			return r.Relaunch(t.Context(), o, force)
		}
		launch(options.Options{Profile: "/a"}, false, nil)
		first := r.Status().Current
		failed := errors.New("no memory")
		if err := launch(options.Options{Profile: "/b"}, false, failed); err != failed || first.IsEnding() {
			t.Error(err, "and the browser is", first.state())
		}
		if o := r.Status().Options; o.Profile != "/a" {
			t.Error("options that do not work stay:", o.Profile)
		}
		launch(options.Options{Profile: "/b"}, false, nil)
		<-first.Gone()
		second := r.Status().Current
		launch(options.Options{WindowSize: "1,1"}, false, nil)
		<-second.Gone()
		third := r.Status().Current
		if r.Relaunch(t.Context(), options.Options{}, false); r.Status().Current != third {
			t.Error("it is replaced by the same")
		}
		if launch(options.Options{}, true, nil); r.Status().Current == third || r.Status().Launches != 4 {
			t.Errorf("%+v", r.Status())
		}
	})
}

// A launch that replaces one that has begun ends that. A request for the same gets it.
func TestRelaunchDuringALaunch(t *testing.T) {
	t.Parallel()
	withRunner(t, func(t *testing.T, r *runs) {
		r.results <- nil
		r.Relaunch(t.Context(), options.Options{}, false)
		errs := make(chan error, 3)
		relaunch := func(size string) {
			go func() { errs <- r.Relaunch(t.Context(), options.Options{WindowSize: size}, false) }()
			synctest.Wait()
		}
		relaunch("1,1")
		relaunch("2,2")
		if err := <-errs; err != ErrCancelled {
			t.Error(err)
		}
		relaunch("2,2")
		r.results <- nil
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Error(err)
		}
		if s := r.Status(); s.Options.WindowSize != "2,2" || s.Launches != 2 {
			t.Errorf("%+v", s)
		}
		// While one is launched, the one that runs ends: the next user waits for the other.
		relaunch("3,3")
		r.Status().Current.End(ToldToStop)
		synctest.Wait()
		c, _ := r.Enter()
		r.results <- nil
		if err := r.Await(t.Context(), c, nil); err != nil || r.Status().Current != c {
			t.Error(err)
		}
		r.Leave(c)
		if err := <-errs; err != nil {
			t.Error(err)
		}
	})
}

// A launch waits until the browser before is gone; so does Stop, as long as it may.
func TestStopIsBounded(t *testing.T) {
	t.Parallel()
	withRunner(t, func(t *testing.T, r *runs) {
		late := make(chan struct{})
		r.results <- nil
		r.Spec.Idle.Timeout = time.Minute
		r.Relaunch(t.Context(), options.Options{}, false)
		c := r.Status().Current
		c.over = func() { <-late }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Stop(ctx, false); err != context.DeadlineExceeded {
			t.Error(err)
		}
		r.state(t, Stopping)
		if s := r.Status(); s.Ending != ToldToStop {
			t.Errorf("%+v", s)
		}
		next, _ := r.Enter()
		synctest.Wait()
		if len(r.launches) != 1 {
			t.Error("two browsers at once")
		}
		close(late)
		r.results <- nil
		if err := r.Await(t.Context(), next, nil); err != nil {
			t.Error(err)
		}
		r.Leave(next)
	})
}

// farm launches a process that stands in for a browser: it ends with code after its standard error says why.
func farm(t *testing.T, script string) *sibling.Browser {
	t.Helper()
	b, err := sibling.Launch(t.Context(), sibling.Spec{
		Argv: []string{"sh", "-c", `echo "{\"v\":1,\"browser\":{\"type\":\"chromium\"},\"instance\":` +
			`{\"pid\":$$,\"port\":1}}"; ` + script},
		Timeout: time.Minute, Grace: time.Second, Stderr: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What ends by itself says why.
func TestEndedByItself(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		"exit 0":                         "it ended by itself",
		"echo 'sh: the GPU' >&2; exit 3": "the GPU",
	} {
		b := farm(t, script)
		c := prepare(Spec{Log: slog.New(slog.DiscardHandler),
			Launch: func(context.Context) (*sibling.Browser, error) { return b, nil }})
		go c.run()
		<-c.Gone()
		if !c.EndedByItself() || c.Cause().Error() != want || c.Type() != "chromium" {
			t.Errorf("%q: %v, %v, %q", script, c.EndedByItself(), c.Cause(), c.Type())
		}
		if c.Context().Err() == nil || c.HasClosed() {
			t.Error("it goes on")
		}
	}
}
