package liveness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestBound(t *testing.T) {
	for _, c := range []struct {
		load Pressure
		want time.Duration
	}{
		{Pressure{}, 5 * time.Second}, // or the system does not tell
		{Pressure{CPU: 25, Memory: 5}, 5 * time.Second},
		{Pressure{CPU: 62.5}, 27500 * time.Millisecond},
		{Pressure{CPU: 100}, 50 * time.Second},
		{Pressure{Memory: 27.5}, 27500 * time.Millisecond},
		{Pressure{CPU: 62.5, Memory: 50}, 50 * time.Second},
		{Pressure{Memory: 100}, 50 * time.Second},
	} {
		if got := Bound(5*time.Second, c.load); got != c.want {
			t.Errorf("under %+v: %v, want %v", c.load, got, c.want)
		}
	}
}

// A process hangs if it fails twice in a row. How long that takes depends on the
// machine's pressure.
func TestCheck(t *testing.T) {
	const timeout = 5 * time.Second
	var (
		refused    = errors.New("refused")
		late       = errors.New("late")
		notChecked = fmt.Errorf("%w: no descriptor", ErrNotChecked)
		quiet      = Pressure{}
		full       = Pressure{CPU: 100}
	)
	for name, c := range map[string]struct {
		answers []error // late: it answers after longer than it may take
		load    []Pressure
		want    error
		after   time.Duration
	}{
		"it answers":                       {[]error{nil}, []Pressure{quiet}, nil, 0},
		"it fails once":                    {[]error{refused, nil}, []Pressure{quiet, quiet}, nil, timeout},
		"it is late once":                  {[]error{late, nil}, []Pressure{quiet, quiet}, nil, timeout},
		"it is dead":                       {[]error{refused, refused}, []Pressure{quiet, quiet}, refused, timeout},
		"it hangs on a quiet machine":      {[]error{late, late}, []Pressure{quiet, quiet}, late, 2 * timeout},
		"it is slow as the load begins":    {[]error{late, nil}, []Pressure{quiet, full}, nil, timeout},
		"it hangs on an overloaded one":    {[]error{late, late}, []Pressure{full, full}, late, Longest(timeout)},
		"it hangs as the load ends":        {[]error{late, late}, []Pressure{full, quiet}, late, 11 * timeout},
		"it cannot be asked":               {[]error{notChecked}, []Pressure{quiet}, notChecked, 0},
		"it cannot be asked the next time": {[]error{late, notChecked}, []Pressure{quiet, quiet}, notChecked, timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				load := func() Pressure { return c.load[n] }
				began := time.Now()
				err := Check(t.Context(), timeout, load, func(_ context.Context, within time.Duration) error {
					answer := c.answers[n]
					n++
					if answer == late {
						time.Sleep(within)
					}
					return answer
				})
				if took := time.Since(began); err != c.want || took != c.after || n != len(c.answers) {
					t.Errorf("%v after %v and %d asks, want %v after %v and %d", err, took, n, c.want, c.after,
						len(c.answers))
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		Check(ctx, timeout, Load, func(context.Context, time.Duration) error { return refused })
		if took := time.Since(began); took != time.Second {
			t.Errorf("a check that is ended after 1s takes %v", took)
		}
	})
}

func TestParse(t *testing.T) {
	const full = "full avg10=1.00 avg60=0.00 avg300=0.00 total=0\n"
	for file, want := range map[string]float64{
		"some avg10=79.51 avg60=87.81 avg300=79.67 total=1\n" + full: 79.51,
		full: 0, "": 0, "some": 0, "some avg10=x": 0, "some avg10=NaN": 0, "some avg10=-1": 0, "some avg10=1e9": 0,
	} {
		if got := parse(file); got != want {
			t.Errorf("%q: %v, want %v", file, got, want)
		}
	}
}
