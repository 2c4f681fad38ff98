package command

import (
	"testing"

	"btools/lib/control/api"
)

// A drain waits for the leases of its own instances, not for those on other hosts, which it does not end.
func TestOwnLeases(t *testing.T) {
	t.Parallel()
	st := &api.PoolsStatus{Pools: []api.PoolStatus{{Instances: []api.InstanceStatus{
		{ID: "1", Leased: true}, {ID: "2"}, {ID: "1", Leased: true, Host: "worker-2"}}}}}
	if n := ownLeases(st); n != 1 || len(st.Pools[0].Instances) != 1 || st.Pools[0].Instances[0].Host != "" {
		t.Errorf("%d leases: %+v", n, st.Pools[0].Instances)
	}
}
