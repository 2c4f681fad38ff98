package shell

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control/api"
	"btools/lib/fleet/kept"
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

// What services have left that were killed is listed once, with its name and its owner, as long as it is kept.
func TestLeft(t *testing.T) {
	dir := t.TempDir()
	m := memory{path: dir + "/calls.json", keep: dir, self: place{proc.Self(), "/self"}}
	dead := place{proc.Identity{PID: m.self.Process.PID, Start: 1, Boot: proc.Boot()}, "/dead"}
	claude, shop, gone := api.NameOf("claude-12"), api.NameOf("shop"), api.NameOf("gone")
	err := m.change(t.Context(), func(all map[string]noted) {
		all["process 12 3 boot"] = noted{place: dead, Page: "http://a/", Browser: claude}
		all["called claude-12"] = noted{place: dead, Browser: claude}
		all["name shop"] = noted{place: dead, Browser: shop, Options: []string{"--device=Pixel 7"}}
		all["name gone"] = noted{place: dead, Browser: gone}
		all["name here"] = noted{place: m.self, Browser: shop}
	})
	if err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-Idle)
	for name, at := range map[string]time.Time{claude: {}, shop: {}, gone: long} {
		os.WriteFile(kept.Path(dir, name), []byte(`{"tabs":[{},{}]}`), 0o600)
		os.Chtimes(kept.Path(dir, name), at, at)
	}
	all := Left(m.path, dir)
	if len(all) != 2 || all[0].Name != "claude-12" || *all[0].Owner != (Owner{12, "claude"}) ||
		all[0].URL != "http://a/" || all[0].Tabs != 2 || all[0].KeptAt == nil ||
		all[1].Name != "shop" || all[1].Owner != nil || len(all[1].Options) != 1 {
		t.Errorf("there are %+v", all)
	}
}
