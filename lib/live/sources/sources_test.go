package sources

import (
	"errors"
	"strings"
	"testing"

	"btools/lib/client"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/state"
)

// Each session has a key, which finds it for as long as its program has it.
func TestKeys(t *testing.T) {
	t.Parallel()
	shop := api.NameOf("shop")
	all := []Session{{Name: "b", pid: 2, of: api.AttachRequest{Session: "b"}},
		{Name: "b", pid: 1, of: api.AttachRequest{Session: "b", Instance: "y"}},
		{Name: "b", pid: 1, of: api.AttachRequest{Session: "b", Instance: "x"}},
		{Name: "shop", pid: 3, of: api.AttachRequest{Session: shop}},
		{Name: "P-0", pid: 4, of: api.AttachRequest{Lease: "lease_1"}}}
	setKeys(all)
	var keys []string
	for i := range all {
		keys = append(keys, all[i].Key)
		if s, err := Find(all, all[i].Key); err != nil || s != &all[i] {
			t.Errorf("%s finds %+v, %v", all[i].Key, s, err)
		}
	}
	if got := strings.Join(keys, " "); got != "P-0 b~1 b~1~2 b~2 shop" {
		t.Errorf("the keys are %s", got)
	}
	for key, want := range map[string]string{"lease_1": "P-0", shop: "shop", "shop~3": "shop"} {
		if s, err := Find(all, key); err != nil || s.Key != want {
			t.Errorf("%s finds %+v, %v", key, s, err)
		}
	}
	for key, want := range map[string]struct {
		code       int
		says, hint string
	}{
		"b": {exit.Usage, "b~1, b~1~2, b~2", ""}, "shp": {exit.Unavailable, `no program has a session "shp"`, "shop"},
		"shop~4": {exit.Unavailable, "shop~4", "shop"}, "": {exit.Unavailable, `""`, "P-0, b~1"},
	} {
		_, err := Find(all, key)
		var e *exit.Error
		if !errors.As(err, &e) || e.Code != want.code || !strings.Contains(e.Error(), want.says) ||
			!strings.Contains(e.Hint, want.hint) {
			t.Errorf("%q: %v, %+v", key, err, e)
		}
	}
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	f := &state.File{Calls: []state.CallService{{Process: proc.Identity{PID: 7}}}}
	for owner, want := range map[string]string{"": "bproxy ", "bmcp 6": "bmcp bmcp 6", "bmcp 7": "bmcp call ",
		"make 8": "make make 8"} {
		program, holder := programOf(client.Proxy{Proxy: record.Proxy{Owner: owner}}, f)
		if got := program + " " + holder; got != want {
			t.Errorf("the owner %q: %s", owner, got)
		}
	}
	if program, _ := programOf(client.Proxy{Proxy: record.Proxy{Extension: true}}, f); program != "hub" {
		t.Errorf("a hub is %s", program)
	}
}
