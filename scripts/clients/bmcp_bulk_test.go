//go:build linux

package clients_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// The SDK's client with a real browser: by HTTP, and with LONG=1 by standard streams.
func TestMCPBulkTaskOfSDK(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	clients := cmdtest.Clients(t)
	host := func(argv ...string) {
		t.Helper()
		c := exec.Command("node", append([]string{clients + "/task.mjs"}, argv...)...)
		c.Env, c.Dir = slices.Concat(w.Env, []string{"HOME=" + w.Dir, "XDG_CACHE_HOME=" + w.Dir}), w.Dir
		var errs cmdtest.SyncBuffer
		c.Stderr = &errs
		out, err := c.Output()
		var got struct {
			Offers                     bool
			Support, Last, Page, Error string
			TTL                        int
			States, Rest, Listed       []string
		}
		if err != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%v: %s\n%s", err, out, errs.String())
		}
		if !got.Offers || got.Support != "optional" || got.TTL != 60_000 || got.Last != "completed" ||
			!slices.Equal(got.States, []string{"success", "success"}) || !strings.Contains(got.Page, "by a task") ||
			!strings.Contains(got.Error, "was cancelled") || !slices.Equal(got.Rest, []string{"error", "skipped"}) ||
			!slices.Equal(got.Listed, []string{"completed", "cancelled"}) {
			t.Errorf("%+v, want one task that is completed and one that is cancelled", got)
		}
	}
	if cmdtest.IsLong { // TestMCPHost has the client so
		host(cmdtest.Bin + "/bmcp")
	}
	url, stop := w.ServeMCP(nil)
	host(url)
	stop()
	w.Clean()
}
