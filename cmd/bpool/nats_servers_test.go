//go:build linux

package main_test

import (
	"fmt"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// With place = "first", the last of five hosts is idle when there is less to do.
func TestPlaceOfNATS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	client, _ := hosts(w, startNATS(t), 5)
	client = client.With("PW_MCP_PROXY_PLACE=first")
	cmdtest.Until(t, "five hosts are found", func() bool { return free(client) == 5 })
	idle := func() (names string) {
		for _, h := range listHosts(client) {
			if h.Host.Free > 0 {
				names += h.Host.Name + " "
			}
		}
		return names
	}
	var held []*command
	for range 4 {
		held = append(held, hold(client))
	}
	if got := idle(); got != "host4 " {
		t.Errorf("after four requests %sare idle", got)
	}
	for _, c := range held[:3] {
		c.cmd.Process.Signal(syscall.SIGTERM)
		c.ends(0, "")
	}
	cmdtest.Until(t, "three hosts are free again", func() bool { return free(client) == 4 })
	for k := range 2 {
		hold(client)
		if got, want := idle(), fmt.Sprintf("%shost2 host4 ", []string{"host1 ", ""}[k]); got != want {
			t.Errorf("%sare idle, not %s", got, want)
		}
	}
}
