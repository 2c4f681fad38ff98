// Package identity has the user's logins at MCP servers elsewhere: OAuth with PKCE, a
// redirection to this machine, and tokens in files of this user alone. The protocol is
// mcp-go's; what is here are the files, the lock between programs, and the page that the
// user's browser comes back to.
package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"

	"btools/lib/exit"
	"btools/lib/private"
)

// Identity is a login at one server. There is one if its file is there.
type Identity struct {
	url, path string
}

// file is its content.
type file struct {
	Version   int              `json:"version"`
	URL       string           `json:"url"`
	Client    string           `json:"client_id"`
	Secret    string           `json:"client_secret,omitempty"`
	Method    string           `json:"token_endpoint_auth_method,omitempty"`
	Challenge []string         `json:"www_authenticate,omitempty"` // by which the server says who issues its tokens
	Token     *transport.Token `json:"token"`
}

const (
	version = 1
	// answerTimeout is how long a server may take for one request of a login.
	answerTimeout = 30 * time.Second
	// early is how long before its end a token is replaced: requests take time, and
	// clocks differ.
	early = 30 * time.Second
)

// Open returns the login of this user at the server with this URL, in a file below
// $XDG_STATE_HOME/btools/auth; home is the user's home directory.
func Open(getenv func(string) string, home, at string) (*Identity, error) {
	base := getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(base) {
		if home == "" {
			return nil, exit.Errorf(exit.Config, "there is no directory for logins: set HOME or XDG_STATE_HOME")
		}
		base = filepath.Join(home, ".local", "state")
	}
	sum := sha256.Sum256([]byte(at))
	return &Identity{at, filepath.Join(base, "btools", "auth", hex.EncodeToString(sum[:8])+".json")}, nil
}

// Exists reports whether there is a login.
func (i *Identity) Exists() bool {
	_, err := os.Lstat(i.path)
	return err == nil
}

// Forget deletes the login. It is no error if there is none.
func (i *Identity) Forget() error {
	if err := os.Remove(i.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot delete the login: %w", err)
	}
	return nil
}

// Header returns the value of Authorization. A token that is about to end is replaced
// before, by one program at a time: the token that replaces it can be used once.
func (i *Identity) Header(ctx context.Context) (string, error) {
	f, err := i.read()
	if err != nil {
		return "", err
	}
	if isOver(f.Token) {
		l, err := private.LockFile(ctx, i.path+".lock")
		if err != nil {
			return "", err
		}
		defer l.Close()
		if f, err = i.read(); err != nil {
			return "", err
		}
	}
	return i.handler(f, "").GetAuthorizationHeader(ctx)
}

func isOver(t *transport.Token) bool {
	return t == nil || !t.ExpiresAt.IsZero() && time.Until(t.ExpiresAt) < early
}

func (i *Identity) read() (*file, error) {
	if err := private.CheckDir(filepath.Dir(i.path)); err != nil {
		return nil, err
	}
	b, err := private.ReadFile(i.path)
	if err != nil {
		return nil, err
	}
	f := &file{}
	if err := json.Unmarshal(b, f); err != nil || f.Version != version || f.URL != i.url {
		return nil, fmt.Errorf("%s is not a login of this server", i.path)
	}
	return f, nil
}

// store is the token of a login in progress or in use, as mcp-go wants it.
type store struct {
	*Identity
	*file
}

// GetToken returns the token; one that is about to end has ended.
func (s store) GetToken(ctx context.Context) (*transport.Token, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.Token == nil {
		return nil, transport.ErrNoToken
	}
	t := *s.Token
	if isOver(&t) {
		t.ExpiresAt = time.Unix(1, 0)
	}
	return &t, nil
}

// SaveToken replaces the file.
func (s store) SaveToken(_ context.Context, t *transport.Token) error {
	s.Token = t
	b, err := json.Marshal(s.file)
	if err != nil {
		return err
	}
	return private.WriteFile(s.path, b)
}

func (i *Identity) handler(f *file, redirect string) *transport.OAuthHandler {
	h := transport.NewOAuthHandler(transport.OAuthConfig{ClientID: f.Client, ClientSecret: f.Secret,
		TokenEndpointAuthMethod: f.Method, RedirectURI: redirect, TokenStore: store{i, f},
		PKCEEnabled: true, HTTPClient: &http.Client{Timeout: answerTimeout}})
	h.SetBaseURL(i.url)
	h.HandleUnauthorizedResponse(&http.Response{Header: http.Header{challengeHeader: f.Challenge}})
	return h
}

// Login logs in: show is given the address that the user opens in a browser, and the
// answer comes back to a port of this machine. The login replaces the one before. Name is
// how the program is known to the server.
func (i *Identity) Login(ctx context.Context, name string, show func(address string)) error {
	if err := private.MakeDir(filepath.Dir(i.path)); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	f := &file{Version: version, URL: i.url}
	if f.Challenge, err = i.challenge(ctx); err != nil {
		return err
	}
	h := i.handler(f, "http://"+l.Addr().String()+"/")
	if err := h.RegisterClient(ctx, name); err != nil {
		return fmt.Errorf("the server does not register this program: %w", err)
	}
	f.Client, f.Secret, f.Method = h.GetClientID(), h.GetClientSecret(), h.GetTokenEndpointAuthMethod()
	verifier, err := transport.GenerateCodeVerifier()
	if err != nil {
		return err
	}
	state, err := transport.GenerateState()
	if err != nil {
		return err
	}
	address, err := h.GetAuthorizationURL(ctx, state, transport.GenerateCodeChallenge(verifier))
	if err != nil {
		return err
	}
	show(address)
	code, err := answer(ctx, l, state)
	if err != nil {
		return err
	}
	lock, err := private.LockFile(ctx, i.path+".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	return h.ProcessAuthorizationResponse(ctx, code, state, verifier)
}

const challengeHeader = "Www-Authenticate"

// challenge asks the server for what it gives to nobody who is not logged in, and returns
// what it says of its logins.
func (i *Identity) challenge(ctx context.Context) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.url, strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := (&http.Client{Timeout: answerTimeout}).Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) { // whose text has the whole URL
			err = u.Err
		}
		return nil, exit.Errorf(exit.Unavailable, "cannot reach the server: %v", err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized {
		return nil, exit.Errorf(exit.Unavailable, "the server asks for no login: it answers %s", res.Status)
	}
	return res.Header.Values(challengeHeader), nil
}

// answer waits until the user's browser comes back with a code. A request with another
// state is not an answer: any page can send one.
func answer(ctx context.Context, l net.Listener, state string) (string, error) {
	type result struct {
		code string
		err  error
	}
	got := make(chan result, 1)
	s := &http.Server{ReadHeaderTimeout: answerTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			if r.URL.Path != "/" || q.Get("state") != state {
				http.Error(w, "This is not the answer to a login.", http.StatusBadRequest)
				return
			}
			res := result{code: q.Get("code")}
			text := "You are logged in. This page can be closed."
			if res.code == "" {
				res.err = errors.New("the login was refused")
				if why := q.Get("error"); why != "" {
					res.err = fmt.Errorf("the login was refused: %q", why)
				}
				text = "The login was refused. This page can be closed."
			}
			fmt.Fprintln(w, text)
			select {
			case got <- res:
			default:
			}
		})}
	go s.Serve(l)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // the page is to be shown
		defer cancel()
		s.Shutdown(ctx)
	}()
	select {
	case r := <-got:
		return r.code, r.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
