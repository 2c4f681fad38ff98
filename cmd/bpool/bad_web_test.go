//go:build linux

package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
)

// A service does not start with a file of tokens that is wrong; the message has the line, and no token.
func TestTokenFilesThatAreWrong(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	path := w.Dir + "/tokens"
	w.Env = append(w.Env, "PW_MCP_PROXY__A_INSTANCES=1", "PW_MCP_PROXY__A_LAUNCH=false")
	for text, why := range map[string]string{
		"":                                       "it has no token",
		"ci " + ciToken + "\r\n\r\nx " + ciToken: "line 3: x has the token of ci",
		"ci " + ciToken + " pools=A,B":           "line 1: the token ci names the pool B: there are A",
		"# \nci " + ciToken + " max=0":           "line 2: max is a number from 1 on",
		"ci " + ciToken + " maximum=1":           "line 1: after the token come",
	} {
		cmdtest.WriteFile(t, path, text)
		r := w.Run("bpool", "serve", "--http", "0", "--token-file", path)
		if r.Exits(t, 78, why); strings.Contains(r.Err, ciToken) {
			t.Errorf("the message has the token: %s", r.Err)
		}
	}
	w.Run("bpool", "serve", "--http", "0", "--token-file", w.Dir+"/none").Exits(t, 78, "cannot read the tokens")
}

// send makes a request with these headers and returns the status of the answer.
func (c webClient) send(ctx context.Context, path, body string, headers ...string) (int, error) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "POST", c.at+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

// What clients do wrong ends their requests, and none of their leases stays. Neither tokens nor secrets are logged.
// When a token is removed, so are its leases.
func TestBadClients(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	path := w.Dir + "/tokens"
	const both = "ci " + ciToken + " trust\nother " + otherToken + " trust admin\n"
	cmdtest.WriteFile(t, path, both) // all may read it
	p := w.WebPool([]string{"--token-file", path, "--log-level", "debug"}, "_A_INSTANCES=2", "_A_IS_DEFAULT=1",
		"_A_QUEUE_LIMIT=1")
	logged := func(what string) func() bool {
		return func() bool { return strings.Contains(p.Errs.String(), what) }
	}
	cmdtest.Until(t, "a file that all may read is a warning", logged("all users of this machine can read the tokens"))
	ci, other := webClient{t, p.HTTP, ciToken}, webClient{t, p.HTTP, otherToken}

	for _, header := range []string{"Origin: https://a.test", "Origin: null", "Sec-Fetch-Site: cross-site"} {
		if code, err := ci.send(t.Context(), "/lease", "{}", header,
			"Content-Type: application/x-www-form-urlencoded"); err != nil || code != http.StatusForbidden {
			t.Errorf("a page's request with %s is answered with %d, %v", header, code, err)
		}
	}
	half, err := net.Dial("tcp", strings.TrimPrefix(p.HTTP, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(half, "POST /lease?token=%s HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{\"ho", ciToken)
	a, b := ci.lease("{}"), other.lease("{}")
	half.Close()
	secretOf := func(l cmdtest.Leased) string {
		_, secret, _ := strings.Cut(l.Instance.HTTPURL, l.Lease.ID+".")
		return secret
	}
	if code, body := cmdtest.Get(t, "GET", strings.Replace(a.Instance.HTTPURL, secretOf(a), secretOf(b), 1)); code !=
		http.StatusNotFound {
		t.Errorf("the secret of another lease: %d %s", code, body)
	}

	waiting := func(n int) func() bool {
		return func() bool {
			_, metrics := other.do("/metrics", "")
			return strings.Contains(metrics, fmt.Sprintf("\nbpool_waiting{pool=\"A\"} %d\n", n))
		}
	}
	bound, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := ci.send(bound, "/lease", `{"timeout":"1m"}`)
		left <- err
	}()
	cmdtest.Until(t, "a request waits", waiting(1))
	if code, body := ci.do("/lease", `{"timeout":"1m"}`); code != http.StatusTooManyRequests ||
		!strings.Contains(body, "the token ci") {
		t.Errorf("one too many: %d %s", code, body)
	}
	leave()
	<-left
	cmdtest.Until(t, "the request of a client that has left does not wait", waiting(0))

	socket := cmdtest.Dial(t, a.Instance.WSURL).Conn
	if code, body := (webClient{t, p.HTTP, ""}).do("/leases?token="+ciToken, ""); code != http.StatusOK {
		t.Errorf("a token in the address: %d %s", code, body)
	}
	if err := os.WriteFile(path, []byte("other short"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "a wrong file is told", logged("the tokens stay as they were"))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "a file that is gone is told", logged("no such file"))
	if _, body := ci.do("/leases", ""); !strings.Contains(body, a.Lease.ID) {
		t.Errorf("without a file the tokens are not as they were: %s", body)
	}
	if err := os.WriteFile(path, []byte("other "+otherToken+" trust admin"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	if _, err := socket.Next(); err == nil || time.Since(ended) > 5*time.Second {
		t.Errorf("the WebSocket of a removed token: %v after %v", err, time.Since(ended))
	}
	if code, body := cmdtest.Get(t, "GET", a.Instance.HTTPURL+"/json/version"); code != http.StatusGone {
		t.Errorf("the lease of a removed token: %d %s", code, body)
	}
	var leases []cmdtest.Leased
	if _, body := other.do("/leases", ""); json.Unmarshal([]byte(body), &leases) != nil || len(leases) != 1 {
		t.Errorf("the leases of the token that is left are %s", body)
	}
	for _, secret := range []string{ciToken, otherToken, secretOf(a), secretOf(b)} {
		if strings.Contains(p.Errs.String(), secret) {
			t.Errorf("the log has %s: %s", secret, p.Errs.String())
		}
	}
	p.Stop()
	w.Clean()
}
