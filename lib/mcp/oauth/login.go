package oauth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"btools/lib/lazy"
)

const (
	timeout = 30 * time.Second // of a request
	maxBody = 1 << 20
)

// client follows no redirection: what is posted is secret.
var client = &http.Client{Timeout: timeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// resource is what the server at a URL says of itself (RFC 9728).
type resource struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported"`
}

// server is what an authorization server says of itself (RFC 8414).
type server struct {
	Issuer    string   `json:"issuer"`
	Authorize string   `json:"authorization_endpoint"`
	Token     string   `json:"token_endpoint"`
	Register  string   `json:"registration_endpoint"`
	Methods   []string `json:"code_challenge_methods_supported"`
}

// Login has a person consent at the page that show is given the URL of, and keeps the tokens.
func (s *Store) Login(ctx context.Context, at string, show func(page string) error) error {
	if !isSafe(at) {
		return errors.New("a token is not to be sent over http: use https")
	}
	res, srv, err := discover(ctx, at)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	back := "http://" + l.Addr().String() + "/callback"
	g := grant{TokenEndpoint: srv.Token, Resource: res.Resource}
	if g.ClientID, err = register(ctx, srv, back); err != nil {
		return err
	}
	verifier, state := rand.Text()+rand.Text(), rand.Text()
	sum := sha256.Sum256([]byte(verifier))
	q := url.Values{"response_type": {"code"}, "client_id": {g.ClientID}, "redirect_uri": {back}, "state": {state},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		"resource": {res.Resource}}
	if len(res.Scopes) > 0 {
		q.Set("scope", strings.Join(res.Scopes, " "))
	}
	page, err := url.Parse(srv.Authorize)
	if err != nil {
		return err
	}
	for name, values := range page.Query() {
		if !q.Has(name) {
			q[name] = values
		}
	}
	page.RawQuery = q.Encode()
	if err := show(page.String()); err != nil {
		return err
	}
	code, err := await(ctx, l, state, srv.Issuer)
	if err != nil {
		return err
	}
	if err := g.ask(ctx, url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {back},
		"code_verifier": {verifier}}); err != nil {
		return err
	}
	return s.locked(ctx, func() error { return s.write(at, g) })
}

// await waits for the browser to come back with a code. A request with another state is not
// that: any page can make one.
func await(ctx context.Context, l net.Listener, state, issuer string) (string, error) {
	type outcome struct {
		code string
		err  error
	}
	done := make(chan outcome, 1)
	srv := &http.Server{ReadHeaderTimeout: timeout, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			var o outcome
			switch o.code = q.Get("code"); {
			case r.URL.Path != "/callback" || r.Method != http.MethodGet || q.Get("state") != state,
				q.Has("iss") && q.Get("iss") != issuer:
				http.Error(w, "This is not the answer to the request of bmcp.", http.StatusBadRequest)
				return
			case q.Has("error"):
				o.err = fmt.Errorf("the authorization is refused: %s", word(q.Get("error")))
			case o.code == "":
				o.err = errors.New("the authorization server answers without a code")
			}
			if o.err != nil {
				io.WriteString(w, "bmcp is not authorized. You can close this page.\n")
			} else {
				io.WriteString(w, "bmcp has the answer. You can close this page.\n")
			}
			select {
			case done <- o:
			default:
			}
		})}
	go srv.Serve(l)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		srv.Shutdown(ctx) // the page is to be written
		srv.Close()
	}()
	select {
	case o := <-done:
		return o.code, o.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

var metadataRule = lazy.Regexp(`(?i)\bresource_metadata="([^"]+)"`)

// discover finds the authorization server of the server at a URL.
func discover(ctx context.Context, at string) (resource, server, error) {
	u, err := url.Parse(at)
	if err != nil {
		return resource{}, server{}, errors.New("it is not a URL")
	}
	u.RawQuery, u.Fragment = "", ""
	res := resource{Resource: u.String(), Servers: []string{u.Scheme + "://" + u.Host}}
	for _, place := range places(ctx, u) {
		var found resource
		if get(ctx, place, &found) == nil {
			if !covers(found.Resource, u) {
				return res, server{}, errors.New("the server says that it is another one")
			}
			if len(found.Servers) > 0 {
				res = found
			}
			break
		}
	}
	issuer := res.Servers[0]
	var srv server
	isRemote := u.Scheme == "https" // and so is not to name services of this machine
	for _, place := range wellKnown(issuer) {
		if isRemote && !strings.HasPrefix(place, "https:") {
			continue
		}
		if get(ctx, place, &srv) == nil {
			break
		}
		srv = server{}
	}
	switch {
	case srv.Authorize == "" || srv.Token == "":
		return res, srv, errors.New("it does not say how to get a token (RFC 8414)")
	case strings.TrimSuffix(srv.Issuer, "/") != strings.TrimSuffix(issuer, "/"):
		return res, srv, errors.New("its authorization server says that it is another one")
	case !slices.Contains(srv.Methods, "S256"):
		return res, srv, errors.New("its authorization server does not support PKCE (S256)")
	case slices.ContainsFunc([]string{srv.Authorize, srv.Token, cmp.Or(srv.Register, srv.Token)},
		func(place string) bool { return !isSafe(place) || isRemote && !strings.HasPrefix(place, "https:") }):
		return res, srv, errors.New("its authorization server does not use https")
	}
	return res, srv, nil
}

// places are where the server at a URL may say who authorizes.
func places(ctx context.Context, u *url.URL) (all []string) {
	origin := u.Scheme + "://" + u.Host
	if req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil); err == nil {
		req.Header.Set("Accept", "text/event-stream")
		if res, err := client.Do(req); err == nil {
			res.Body.Close()
			for _, h := range res.Header.Values("WWW-Authenticate") {
				if m := metadataRule().FindStringSubmatch(h); m != nil && strings.HasPrefix(m[1], origin+"/") {
					all = append(all, m[1])
				}
			}
		}
	}
	const known = "/.well-known/oauth-protected-resource"
	return append(all, origin+known+strings.TrimSuffix(u.EscapedPath(), "/"), origin+known)
}

// covers reports whether a resource is the server at a URL, or all servers of its origin.
func covers(resource string, u *url.URL) bool {
	r, err := url.Parse(resource)
	return err == nil && r.Scheme == u.Scheme && r.Host == u.Host &&
		strings.HasPrefix(u.Path+"/", strings.TrimSuffix(r.Path, "/")+"/")
}

func wellKnown(issuer string) []string {
	u, err := url.Parse(issuer)
	if err != nil || !isSafe(issuer) {
		return nil
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	return []string{origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path, origin + path + "/.well-known/openid-configuration"}
}

// IsSafe reports whether secrets may be sent to a URL: by https, or within this machine.
func IsSafe(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

// isSafe is IsSafe of a text.
func isSafe(at string) bool {
	u, err := url.Parse(at)
	return err == nil && u.Host != "" && IsSafe(u)
}

func get(ctx context.Context, at string, to any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	return do(req, to)
}

// register makes a client of the authorization server (RFC 7591).
func register(ctx context.Context, srv server, back string) (id string, err error) {
	if srv.Register == "" {
		return "", errors.New("its authorization server registers no clients: get a token there, for token_file")
	}
	body, err := json.Marshal(map[string]any{"client_name": "bmcp", "redirect_uris": []string{back},
		"token_endpoint_auth_method": "none", "response_types": []string{"code"},
		"grant_types": []string{"authorization_code", "refresh_token"}})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.Register, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	var answer struct {
		ID string `json:"client_id"`
	}
	if err := do(req, &answer); err != nil {
		return "", fmt.Errorf("cannot register: %w", err)
	}
	if answer.ID == "" {
		return "", errors.New("cannot register: the authorization server answers without a client_id")
	}
	return answer.ID, nil
}

// ask gets tokens.
func (g *grant) ask(ctx context.Context, form url.Values) error {
	form.Set("client_id", g.ClientID)
	form.Set("resource", g.Resource)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.TokenEndpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var answer struct {
		Access  string  `json:"access_token"`
		Refresh string  `json:"refresh_token"`
		Expires seconds `json:"expires_in"`
	}
	if err := do(req, &answer); err != nil {
		return fmt.Errorf("cannot get a token: %w", err)
	}
	if answer.Access == "" || strings.ContainsAny(answer.Access, " \t\r\n") {
		return errors.New("the authorization server answers without a token")
	}
	g.AccessToken, g.RefreshToken = answer.Access, cmp.Or(answer.Refresh, g.RefreshToken)
	g.ExpiresAt = time.Time{}
	if answer.Expires > 0 {
		g.ExpiresAt = time.Now().Add(time.Duration(answer.Expires))
	}
	return nil
}

// seconds is the life of a token: 0 if the server says none that can be read. Some
// servers write the number as a string or with a fraction.
type seconds time.Duration

// UnmarshalJSON never fails: a token whose life is unknown is used until it is refused.
func (s *seconds) UnmarshalJSON(b []byte) error {
	const year = 365 * 24 * 3600
	if n, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64); err == nil && n > 0 {
		*s = seconds(min(n, year) * float64(time.Second))
	}
	return nil
}

// do makes a request whose answer is JSON.
func do(req *http.Request, to any) error {
	req.Header.Set("Accept", "application/json")
	res, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) { // whose text has the URL
			err = u.Err
		}
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		var why struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(b, &why) == nil && why.Error != "" {
			return fmt.Errorf("%s answers %s: %s", req.URL.Host, res.Status, word(why.Error))
		}
		return fmt.Errorf("%s answers %s", req.URL.Host, res.Status)
	}
	if json.Unmarshal(b, to) != nil {
		return fmt.Errorf("%s does not answer with JSON", req.URL.Host)
	}
	return nil
}

var wordRule = lazy.Regexp(`^[a-z_]{1,60}$`)

// word is the code of an error of OAuth.
func word(code string) string {
	if wordRule().MatchString(code) {
		return code
	}
	return "an error without a code"
}
