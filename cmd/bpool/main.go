// Bpool runs named pools of browsers as a service, and leases them first in,
// first out.
package main

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	downloadscommand "btools/lib/downloads/command"
	"btools/lib/flags"
	statecommand "btools/lib/logins/command"
	"btools/lib/pool/command"
	"btools/lib/settings"
	awaitcommand "btools/lib/waitfor/command"
)

func main() {
	socket := &ucli.StringFlag{Name: "socket",
		Usage: "use the control socket `FILE` (default: $BTOOLS_POOL_SOCKET, else beside the state file)"}
	config := &ucli.StringFlag{Name: "config",
		Usage: "read `FILE` (default: $XDG_CONFIG_HOME/btools/pool.toml, else /etc/btools/pool.toml)"}
	envFile := &ucli.StringFlag{Name: "env-file",
		Usage: "read variables from `FILE`, such as .env; the environment takes precedence"}
	nats := &ucli.StringFlag{Name: "nats", EnvVars: []string{"BTOOLS_POOL_NATS"},
		Usage: "find other hosts by the NATS servers at `URL,…`"}
	ttl := func(standard string) ucli.Flag {
		return &ucli.DurationFlag{Name: "ttl",
			Usage: "the lease ends after `DURATION` unless it is renewed (default: " + standard + ")"}
	}
	stopTimeout := func(what string) ucli.Flag {
		return &ucli.DurationFlag{Name: "stop-timeout", Value: 5 * time.Second,
			Usage: "give " + what + " `DURATION` to end before it is killed"}
	}
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bpool", Usage: "named pools of browsers, leased first in, first out",
			Examples: []string{
				"bpool serve --config pool.toml    # the service: the other commands talk to it",
				"bpool lease -- node script.js {ws_endpoint}",
				"bpool status --watch",
			},
			Values: map[string]cli.Values{"POOL": command.Pools, "POOL/ID": command.PoolsAndInstances,
				"ID|ALIAS": command.Instances, "LEASE": command.Leases, "--state": command.StateNames,
				"NAME|FILE": statecommand.Argument(command.StateNames)},
		},
		Commands: []*cli.Command{
			{Name: "serve", Usage: "run the service", Do: command.Serve, Prints: command.Services,
				Examples: []string{"bpool serve                                # one browser, the best installed",
					"PW_MCP_PROXY__A_INSTANCES=3 bpool serve    # pool A with three",
					"bpool serve --config pool.toml"},
				Flags: slices.Concat([]ucli.Flag{config, envFile, socket,
					&ucli.DurationFlag{Name: "drain-timeout", Value: 30 * time.Second,
						Usage: "when stopping, give leases `DURATION` to end"},
					&ucli.DurationFlag{Name: "retire-timeout", Value: 24 * time.Hour,
						Usage: "after an upgrade, give the leases of before `DURATION` to end"},
					stopTimeout("a browser"),
					&ucli.StringSliceFlag{Name: "variable", Hidden: true,
						Usage: "the configuration is the variable `NAME=VALUE`, and no file"},
					&ucli.StringFlag{Name: "leave", Hidden: true,
						Usage: "for bmcp: launch no browser of `TYPE`, unless LAUNCH is set"},
					&ucli.StringFlag{Name: "http",
						Usage: "serve /healthz, /status, /metrics on `HOST:PORT` or PORT; with tokens also leases"},
					&ucli.StringFlag{Name: "token-file",
						Usage: "require a token in `FILE` from every HTTP client"},
					&ucli.StringFlag{Name: "tls-cert", Usage: "encrypt --http with the certificate in `FILE`"},
					&ucli.StringFlag{Name: "tls-key", Usage: "the key of --tls-cert is in `FILE`"},
					nats,
					&ucli.StringFlag{Name: "public-url",
						Usage: "clients reach --http at `URL`, by a proxy in front of it"}},
					flags.Owner("", "stop"))},
			{Name: "check", Usage: "print the configuration, each value with its source", Do: command.Check,
				Prints: command.Settings, Flags: []ucli.Flag{config, envFile,
					&ucli.BoolFlag{Name: "all", Usage: "print every value of every instance, including defaults"}}},
			{Name: "status", Usage: "show the state of the pools", ArgsUsage: "[POOL]", Do: command.Status,
				Prints: command.PoolRecords, Flags: []ucli.Flag{socket,
					&ucli.BoolFlag{Name: "watch", Usage: "update the table in place every second"},
					&ucli.BoolFlag{Name: "wide",
						Usage: "show all columns and full texts, whatever the terminal's width"}}},
			{Name: "lease", Usage: "lease an instance", ArgsUsage: "[POOL]", TakesCommand: true, Do: command.Lease,
				Prints: command.Granted,
				Examples: []string{"bpool lease -- node script.js {ws_endpoint}    # ends with the command",
					"bpool lease -f lease.id,instance.ws_url        # until bpool release",
					"bpool lease A --wait                           # until this is stopped"},
				Flags: slices.Concat([]ucli.Flag{socket, nats,
					&ucli.StringFlag{Name: "region",
						Usage: "lease from hosts of `REGION` alone (default: of nats_regions, the nearest first)"},
					&ucli.StringFlag{Name: "instance",
						Usage: "lease `ID|ALIAS` (default: the one that was returned earliest)"},
					&ucli.DurationFlag{Name: "timeout",
						Usage: "wait at most `DURATION`; 0 does not wait (default: the pool's LEASE_TIMEOUT)"},
					ttl("the pool's LEASE_TTL"),
					&ucli.BoolFlag{Name: "wait", Usage: "hold the lease until told to stop"}, stopTimeout("CMD")},
					flags.Settings(settings.Lease, settings.Sessions, "", "session"),
					awaitcommand.Flags(""), flags.Evidence(""), flags.Owner("", "end the lease"))},
			{Name: "hosts", Usage: "list the hosts that NATS finds", Do: command.Hosts, Prints: command.HostRecords,
				Flags: []ucli.Flag{nats, config, envFile}},
			{Name: "release", Usage: "end leases, given by ID or as records on standard input", ArgsUsage: "[LEASE…]",
				Do: command.Release, Prints: command.Released, Flags: []ucli.Flag{socket,
					&ucli.BoolFlag{Name: "all", Usage: "end all leases of this user, or of all for root"}}},
			{Name: "restart", Usage: "replace browsers at once, even while they are leased", ArgsUsage: "POOL[/ID]",
				Do: command.Restart, Flags: []ucli.Flag{socket}},
			{Name: "drain", Usage: "stop granting leases of a pool, or of all pools", ArgsUsage: "[POOL]",
				Do: command.Drain,
				Flags: []ucli.Flag{socket, nats, config, envFile,
					&ucli.StringFlag{Name: "host", Usage: "of the host with this `NAME`, which NATS finds"},
					&ucli.BoolFlag{Name: "wait", Usage: "wait until no instance is leased"},
					&ucli.BoolFlag{Name: "move", Usage: "move the leases to other hosts"},
					&ucli.DurationFlag{Name: "timeout", DefaultText: "no limit",
						Usage: "with --wait, wait at most `DURATION`; with --move, move then what is in use"},
					&ucli.BoolFlag{Name: "off", Usage: "grant leases again"}}},
			{Name: "scale", Group: "the service", Usage: "change the number of instances of a pool",
				ArgsUsage: "POOL N", Do: command.Scale, Flags: []ucli.Flag{socket}},
			{Name: "reload", Group: "the service", Do: command.Reload, Flags: []ucli.Flag{socket},
				Usage: "as SIGHUP: upgrade if another version is installed, else read the configuration again"},
			{Name: "upgrade", Group: "the service", Do: command.Upgrade, Flags: []ucli.Flag{socket},
				Usage: "replace the service by the program that is installed now; leases last"},
			{Name: "watch", Usage: "print events as they happen, one a line", Do: command.Watch,
				Prints: command.Events, Flags: []ucli.Flag{socket}},
			{Name: "downloads", Usage: "list or save the files that a lease has downloaded", ArgsUsage: "LEASE",
				Do: command.Downloads, Prints: downloadscommand.Records,
				Flags: append(downloadscommand.Flags(), socket)},
			{Name: "state", Usage: "save the logins of a lease; list, show, delete, import or export saved ones",
				ArgsUsage: statecommand.ArgsUsage, Do: command.States, Prints: statecommand.Records,
				Flags: append(statecommand.Flags("LEASE"), socket)},
			{Name: "renew", Usage: "extend a lease", ArgsUsage: "LEASE", Do: command.Renew,
				Prints: command.Renewed,
				Flags:  []ucli.Flag{socket, ttl("its time to live so far")}},
		},
	})
}
