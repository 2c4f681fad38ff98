//go:build linux

package main_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// The leases of a pool with limits cannot reach what it blocks, which its status says, and have
// what it emulates and its script.
func TestPoolLimits(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, `<script>document.write(self.begun, " ", new Date(0).getHours())</script>`)
	})
	blocked := cmdtest.Origin(t)
	cmdtest.WriteFile(t, w.Dir+"/begun.js", "self.begun = 'begun'")
	p := w.Shared("_A_INSTANCES=1", "_A_BLOCK_ORIGINS=http://"+blocked, "_A_TIMEZONE=Asia/Tokyo",
		"_A_INIT_SCRIPT="+w.Dir+"/begun.js")
	l := p.Lease()
	if got := cmdtest.Visit(t, l.Instance.WSURL, site); got != "begun 9" {
		t.Errorf("a site that is not blocked shows %q", got)
	}
	const rule = "net::ERR_BLOCKED_BY_ADMINISTRATOR: --block-origins: "
	if got := cmdtest.Visit(t, l.Instance.WSURL, "http://"+blocked); !strings.HasPrefix(got, rule) {
		t.Errorf("a site that is blocked shows %q", got)
	}
	want := `"limits":{"block_origins":["http://` + blocked + `"],"refused":1,"last_refused":"` + rule
	if st := w.Run("bpool", "status").Out; !strings.Contains(st, want) {
		t.Errorf("the status is %s, want %s", st, want)
	}
	p.Stop()
	w.Clean()
}
