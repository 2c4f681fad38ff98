// Package oauth gets tokens for MCP servers at URLs, as the authorization of MCP has it: a
// person consents in a browser, and the tokens are kept in files of this user, one for each
// URL. (The client of mcp-go links a validator of schemas, which compiles its own schemas
// whenever a program starts.) No error of this package has a token or a code in it.
package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"btools/lib/private"
)

// Store is a directory of tokens.
type Store struct{ Dir string }

// Open returns the store of this user, $XDG_STATE_HOME/btools/auth; home is the user's home
// directory.
func Open(getenv func(string) string, home string) (*Store, error) {
	dir, err := private.StateDir(getenv, home, "auth")
	if err != nil {
		return nil, err
	}
	return &Store{Dir: dir}, nil
}

// grant is the content of a file: the tokens, and where to get new ones.
type grant struct {
	TokenEndpoint string    `json:"token_endpoint"`
	ClientID      string    `json:"client_id"`
	Resource      string    `json:"resource"`
	AccessToken   string    `json:"access_token"`
	RefreshToken  string    `json:"refresh_token,omitempty"`
	ExpiresAt     time.Time `json:"expires_at,omitzero"`
}

// refreshTimeout bounds a refresh. It is shorter than other programs wait for the lock.
const refreshTimeout = 8 * time.Second

// early is how long before its end a token is refreshed.
const early = 10 * time.Second

// errEnded says that a token has expired and the server gives no new one.
var errEnded = errors.New("the token has expired")

func (s *Store) path(at string) string {
	sum := sha256.Sum256([]byte(at))
	return filepath.Join(s.Dir, hex.EncodeToString(sum[:12])+".json")
}

// Has reports whether there are tokens for a URL.
func (s *Store) Has(at string) bool {
	_, err := os.Lstat(s.path(at))
	return err == nil
}

// Token is the token for a URL, which is refreshed if it has expired; "" if there is none.
func (s *Store) Token(ctx context.Context, at string) (string, error) {
	g, err := s.read(at)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil || g.isValid() {
		return g.AccessToken, err
	}
	err = s.locked(ctx, func() error {
		if g, err = s.read(at); err != nil || g.isValid() { // another program has refreshed it
			return err
		}
		if g.RefreshToken == "" {
			return errEnded
		}
		// The server may take the old one once only: who gives up is not to lose the new one.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
		defer cancel()
		form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {g.RefreshToken}}
		if err := g.ask(ctx, form); err != nil {
			return err
		}
		return s.write(at, g)
	})
	if err != nil {
		return "", err
	}
	return g.AccessToken, nil
}

// End deletes the tokens for a URL. Existed says that there were some.
func (s *Store) End(ctx context.Context, at string) (existed bool, err error) {
	if !s.Has(at) {
		return false, nil
	}
	return true, s.locked(ctx, func() error { return os.Remove(s.path(at)) })
}

func (g *grant) isValid() bool {
	return g.AccessToken != "" && (g.ExpiresAt.IsZero() || time.Until(g.ExpiresAt) > early)
}

func (s *Store) read(at string) (g grant, err error) {
	if err := private.CheckDir(s.Dir); err != nil {
		return g, err
	}
	b, err := private.ReadFile(s.path(at))
	if err == nil && json.Unmarshal(b, &g) != nil {
		err = fmt.Errorf("%s is not valid", s.path(at))
	}
	return g, err
}

func (s *Store) write(at string, g grant) error {
	b, err := json.Marshal(g)
	if err != nil {
		return err
	}
	return private.WriteFile(s.path(at), b)
}

// locked calls f with the directory locked against other programs.
func (s *Store) locked(ctx context.Context, f func() error) error {
	if err := private.MakeDir(s.Dir); err != nil {
		return err
	}
	l, err := private.LockFile(ctx, filepath.Join(s.Dir, ".lock"))
	if err != nil {
		return err
	}
	defer l.Close()
	return f()
}
