package front

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, busy := 0, false
		p := &presence{grace: 3 * time.Second, lost: func() bool {
			lost++
			return busy
		}}
		says := func(what string, after time.Duration, want int) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if lost != want {
				t.Errorf("%s: it was taken for gone %d times, want %d", what, lost, want)
			}
			lost = 0
		}
		p.begin()
		p.begin()
		p.end(true)
		says("one of two connections is cut", time.Minute, 0)
		p.end(false)
		says("and the other one, of a request", time.Minute, 1)
		p.begin()
		p.end(false)
		says("a request is cut", time.Minute, 0)
		p.begin()
		p.end(true)
		says("the last one is cut", 2*time.Second, 0)
		p.seen()
		says("it has come back", time.Minute, 0)
		p.begin()
		p.end(true)
		time.Sleep(time.Second)
		p.begin()
		says("it has connected again", time.Minute, 0)
		p.end(true)
		says("it does not come back", time.Minute, 1)
		busy = true
		p.begin()
		p.end(true)
		says("its calls go on", 7*time.Second, 2)
		p.seen()
		says("it has come back then", time.Minute, 0)
		p.begin()
		p.end(true)
		p.close()
		says("its session has ended", time.Minute, 0)
	})
}
