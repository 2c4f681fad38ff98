package command

import (
	"context"
	"runtime"

	"btools/lib/cli"
	"btools/lib/live"
	"btools/lib/live/sources"
	"btools/lib/sibling"
)

// viewOf returns what finds a session on the page of bproxy view, as coordinator.Options.View does. It starts the
// service that serves the page as bproxy view does. No address has a credential: there is one only where the system
// tells whose browser opens it.
func viewOf(c *cli.Context) func(ctx context.Context, session string, start bool) (key, address string, err error) {
	return func(ctx context.Context, session string, start bool) (key, address string, err error) {
		all, err := sources.All(ctx, c.State(), nil)
		if err != nil {
			return "", "", err
		}
		found, err := sources.Find(all, session)
		if err != nil || !start || runtime.GOOS != "linux" {
			return keyOf(found), "", err
		}
		bproxy, err := sibling.Sibling("bproxy")
		if err == nil {
			address, err = live.Address(ctx, c.State(), bproxy, c.Environ(), nil,
				live.OpenRequest{Session: found.Key, Release: cli.Release(), Browse: true})
		}
		return found.Key, address, err
	}
}

// keyOf returns the key of a session; "": there is none.
func keyOf(s *sources.Session) string {
	if s == nil {
		return ""
	}
	return s.Key
}
