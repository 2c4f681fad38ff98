//go:build linux

package cmd_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"btools/lib/forward/proxytest"
	"btools/lib/jsonrpc"
)

// origin is a server that says by which name it was asked; no resolver knows
// the names.
func origin(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "this is "+r.Host)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// visit opens a page at an address and returns what it shows, or the error of
// its navigation.
func visit(t *testing.T, ws, url string) string {
	t.Helper()
	c := dial(t, ws)
	target := jsonrpc.GetString(resultOf(t, c.ask("Target.createTarget", `{"url":"about:blank"}`)), "targetId")
	c.ask("Target.attachToTarget", `{"targetId":"`+target+`","flatten":true}`)
	page := dial(t, ws[:strings.Index(ws, "/devtools/")]+"/devtools/page/"+target)
	if err := jsonrpc.GetString(resultOf(t, page.ask("Page.navigate", `{"url":"`+url+`"}`)), "errorText"); err != "" {
		return err
	}
	got := page.ask("Runtime.evaluate", `{"awaitPromise":true,"expression":"new Promise(done => {`+
		`const say = () => done(document.body.innerText);`+
		`document.readyState === 'complete' ? say() : addEventListener('load', say) })"}`)
	return jsonrpc.GetString(jsonrpc.Get(resultOf(t, got), "result"), "value")
}

// resultOf is the result of an answer.
func resultOf(t *testing.T, answer string) json.RawMessage {
	t.Helper()
	r := jsonrpc.Get(json.RawMessage(answer), "result")
	if r == nil {
		t.Fatalf("got %v, want a result", answer)
	}
	return r
}

func TestSessionProxies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web, socks := proxytest.HTTP(t, origin(t)), proxytest.SOCKS5(t, origin(t))
	secret := w.dir + "/proxy-url"
	if err := os.WriteFile(secret, []byte("socks5://"+proxytest.Credentials+socks.At+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "BTOOLS_PROXY=http://"+proxytest.Credentials+web.At)
	w.run("bproxy").wants(t, 64, "--proxy needs --isolate (which BTOOLS_PROXY sets)")
	p := w.proxy("--isolate")
	w.env = w.env[:len(w.env)-1]
	at := "ws" + strings.TrimPrefix(p.url, "http") + "/session/"
	for name, proxy := range map[string]string{"socks": "@" + secret, "none": "direct://",
		"bad": "http://us%3Aer:s3cret@" + web.At} {
		r := w.run("bproxy", "session", "new", name, "--proxy", proxy)
		r.wants(t, 0, "")
		if strings.Contains(r.out+r.err, "@") {
			t.Errorf("session new prints the password: %s%s", r.out, r.err)
		}
	}
	w.run("bproxy", "session", "new", "x", "--proxy", "http://u:s3cret@h:port").wants(t, 64, "not the URL of a proxy")
	w.run("bproxy", "session", "end", "x", "--proxy", "http://h").wants(t, 64, "new session")
	for name, want := range map[string]string{"web": "this is name.test", "socks": "this is name.test",
		"none": "net::ERR_NAME_NOT_RESOLVED", "bad": "407"} {
		if got := visit(t, at+name+"/devtools/browser/"+name, "http://name.test/"); !strings.Contains(got, want) {
			t.Errorf("the page of session %s shows %q, want %q", name, got, want)
		}
	}
	if a, b := web.Targets(), socks.Targets(); len(a) == 0 || len(b) == 0 || a[0] != "name.test" ||
		b[0] != "name.test:80" {
		t.Errorf("the proxies were asked for %q and %q", a, b)
	}
	r := w.run("bproxy", "session", "list", "-f", "session.name,session.proxy.url,session.proxy.error")
	for _, want := range []string{"web\thttp://" + web.At + "\t\n", "socks\tsocks5://" + socks.At + "\t\n",
		"none\t\t\n", "bad\thttp://" + web.At + "\tit answers 407"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("session list: no %q in\n%s%s", want, r.out, r.err)
		}
	}
	state, err := os.ReadFile(w.dir + "/state/state.json")
	if err != nil {
		t.Fatal(err)
	}
	status := w.run("bproxy", "status")
	all := string(state) + status.out + p.errs.String() + strings.Join(w.ours(), "\n")
	for _, secret := range []string{"s3cret", "w%C3%B6rd", "wörd"} {
		if strings.Contains(all, secret) {
			t.Errorf("a password is in the state file, the status, the log or an argument list:\n%s", all)
		}
	}
	if n := strings.Count(p.errs.String(), "407"); n != 1 {
		t.Errorf("the log reports the proxy %d times, want once:\n%s", n, p.errs.String())
	}
	p.stop()
	w.clean()
}

func TestPoolProxies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := proxytest.HTTP(t, origin(t))
	const prefix = "PW_MCP_PROXY_"
	set := func(vars ...string) {
		w.env = append(w.env, prefix+"BROWSER=chromium", prefix+"_A_INSTANCES=2", prefix+"_A_IS_DEFAULT=1")
		for _, v := range vars {
			w.env = append(w.env, prefix+v)
		}
	}
	bare := w.env
	for says, vars := range map[string][]string{
		"not the URL of a proxy":        {"PROXY=http://u:s3cret@h:port", "ISOLATION=context"},
		"which has a browser to itself": {"PROXY=http://u:s3cret@h", "_A__1_ISOLATION=context"},
		"PROXY_BYPASS has no effect":    {"PROXY_BYPASS=x"},
	} {
		w.env = bare
		set(vars...)
		r := w.run("bpool", "check")
		if r.wants(t, 78, says); strings.Contains(r.err, "s3cret") {
			t.Errorf("a password is in %s", r.err)
		}
	}
	w.env = bare
	proxy := "PROXY=http://" + proxytest.Credentials + web.At
	set("_A_ISOLATION=context", "_A__0_"+proxy)
	check := w.run("bpool", "check", "-f", "setting.key,setting.value")
	if r := check; !strings.Contains(r.out, "PROXY\thttp://"+web.At) || strings.Contains(r.out, "w%C3%B6rd") {
		t.Errorf("bpool check: %s%s", r.out, r.err)
	}
	w.env = bare
	p := w.shared("_A_INSTANCES=2", "_A__0_"+proxy, "_A__1_PROXY=http://us%3Aer:s3cret@"+web.At)
	for instance, want := range map[string]string{"0": "this is name.test", "1": "407"} {
		l := p.lease("--instance", instance)
		if got := visit(t, l.Instance.WSURL, "http://name.test/"); !strings.Contains(got, want) {
			t.Errorf("the page of instance %s shows %q, want %q", instance, got, want)
		}
	}
	r := w.run("bpool", "status")
	fails := `"proxy":{"url":"http://` + web.At + `","error":"it answers 407`
	if all := r.out + p.errs.String() + strings.Join(w.ours(), "\n"); strings.Contains(all, "w%C3%B6rd") ||
		strings.Contains(all, "s3cret") || !strings.Contains(r.out, fails) {
		t.Errorf("the status, the log and the processes are\n%s", all)
	}
	p.stop()
	w.clean()
}
