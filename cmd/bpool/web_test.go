//go:build linux

package main_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"btools/lib/cmdtest"
	"btools/lib/websocket"
)

// webClient makes requests with a token.
type webClient struct {
	t     *testing.T
	at    string
	token string
}

// do makes a request with a body, "" for GET, and returns the status and the body of the answer.
func (c webClient) do(path, body string) (int, string) {
	c.t.Helper()
	method := "GET"
	if body != "" {
		method = "POST"
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.at+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// lease leases an instance.
func (c webClient) lease(body string) (l cmdtest.Leased) {
	c.t.Helper()
	code, b := c.do("/lease", body)
	if err := json.Unmarshal([]byte(b), &l); err != nil || code != 200 {
		c.t.Fatalf("lease %s: %d %s", body, code, b)
	}
	return l
}

const (
	ciToken    = "ci-ci-ci-ci-ci-ci-ci"
	otherToken = "other-other-other-other"
	trustToken = "trust-trust-trust-trust"
	adminToken = "admin-admin-admin-admin"
)

// A client on another machine leases by HTTP, uses the browser by an address that is its own, and ends the lease.
// Others neither see nor end it.
func TestLeasesByHTTP(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	path := w.Dir + "/tokens"
	if err := os.WriteFile(path, []byte("ci "+ciToken+" pools=A max=2\nother "+otherToken+"\ntrust "+trustToken+
		" trust\nadmin "+adminToken+" admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := w.WebPool([]string{"--token-file", path}, "BROWSER=chrome-headless-shell", "_A_IS_DEFAULT=1",
		"_A_ISOLATION=context", "_A_INSTANCES=3",
		"_B_INSTANCES=1")
	as := func(token string) webClient { return webClient{t, p.HTTP, token} }
	ci, other, trust, admin := as(ciToken), as(otherToken), as(trustToken), as(adminToken)

	l := ci.lease(`{"holder":"nightly","ttl":"1h"}`)
	if !strings.HasPrefix(l.Instance.HTTPURL, p.HTTP+"/lease/"+l.Lease.ID+".") || l.Instance.PID != 0 {
		t.Errorf("its address is %s", l.Instance.HTTPURL)
	}
	if _, b := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); !strings.Contains(b,
		`"`+l.Instance.WSURL+`"`) {
		t.Errorf("/json/version: %s, not %s", b, l.Instance.WSURL)
	}
	if got := cmdtest.AskOnce(t, l.Instance.WSURL, "Target.getTargets", "{}"); !strings.Contains(got, "about:blank") {
		t.Errorf("its targets are %s", got)
	}
	wrong := strings.Replace(l.Instance.HTTPURL, l.Lease.ID+".", l.Lease.ID+".x", 1)
	if code, b := cmdtest.Get(t, "GET", wrong+"/json/version"); code != 404 {
		t.Errorf("with another secret: %d %s", code, b)
	}
	if code, b := ci.do("/leases", ""); code != 200 || !strings.Contains(b, l.Lease.ID) ||
		!strings.Contains(b, `"by":"token:ci"`) || !strings.Contains(b, l.Instance.WSURL) {
		t.Errorf("its leases: %d %s", code, b)
	}
	if _, b := other.do("/leases", ""); strings.TrimSpace(b) != "[]" {
		t.Errorf("another's leases: %s", b)
	}
	if _, b := other.do("/status", ""); strings.Contains(b, l.Lease.ID) || strings.Contains(b, "nightly") {
		t.Errorf("another token sees %s", b)
	}
	if _, b := admin.do("/status", ""); !strings.Contains(b, l.Lease.ID) || !strings.Contains(b, "nightly") {
		t.Errorf("an administrator sees %s", b)
	}
	for _, path := range []string{"/renew", "/release"} {
		if code, b := other.do(path, fmt.Sprintf(`{"lease":%q}`, l.Lease.ID)); code != 404 {
			t.Errorf("%s of another's lease: %d %s", path, code, b)
		}
	}
	if code, b := ci.do("/renew", fmt.Sprintf(`{"lease":%q,"ttl":"2h"}`, l.Lease.ID)); code != 200 ||
		!strings.Contains(b, l.Instance.WSURL) {
		t.Errorf("renew: %d %s", code, b)
	}

	for body, want := range map[string]string{
		`{"pool":"B"}`: "403 the token ci may not lease from the pool B", `{"pool":"C"}`: "404 ", `{`: "400 ",
		`[]`:                "400 ",
		`{"timeout":"-1s"}`: "400 ", `{"ttl":5}`: `400 `, `{"pol":"A"}`: "400 ", `{} {}`: "400 ",
		`{"state":{"cookies":1}}`: "400 ", `{"state":"none"}`: "404 ", `{"holder":"` + strings.Repeat("x", 2<<20) +
			`"}`: "413 ",
	} {
		code, b := ci.do("/lease", body)
		if got := fmt.Sprint(code, " ", b); !strings.HasPrefix(got, want[:4]) || !strings.Contains(got, want[4:]) {
			t.Errorf("lease with %.40s: %.200s, want %s", body, got, want)
		}
	}
	if code, b := other.do("/lease", `{"pool":"B"}`); code != 403 || !strings.Contains(b, "trust") {
		t.Errorf("a whole browser without trust: %d %s", code, b)
	}
	for token, want := range map[string]int{"": 401, "wrong-wrong-wrong-wrong": 401} {
		if code, b := as(token).do("/lease", "{}"); code != want {
			t.Errorf("with the token %q: %d %s", token, code, b)
		}
	}
	if code, b := as("").do("/healthz", ""); code != 200 || b != "ok\n" {
		t.Errorf("/healthz without a token: %d %s", code, b)
	}

	whole := trust.lease(`{"pool":"B"}`)
	if _, b := cmdtest.Get(t, "GET", whole.Instance.HTTPURL+"/json/version"); !strings.Contains(b, strings.Replace(
		whole.Instance.HTTPURL, "http", "ws", 1)) {
		t.Errorf("/json/version of a whole browser: %s", b)
	}
	_, path, _ = strings.Cut(whole.Instance.HTTPURL, "/lease/")
	if _, b := cmdtest.Get(t, "GET", whole.Instance.HTTPURL+"/json/list"); !strings.Contains(b,
		`"devtoolsFrontendUrl": "/lease/`+path+`/devtools/inspector.html?ws=`) {
		t.Errorf("/json/list of a whole browser: %s", b)
	}
	if got := cmdtest.AskOnce(t, whole.Instance.WSURL, "Browser.getVersion", "{}"); !strings.Contains(got, "Chrome") {
		t.Errorf("a whole browser says %s", got)
	}
	if code, b := trust.do("/release", `{"all":true}`); code != 200 || !strings.Contains(b, whole.Lease.ID) ||
		strings.Contains(b, l.Lease.ID) {
		t.Errorf("release of all: %d %s", code, b)
	}
	if code, b := cmdtest.Get(t, "GET", whole.Instance.HTTPURL+"/json/version"); code != 410 ||
		!strings.Contains(b, "lease_ended") {
		t.Errorf("after its end a whole browser answers %d %s", code, b)
	}

	// The third lease of a token with max=2 waits for the end of one.
	second := ci.lease("{}")
	if code, b := ci.do("/lease", `{"pool":"B","timeout":"1h"}`); code != 403 {
		t.Errorf("a pool that is not the token's, whose line is full: %d %s", code, b)
	}
	if code, b := ci.do("/lease", `{"timeout":"0s"}`); code != 504 || !strings.Contains(b,
		"token ci has the 2 leases") {
		t.Errorf("one too many: %d %s", code, b)
	}
	cmdtest.Until(t, "it is logged", func() bool {
		return strings.Contains(p.Errs.String(), "a request got no lease pool=A instance=\"\" by=token:ci")
	})
	third := make(chan cmdtest.Leased, 1)
	go func() { third <- ci.lease(`{"timeout":"30s","state":{"cookies":[],"origins":[]}}`) }()
	select {
	case x := <-third:
		t.Errorf("a third lease: %+v", x)
	case <-time.After(100 * time.Millisecond):
	}
	if code, b := ci.do("/release", fmt.Sprintf(`{"lease":%q}`, l.Lease.ID)); code != 200 {
		t.Errorf("release: %d %s", code, b)
	}
	if x := <-third; x.Lease.ID == second.Lease.ID {
		t.Errorf("the third lease is the second: %+v", x)
	}
	if code, b := cmdtest.Get(t, "GET", l.Instance.HTTPURL+"/json/version"); code != 410 || !strings.Contains(b,
		"lease_ended") {
		t.Errorf("after its end it answers %d %s", code, b)
	}

	// A WebSocket is a lease, and ends it.
	c := cmdtest.Dial(t, strings.Replace(p.HTTP, "http", "ws", 1)+"/connect?holder=cast&token="+otherToken)
	if got := c.Ask("Browser.getVersion", "{}"); !strings.Contains(got, "Chrome") {
		t.Errorf("the WebSocket says %s", got)
	}
	if _, b := other.do("/leases", ""); !strings.Contains(b, "token:other") {
		t.Errorf("its lease is not there: %s", b)
	}
	c.Conn.Close(websocket.Normal, "")
	cmdtest.Until(t, "the lease of a WebSocket ends", func() bool {
		_, b := other.do("/leases", "")
		return strings.TrimSpace(b) == "[]"
	})
	for _, token := range []string{ciToken, otherToken, trustToken, adminToken} {
		if strings.Contains(p.Errs.String(), token) {
			t.Errorf("the log has a token: %s", p.Errs.String())
		}
	}
	p.Stop()
	w.Clean()
}

// The port is encrypted, with a certificate that may change, and the addresses of leases are those that clients know.
func TestLeasesByHTTPS(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	tokens, cert, key := w.Dir+"/tokens", w.Dir+"/cert.pem", w.Dir+"/key.pem"
	if err := os.WriteFile(tokens, []byte("ci "+ciToken+" trust\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := writeCertificate(t, cert, key)
	p := w.WebPool([]string{"--token-file", tokens, "--tls-cert", cert, "--tls-key", key, "--public-url",
		"https://pool.example/browsers/"}, "_A_INSTANCES=2", "_A_IS_DEFAULT=1")
	ask := func(root *x509.Certificate) (int, string, error) {
		roots := x509.NewCertPool()
		roots.AddCert(root)
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots},
			DisableKeepAlives: true}}
		r, _ := http.NewRequestWithContext(t.Context(), "POST", p.HTTP+"/lease", strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+ciToken)
		resp, err := client.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b), err
	}
	var l cmdtest.Leased
	if code, b, err := ask(first); err != nil || code != 200 || json.Unmarshal([]byte(b), &l) != nil ||
		!strings.HasPrefix(l.Instance.HTTPURL, "https://pool.example/browsers/lease/") ||
		!strings.HasPrefix(l.Instance.WSURL, "wss://pool.example/browsers/lease/") {
		t.Errorf("%d %s %v", code, b, err)
	}
	second := writeCertificate(t, cert, key)
	if code, b, err := ask(second); err != nil || code == 0 {
		t.Errorf("with the next certificate: %d %s %v", code, b, err)
	}
	p.Stop()
	w.Run("bpool", "serve", "--http", "0", "--tls-cert", cert).Exits(t, 64, "--tls-key")
	w.Run("bpool", "serve", "--http", "0", "--tls-cert", tokens, "--tls-key", key).Exits(t, 78,
		"cannot use the certificate")
	w.Run("bpool", "serve", "--http", "0", "--public-url", "pool.example").Exits(t, 64, "https://pool.example")
	w.Run("bpool", "serve", "--token-file", tokens).Exits(t, 64, "--http")
}

// writeCertificate writes a certificate of 127.0.0.1 and its key, and returns it.
func writeCertificate(t *testing.T, certFile, keyFile string) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der},
		keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
