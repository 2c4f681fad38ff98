//go:build linux

package clients_test

import (
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

func TestStatePlaywright(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	p := w.Proxy("--isolate", "--trace", w.Dir+"/traces")
	c := startClient(p, "state-playwright.mjs", cmdtest.LoginSite(t))
	c.leaves()
	for _, r := range []cmdtest.Result{w.Run("bproxy", "state", "list"), w.Run("bproxy", "state", "show", "login"),
		w.Run("bproxy", "session", "list"), w.Run("bproxy", "status"), {Out: p.Errs.String()}} {
		if strings.Contains(r.Out+r.Err, "s3cret") {
			t.Errorf("a value of the state is shown:\n%s%s", r.Out, r.Err)
		}
	}
	if st, err := os.Stat(w.Dir + "/xdg/btools/states/login.json"); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	p.Stop()
	w.Clean()
}
