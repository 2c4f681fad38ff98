// Bpool runs named pools of browsers as a service, and leases them first in,
// first out.
package main

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/life"
	"btools/lib/pool/command"
)

func main() {
	socket := &ucli.StringFlag{Name: "socket",
		Usage: "the service's control socket is `FILE` (default: beside the state file)"}
	config := &ucli.StringFlag{Name: "config",
		Usage: "read `FILE` (default: $XDG_CONFIG_HOME/btools/pool.toml, else /etc/btools/pool.toml)"}
	envFile := &ucli.StringFlag{Name: "env-file",
		Usage: "read variables that the environment does not set from `FILE`, such as .env"}
	ttl := &ucli.DurationFlag{Name: "ttl",
		Usage: "it ends after `DURATION` unless renewed (default: the pool's LEASE_TTL)"}
	stopTimeout := func(what string) ucli.Flag {
		return &ucli.DurationFlag{Name: "stop-timeout", Value: 5 * time.Second,
			Usage: "give " + what + " `DURATION` to end before it is killed"}
	}
	cli.Main(&cli.Program{
		Command: cli.Command{Name: "bpool", Usage: "named pools of browsers, leased first in, first out"},
		About:   "The service keeps browsers ready; the other commands speak to it.",
		Commands: []*cli.Command{
			{Name: "serve", Usage: "run the service", Do: command.Serve,
				Flags: slices.Concat([]ucli.Flag{config, envFile, socket,
					&ucli.DurationFlag{Name: "drain-timeout", Value: 30 * time.Second,
						Usage: "give leases `DURATION` to end when told to stop"},
					stopTimeout("a browser"),
					&ucli.StringFlag{Name: "leave", Hidden: true,
						Usage: "for bmcp: launch no browser of `TYPE`, unless LAUNCH is set"},
					&ucli.StringFlag{Name: "http", Usage: "serve /healthz, /status and /metrics on `HOST:PORT|PORT`"},
					&ucli.StringFlag{Name: "token-file",
						Usage: "ask every HTTP client for the token in `FILE`"}},
					life.Flags("", ""))},
			{Name: "check", Usage: "print the configuration that is set, each value with its source", Do: command.Check,
				Flags: []ucli.Flag{config, envFile,
					&ucli.BoolFlag{Name: "all", Usage: "print each value of each instance, including defaults"}}},
			{Name: "status", Usage: "show the state of the pools", ArgsUsage: "[POOL]", Do: command.Status,
				Flags: []ucli.Flag{socket,
					&ucli.BoolFlag{Name: "watch", Usage: "show it again and again, in place, on a terminal"},
					&ucli.BoolFlag{Name: "wide", Usage: "show all of it, however wide the terminal is"}}},
			{Name: "lease", Usage: "lease an instance", ArgsUsage: "[POOL]", TakesCommand: true, Do: command.Lease,
				Flags: slices.Concat([]ucli.Flag{socket,
					&ucli.StringFlag{Name: "instance", Usage: "lease `ID|ALIAS` (default: the one that was returned earliest)"},
					&ucli.DurationFlag{Name: "timeout",
						Usage: "wait at most `DURATION`, 0 not at all (default: the pool's LEASE_TIMEOUT)"},
					ttl, &ucli.BoolFlag{Name: "wait", Usage: "hold the lease until told to stop"}, stopTimeout("CMD")},
					life.Flags("", "the lease "))},
			{Name: "release", Usage: "end leases, named by ID or by records on standard input", ArgsUsage: "[LEASE…]",
				Do: command.Release, Flags: []ucli.Flag{socket,
					&ucli.BoolFlag{Name: "all", Usage: "end all of them"}}},
			{Name: "restart", Usage: "replace browsers at once, even while they are leased", ArgsUsage: "POOL[/ID]",
				Do: command.Restart, Flags: []ucli.Flag{socket}},
			{Name: "drain", Usage: "grant no more leases of a pool, or of all", ArgsUsage: "[POOL]", Do: command.Drain,
				Flags: []ucli.Flag{socket,
					&ucli.BoolFlag{Name: "off", Usage: "give leases again"}}},
			{Name: "scale", Usage: "give a pool another number of instances", ArgsUsage: "POOL N", Do: command.Scale,
				Flags: []ucli.Flag{socket}},
			{Name: "reload", Usage: "make the service read its configuration again, as SIGHUP does", Do: command.Reload,
				Flags: []ucli.Flag{socket}},
			{Name: "watch", Usage: "print events as they happen, one a line", Do: command.Watch, Flags: []ucli.Flag{socket}},
			{Name: "renew", Usage: "extend a lease", ArgsUsage: "LEASE", Do: command.Renew,
				Flags: []ucli.Flag{socket, ttl}},
		},
	})
}
