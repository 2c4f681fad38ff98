//go:build linux

package main_test

import (
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/forward/proxytest"
)

func TestPoolProxies(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	web := proxytest.HTTP(t, cmdtest.Origin(t))
	const prefix = "PW_MCP_PROXY_"
	set := func(vars ...string) {
		w.Env = append(w.Env, prefix+"BROWSER=chrome-headless-shell", prefix+"_A_INSTANCES=2", prefix+"_A_IS_DEFAULT=1")
		for _, v := range vars {
			w.Env = append(w.Env, prefix+v)
		}
	}
	bare := w.Env
	for says, vars := range map[string][]string{
		"not the URL of a proxy":        {"PROXY=http://u:s3cret@h:port", "ISOLATION=context"},
		"which has a browser to itself": {"PROXY=http://u:s3cret@h", "_A__1_ISOLATION=context"},
		"PROXY_BYPASS has no effect":    {"PROXY_BYPASS=x"},
	} {
		w.Env = bare
		set(vars...)
		r := w.Run("bpool", "check")
		if r.Exits(t, 78, says); strings.Contains(r.Err, "s3cret") {
			t.Errorf("a password is in %s", r.Err)
		}
	}
	w.Env = bare
	proxy := "PROXY=http://" + proxytest.Credentials + web.At
	set("_A_ISOLATION=context", "_A__0_"+proxy)
	check := w.Run("bpool", "check", "-f", "setting.key,setting.value")
	if r := check; !strings.Contains(r.Out, "PROXY\thttp://"+web.At) || strings.Contains(r.Out, "w%C3%B6rd") {
		t.Errorf("bpool check: %s%s", r.Out, r.Err)
	}
	w.Env = bare
	p := w.Shared("_A_INSTANCES=2", "_A__0_"+proxy, "_A__1_PROXY=http://us%3Aer:s3cret@"+web.At)
	for instance, want := range map[string]string{"0": "this is name.test", "1": "407"} {
		l := p.Lease("--instance", instance)
		if got := cmdtest.Visit(t, l.Instance.WSURL, "http://name.test/"); !strings.Contains(got, want) {
			t.Errorf("the page of instance %s shows %q, want %q", instance, got, want)
		}
	}
	r := w.Run("bpool", "status")
	fails := `"proxy":{"url":"http://` + web.At + `","error":"it answers 407`
	if all := r.Out + p.Errs.String() + strings.Join(w.Processes(), "\n"); strings.Contains(all, "w%C3%B6rd") ||
		strings.Contains(all, "s3cret") || !strings.Contains(r.Out, fails) {
		t.Errorf("the status, the log and the processes are\n%s", all)
	}
	p.Stop()
	w.Clean()
}
