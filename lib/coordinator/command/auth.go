package command

import (
	"context"
	"fmt"
	"strings"

	"btools/lib/cli"
	"btools/lib/lifetime"
	"btools/lib/mcp/child"
	"btools/lib/mcp/oauth"
)

// Auth logs in at the server of a child at a URL, so that bmcp can use it.
func Auth(c *cli.Context) error {
	args := c.Args()
	if len(args) != 1 {
		return c.UsageError("name one child: NAME of --config, or [NAME=]URL as after --mcp")
	}
	spec, err := authSpec(c, args[0])
	if err != nil {
		return err
	}
	store, err := oauth.Open(c.Getenv, c.Home())
	if err != nil {
		return err
	}
	ctx, stop, _ := lifetime.Context()
	defer stop(nil)
	ctx, cancel := context.WithTimeoutCause(ctx, c.Duration("timeout"),
		fmt.Errorf("nobody has logged in within %v", c.Duration("timeout")))
	defer cancel()
	if c.Bool("end") {
		if existed, err := store.End(ctx, spec.URL); err != nil {
			return fmt.Errorf("cannot delete the login at %s: %w", spec.Shown(), err)
		} else if !existed {
			c.Log.Info("there is no login at " + spec.Shown())
		}
		return nil
	}
	err = store.Login(ctx, spec.URL, func(address string) error {
		c.Log.Info("open this address in a browser on this machine, and log in")
		_, err := fmt.Fprintln(c.Stdout, address)
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot log in at %s: %w", spec.Shown(), err)
	}
	c.Log.Info("logged in at " + spec.Shown())
	return nil
}

// authSpec is the child that an argument names.
func authSpec(c *cli.Context, arg string) (child.Spec, error) {
	if strings.Contains(arg, "://") {
		spec, err := child.Parse(arg)
		if err != nil {
			return spec, c.UsageError("%s: %v", spec.Shown(), err)
		}
		return spec, nil
	}
	all, err := children(c)
	if err != nil {
		return child.Spec{}, err
	}
	for _, spec := range all {
		switch {
		case spec.Name != arg:
		case spec.URL == "":
			return spec, c.UsageError("the child %s runs on this machine: it needs no login", arg)
		default:
			return spec, nil
		}
	}
	return child.Spec{}, c.UsageError("no child is named %s: give --config FILE, in which it has a url, or NAME=URL",
		arg)
}

// useLogins gives the children at URLs the logins of this user. With --http all hosts
// would have them.
func useLogins(c *cli.Context, children []child.Spec) {
	store, err := oauth.Open(c.Getenv, c.Home())
	if err != nil { // without a directory there are none
		return
	}
	for i := range children {
		switch spec := &children[i]; {
		case spec.URL == "" || spec.TokenFile != "":
		case !c.IsSet("http") || c.Bool("share-auth"):
			spec.Login = store
		case store.Has(spec.URL):
			c.Log.Warn("the login at " + spec.Shown() + " is not used, because all hosts of --http would share it: " +
				"--share-auth lets them")
		}
	}
}
