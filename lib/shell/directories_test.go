package shell

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

// Calls in one directory run together, those in others wait, in their order.
func TestDirectories(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d directories
		var ran []string
		enter := func(ctx context.Context, name, dir string) {
			go func() {
				if d.enter(ctx, dir) == nil {
					ran = append(ran, name)
				}
			}()
			synctest.Wait()
		}
		cancelled, cancel := context.WithCancel(t.Context())
		enter(t.Context(), "1", "/a")
		enter(t.Context(), "2", "/a")
		enter(cancelled, "3", "/b")
		enter(t.Context(), "4", "/b")
		enter(t.Context(), "5", "/a")
		cancel()
		for _, want := range []string{"1 2", "1 2", "1 2 4", "1 2 4 5"} {
			synctest.Wait()
			if got := strings.Join(ran, " "); got != want {
				t.Errorf("%s have run, want %s", got, want)
			}
			d.leave()
		}
		synctest.Wait()
		if d.running != 0 || d.now() != "/a" {
			t.Errorf("%d run in %s", d.running, d.now())
		}
	})
}
