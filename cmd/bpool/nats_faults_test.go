//go:build linux

package main_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// Two hosts of one name that meet later, as no server has answered when they started, say so both.
func TestHostsOfOneName(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	s := startNATS(t)
	s.kill()
	_, all := hosts(w, s, 2, "LAUNCH=false", "NATS_NAME=same")
	s.start()
	for i, p := range all {
		cmdtest.Until(t, "a host says that another one has its name", func() bool {
			return strings.Contains(p.Errs.String(), "another host is called same: that at "+all[1-i].HTTP)
		})
	}
}
