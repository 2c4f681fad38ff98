//go:build linux

package main_test

import (
	"os"
	"strings"
	"testing"

	"btools/lib/cmdtest"
	"btools/lib/forward/proxytest"
)

func TestSessionProxies(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	web, socks := proxytest.HTTP(t, cmdtest.Origin(t)), proxytest.SOCKS5(t, cmdtest.Origin(t))
	secret := w.Dir + "/proxy-url"
	if err := os.WriteFile(secret, []byte("socks5://"+proxytest.Credentials+socks.At+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Env = append(w.Env, "BTOOLS_PROXY=http://"+proxytest.Credentials+web.At)
	w.Run("bproxy").Exits(t, 64, "--proxy is an option of bproxy share (which BTOOLS_PROXY sets)")
	p := w.Proxy("--isolate")
	w.Env = w.Env[:len(w.Env)-1]
	at := "ws" + strings.TrimPrefix(p.URL, "http") + "/session/"
	for name, proxy := range map[string]string{"socks": "@" + secret, "none": "direct://",
		"bad": "http://us%3Aer:s3cret@" + web.At} {
		r := w.Run("bproxy", "session", "new", name, "--proxy", proxy)
		r.Exits(t, 0, "")
		if strings.Contains(r.Out+r.Err, "@") {
			t.Errorf("session new prints the password: %s%s", r.Out, r.Err)
		}
	}
	w.Run("bproxy", "session", "new", "x", "--proxy", "http://u:s3cret@h:port").Exits(t, 64, "not the URL of a proxy")
	w.Run("bproxy", "session", "end", "x", "--proxy", "http://h").Exits(t, 64, "new session")
	for name, want := range map[string]string{"web": "this is name.test", "socks": "this is name.test",
		"none": "net::ERR_NAME_NOT_RESOLVED", "bad": "407"} {
		if got := cmdtest.Visit(t, at+name+"/devtools/browser/"+name, "http://name.test/"); !strings.Contains(got,
			want) {
			t.Errorf("the page of session %s shows %q, want %q", name, got, want)
		}
	}
	if a, b := web.Targets(), socks.Targets(); len(a) == 0 || len(b) == 0 || a[0] != "name.test" ||
		b[0] != "name.test:80" {
		t.Errorf("the proxies were asked for %q and %q", a, b)
	}
	r := w.Run("bproxy", "session", "list", "-f", "session.name,session.proxy.url,session.proxy.error")
	for _, want := range []string{"web\thttp://" + web.At + "\t\n", "socks\tsocks5://" + socks.At + "\t\n",
		"none\t\t\n", "bad\thttp://" + web.At + "\tit answers 407"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("session list: no %q in\n%s%s", want, r.Out, r.Err)
		}
	}
	state, err := os.ReadFile(w.Dir + "/state/state.json")
	if err != nil {
		t.Fatal(err)
	}
	status := w.Run("bproxy", "status")
	all := string(state) + status.Out + p.Errs.String() + strings.Join(w.Processes(), "\n")
	for _, secret := range []string{"s3cret", "w%C3%B6rd", "wörd"} {
		if strings.Contains(all, secret) {
			t.Errorf("a password is in the state file, the status, the log or an argument list:\n%s", all)
		}
	}
	if n := strings.Count(p.Errs.String(), "answers 407"); n != 1 { // a port may be 40711
		t.Errorf("the log reports the proxy %d times, want once:\n%s", n, p.Errs.String())
	}
	p.Stop()
	w.Clean()
}
