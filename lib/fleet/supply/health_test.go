package supply

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/liveness"
	"btools/lib/record"
	"btools/lib/sibling"
)

// asked runs a browser whose health is checked each minute, with these answers in turn; the last one is repeated.
func asked(t *testing.T, change func(*Spec), answers ...error) (
	c *Chrome, checked *atomic.Int32, log *strings.Builder,
) {
	t.Helper()
	log, checked = &strings.Builder{}, &atomic.Int32{}
	s := spec(t)
	s.Log = slog.New(slog.NewTextHandler(log, nil))
	n := 0
	s.Health = Health{Interval: time.Minute, Timeout: time.Second, Checked: func(*Chrome) { checked.Add(1) },
		ping: func(context.Context, time.Duration) error {
			n = min(n+1, len(answers))
			return answers[n-1]
		}}
	if change != nil {
		change(&s)
	}
	c = prepare(s)
	go c.run()
	<-c.Ready()
	return c, checked, log
}

func TestHealth(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	foreign := func(s *Spec) { s.Foreign = true }
	for name, c := range map[string]struct {
		change  func(*Spec)
		answers []error
		hangs   bool
		checked int32  // in ten minutes and a half
		err     string // of the last check
		log     int    // lines
	}{
		"well":                    {nil, []error{nil}, false, 11, "", 0},
		"late once":               {nil, []error{nil, refused, nil}, false, 11, "", 0},
		"hung":                    {nil, []error{nil, refused}, true, 2, "refused", 1},
		"foreign":                 {foreign, []error{nil, refused}, false, 2, "refused", 1},
		"foreign, well again":     {foreign, []error{refused, refused, nil}, false, 10, "", 1},
		"it cannot be asked":      {nil, []error{liveness.ErrNotChecked}, false, 11, "", 10},
		"nothing is connected":    {nil, []error{ErrNotAsked}, false, 1, "", 0},
		"its health is its own":   {func(s *Spec) { s.Health = Health{} }, []error{refused}, false, 0, "", 0},
		"nobody wants the result": {func(s *Spec) { s.Health.Checked = nil }, []error{nil}, false, 0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, checked, log := asked(t, c.change, c.answers...)
				time.Sleep(10*time.Minute + 30*time.Second)
				synctest.Wait()
				hung, hangs := errors.AsType[*HangError](b.Cause())
				if hangs != c.hangs ||
					hangs && (hung.Unwrap() != refused || hung.Error() != "it did not answer: refused") {
					t.Errorf("its end: %v", b.Cause())
				}
				b.End(ToldToStop)
				<-b.Gone()
				if _, err := b.LastCheck(); err != c.err {
					t.Errorf("the last check: %q", err)
				}
				if n := strings.Count(log.String(), "\n"); checked.Load() != c.checked || n != c.log {
					t.Errorf("%d are well, the log has %d lines: %s", checked.Load(), n, log)
				}
			})
		})
	}
}

// A person's browser that leaves fails a check first.
func TestHealthOfOneThatLeaves(t *testing.T) {
	t.Parallel()
	for _, leaves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c, _, _ := asked(t, func(s *Spec) {
				b := found(t)
				b.Instance.Source = record.FromExtension
				s.Launch = func(context.Context) (*sibling.Browser, error) { return b, nil }
				s.Grace = 2 * time.Second
			}, errors.New("gone"))
			time.Sleep(time.Minute + 1500*time.Millisecond) // the second answer has failed
			synctest.Wait()
			if c.IsEnding() {
				t.Fatal("it has no time to leave")
			}
			if leaves {
				c.End(Unused) // stands for its end
			}
			<-c.Gone()
			if _, hangs := errors.AsType[*HangError](c.Cause()); hangs == leaves {
				t.Error(c.Cause())
			}
		})
	}
}
