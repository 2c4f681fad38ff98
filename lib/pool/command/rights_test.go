package command

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/logins"
	"btools/lib/logins/remote"
	"btools/lib/pool"
	"btools/lib/record"
)

// Each method has a row in the table of rights, and no row is of a method that is gone.
func TestEachMethodHasARight(t *testing.T) {
	t.Parallel()
	methods := (&handler{service: &pool.Service{}, states: &remote.Server{}}).methods().Methods()
	for _, m := range methods {
		if rights[m] == 0 {
			t.Errorf("%s has no row in the table of rights: only root could call it", m)
		}
	}
	for m := range rights {
		if !slices.Contains(methods, m) {
			t.Errorf("the table of rights has %s, which is not a method", m)
		}
	}
}

// user makes requests as a user.
type user struct {
	serve control.Handler
	ctx   context.Context
}

func (u user) call(method, params string, result any) error {
	got, err := u.serve(u.ctx, method, json.RawMessage(params))
	if later, ok := got.(control.Later); ok && err == nil {
		got, err = later()
	}
	if err != nil || result == nil {
		return err
	}
	b, err := json.Marshal(got)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, result)
}

// Another user can neither use nor end a lease whose ID is known, nor change the pools. The
// status and the events show whose it is, and nothing that leads to it.
func TestRights(t *testing.T) {
	t.Parallel()
	v, _ := startService(t, "_A_INSTANCES=2", "_A_IS_DEFAULT=1")
	serve := (&handler{service: v, states: remote.NewServer(&logins.Store{Dir: t.TempDir()}, nil),
		reload: func() (reloaded, error) { return reloaded{}, nil }}).serve()
	as := func(uid int) user { return user{serve, control.WithPeer(t.Context(), &control.Peer{UID: uid, PID: 7})} }
	ann, bob, root := as(70001), as(70002), as(0)
	lease := func(u user) string {
		t.Helper()
		var r struct{ Lease record.Lease }
		if err := u.call("hold", `{"holder":"node"}`, &r); err != nil {
			t.Fatal(err)
		}
		return r.Lease.ID
	}
	code := func(err error) string {
		if err == nil {
			return ""
		}
		return control.ErrorOf(err).Code
	}
	anns := lease(ann)
	of := `{"lease":"` + anns + `","name":"x"}`
	for _, method := range []string{"watch", "renew", "rest", "release", "downloads", "state_save", "attach"} {
		err := bob.call(method, of, nil)
		unknown := bob.call("renew", `{"lease":"lease_1_x"}`, nil)
		if code(err) != control.LeaseNotFound ||
			strings.ReplaceAll(err.Error(), anns, "lease_1_x") != unknown.Error() {
			t.Errorf("%s of another user's lease: %v, want %v", method, err, unknown)
		}
	}
	for method, params := range map[string]string{"drain": `{}`, "scale": `{"pool":"A","instances":1}`,
		"restart": `{"pool":"A"}`, "reload": `{}`} {
		if err := ann.call(method, params, nil); code(err) != control.NotAllowed {
			t.Errorf("%s as a user: %v", method, err)
		}
	}
	if err := bob.call("nothing", `{}`, nil); code(err) != control.UnknownMethod {
		t.Errorf("an unknown method: %v", err)
	}
	for who, shown := range map[*user]string{&ann: anns, &bob: "", &root: anns} {
		var st api.PoolsStatus
		if err := who.call("status", `{}`, &st); err != nil {
			t.Fatal(err)
		}
		if i := st.Pools[0].Instances[0]; i.Lease != shown || !i.Leased || i.By != "uid:70001" || i.User != "70001" ||
			(i.Holder == "node") != (shown != "") {
			t.Errorf("the status is %+v, want the lease %q", i, shown)
		}
		var got api.EventList[pool.Event]
		if err := who.call("watch", `{"after":0}`, &got); err != nil {
			t.Fatal(err)
		}
		k := slices.IndexFunc(got.Events, func(e pool.Event) bool { return e.Event == "leased" })
		if e := got.Events[k]; e.Lease != shown || e.By != "uid:70001" || (e.Holder == "node") != (shown != "") {
			t.Errorf("the event is %+v, want the lease %q", e, shown)
		}
	}
	if err := ann.call("renew", of, nil); err != nil {
		t.Error(err)
	}
	bobs := lease(bob)
	release := func(u user, params string) (all []string) {
		t.Helper()
		var rs []released
		if err := u.call("release", params, &rs); err != nil {
			t.Error(err)
		}
		for _, r := range rs {
			all = append(all, r.Lease.ID)
		}
		return all
	}
	if got := release(bob, `{"all":true}`); !slices.Equal(got, []string{bobs}) {
		t.Errorf("a user's release --all ends %v, want %s alone", got, bobs)
	}
	if err := bob.call("watch", of, nil); code(err) != control.LeaseNotFound {
		t.Errorf("the end of another user's lease is told: %v", err)
	}
	lease(ann)
	for who, holders := range map[*user]string{&ann: "node of 70001 for", &bob: "by 70001 for",
		&root: "node of 70001 for"} {
		if err := who.call("hold", `{"timeout_ms":0}`, nil); code(err) != control.LeaseTimeout ||
			!strings.Contains(err.Error(), holders) {
			t.Errorf("who waits in vain for leases of 70001 is told %v, want %q", err, holders)
		}
	}
	if got := release(ann, of); !slices.Equal(got, []string{anns}) {
		t.Errorf("her release ends %v", got)
	}
	if err := bob.call("watch", of, nil); code(err) != control.LeaseNotFound {
		t.Errorf("the end of another user's lease is told afterwards: %v", err)
	}
	lease(bob)
	if got := release(root, `{"all":true}`); len(got) != 2 {
		t.Errorf("root's release --all ends %v", got)
	}
	if err := root.call("drain", `{}`, nil); err != nil {
		t.Error(err)
	}
}
