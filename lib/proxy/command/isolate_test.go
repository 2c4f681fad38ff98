package command

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/fleet"
	"btools/lib/fleet/book"
	"btools/lib/logins"
	"btools/lib/logins/remote"
	"btools/lib/proxy"
	"btools/lib/settings"
	"btools/lib/virtual"
)

// A session starts with the state that its creator has of the name that they give, also
// if that is the proxy's; without one, with the proxy's. No client's directory is read.
func TestStateOfANewSession(t *testing.T) {
	own, elsewhere := &logins.Store{Dir: t.TempDir() + "/own"}, &logins.Store{Dir: t.TempDir() + "/elsewhere"}
	for name, store := range map[string]*logins.Store{"theirs": own, "hers": own.For(70001), "hidden": elsewhere} {
		if err := store.Save(t.Context(), name, &logins.State{}); err != nil {
			t.Fatal(err)
		}
	}
	launched := control.Errorf(control.Failed, "the browser is launched")
	g := &fleet.Fleet{Policy: book.Policy{Max: 10},
		Defaults: fleet.Wanted{Settings: settings.Settings{State: "theirs"}, States: own},
		Chrome: func(context.Context, *fleet.Entry) (*virtual.Browser, fleet.Use, error) {
			return nil, fleet.Use{}, launched
		}}
	s := &service{proxy: &proxy.Proxy{Sessions: g}, states: remote.NewServer(own, nil)}
	for _, x := range []struct {
		uid          int
		params, want string
	}{
		{70001, `"state":"hers"`, launched.Message},
		{70001, `"tab_limit":1`, launched.Message},
		{70001, `"x":1`, `there is no setting "x"`},
		{70001, `"state":"theirs"`, `there is no state "theirs" in ` + own.Dir + "/uid-70001"},
		{70002, `"state":"hers"`, `there is no state "hers"`},
		{0, `"state":"theirs"`, launched.Message},
		{os.Geteuid(), `"state":"theirs"`, launched.Message},
		{os.Geteuid(), `"state":"hidden","state_dir":"` + elsewhere.Dir + `"`, `there is no setting "state_dir"`},
		{os.Geteuid(), `"state":"../elsewhere/hidden"`, "not the name of a state"},
	} {
		ctx := control.WithPeer(t.Context(), &control.Peer{UID: x.uid})
		r := api.HoldRequest{Of: api.Of{Session: "n"}}
		err := json.Unmarshal([]byte(`{`+x.params+`}`), &r.Settings)
		var later any
		if err == nil {
			later, err = s.newSession(ctx, r)
		}
		if err == nil {
			_, err = later.(control.Later)()
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("user %d with %s: %v, want %s", x.uid, x.params, err, x.want)
		}
	}
}
