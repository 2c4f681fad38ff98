package fleet

import (
	"testing"
	"time"
)

// What has changed is looked for soon while a session is used, else rarely, and
// for no more than a tenth of the time, unless that would be much later.
func TestLookIsDue(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	for _, c := range []struct {
		last      looks
		used, now int
		want      bool
	}{
		{looks{}, -5, 0, true},
		{looks{at(0), at(0)}, 1, 2, true},
		{looks{at(0), at(0)}, -1, 2, false},
		{looks{at(0), at(0)}, -1, 30, true},
		{looks{at(0), at(2)}, 5, 21, false},
		{looks{at(0), at(2)}, 5, 22, true},
		{looks{at(0), at(4)}, 5, 33, false},
		{looks{at(0), at(4)}, 5, 34, true},
	} {
		if got := c.last.isDue(at(c.used), at(c.now)); got != c.want {
			t.Errorf("%+v: %v, want %v", c, got, c.want)
		}
	}
}
