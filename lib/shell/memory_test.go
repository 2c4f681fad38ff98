package shell

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/proc"
)

// What a session has lost is told to the next one within an hour, and then forgotten.
func TestMemory(t *testing.T) {
	path := t.TempDir() + "/calls.json"
	synctest.Test(t, func(t *testing.T) {
		m := memory{path: path, self: place{proc.Self(), "/self"}}
		keys := func(f func(map[string]noted)) (all []string) {
			t.Helper()
			err := m.change(t.Context(), func(n map[string]noted) {
				if f != nil {
					f(n)
				}
				all = slices.Sorted(maps.Keys(n))
			})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		dead := place{proc.Identity{PID: m.self.Process.PID, Start: 1, Boot: proc.Boot()}, "/dead"}
		keys(func(n map[string]noted) {
			n["here"] = noted{place: m.self}
			n["lost"] = noted{place: dead, Page: "http://a/"}
			n["unused"] = noted{Why: "it was not used", Since: time.Now()}
		})
		if m.find(&caller{key: "here"}) != "" || m.find(&caller{key: "lost"}) != "" ||
			m.find(&caller{key: "unused"}) != "" {
			t.Error("a session is with another service")
		}
		other := memory{path: path, self: dead}
		if to := other.find(&caller{key: "here"}); to != "/self" {
			t.Errorf("another service finds it at %q", to)
		}
		time.Sleep(remembered - time.Minute)
		keys(func(n map[string]noted) {
			if told := n["lost"].told(time.Time{}); !strings.Contains(told, "http://a/ and its cookies are lost") {
				t.Error(told)
			}
			if told := n["unused"].told(time.Time{}); !strings.Contains(told, "ended 59m0s ago: it was not used") {
				t.Error(told)
			}
		})
		time.Sleep(2 * time.Minute)
		if got := keys(nil); !slices.Equal(got, []string{"here", "lost"}) { // which was seen to be lost a while ago
			t.Errorf("the sessions are %q", got)
		}
		time.Sleep(remembered)
		if got := keys(nil); !slices.Equal(got, []string{"here"}) {
			t.Errorf("the sessions are %q", got)
		}
	})
}
