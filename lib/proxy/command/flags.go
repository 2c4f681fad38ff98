package command

import (
	"slices"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/flags"
	"btools/lib/settings"
	awaitcommand "btools/lib/waitfor/command"
)

// Categories of flags in help texts.
const ofPort, ofBrowser, ofSessions, ofJoining, ofLife = "Port:", "Browser:", "Sessions:", "Joining:", "Life:"

// theirPort is the port of a program without --listen.
const theirPort = "the port of the record on standard input, else one that the system chooses"

// Flags returns the flags of bproxy. Hidden are those of share and hub, which it had
// before they were commands, and the two by which it does what they do.
func Flags() []ucli.Flag {
	hidden := slices.Concat([]ucli.Flag{&ucli.BoolFlag{Name: "isolate"}, &ucli.BoolFlag{Name: "extension"}}, sharing(),
		joins())
	direct := &ucli.BoolFlag{Name: "direct", Category: ofPort,
		Usage: "show the browser's own address in /json, which bypasses the proxy"}
	return slices.Concat(flags.Listening(ofPort, theirPort), []ucli.Flag{direct}, browsers(), runs(),
		flags.Hidden(hidden...))
}

// ShareFlags returns the flags of bproxy share.
func ShareFlags() []ucli.Flag {
	return append(slices.Concat(flags.Listening(ofPort, theirPort), browsers(), sharing(), runs()),
		&ucli.BoolFlag{Name: "isolate", Value: true, Hidden: true})
}

// HubFlags returns the flags of bproxy hub.
func HubFlags() []ucli.Flag {
	return append(slices.Concat(flags.Listening(ofPort, joinDefault), joins(),
		flags.Settings(settings.Hub, settings.Sessions, ofSessions, "session"), ends()),
		&ucli.DurationFlag{Name: "timeout", Category: ofLife, DefaultText: "0, never",
			Usage: "give up after `DURATION` without a browser for CMD"},
		&ucli.BoolFlag{Name: "extension", Value: true, Hidden: true})
}

func sharing() []ucli.Flag {
	return flags.Settings(settings.Share, settings.Sessions, ofSessions, "session")
}

// browsers returns the flags that say where the browser comes from.
func browsers() []ucli.Flag {
	return slices.Concat([]ucli.Flag{
		&ucli.StringFlag{Name: "trace", Category: ofPort,
			Usage: "append every message, in both directions, to `FILE`; of sessions, to a file each in this " +
				"directory"},
		&ucli.StringFlag{Name: "launch", Category: ofBrowser,
			Usage: "launch with the shell command `CMDLINE`, which prints a record and keeps running " +
				"(default: blaunch --wait)"},
		&ucli.StringFlag{Name: "target", Category: ofBrowser,
			Usage: "use the browser at `URL|FILE` and launch none; FILE is its DevToolsActivePort"},
		&ucli.BoolFlag{Name: "one-connection", Category: ofBrowser,
			Usage: "use one WebSocket to the browser of --target for all clients: its user is asked once"},
	}, flags.Browser(settings.Launches, ofBrowser))
}

// joins returns the flags of browsers that join by the extension.
func joins() []ucli.Flag {
	return []ucli.Flag{
		&ucli.StringFlag{Name: "ports", Category: ofJoining, Value: "3301-3399",
			Usage: "give each browser that joins the lowest free port of `LOW-HIGH`"},
		&ucli.BoolFlag{Name: "all-tabs", Category: ofJoining,
			Usage: "show clients all tabs of the browser, not only their own and those that the user shares"},
		&ucli.StringFlag{Name: "pairing-file", Category: ofJoining,
			Usage: "keep the pairing code in `FILE` (default: in the user's state directory)"},
		&ucli.BoolFlag{Name: "no-pairing", Category: ofJoining,
			Usage: "let any extension of a browser on this machine join, without the pairing code"},
	}
}

// ends returns the flags that say when the program ends.
func ends() []ucli.Flag {
	return append(slices.Concat(awaitcommand.Flags(ofLife), flags.Owner(ofLife, "stop")),
		&ucli.StringFlag{Name: "owner", Category: ofLife,
			Usage: "record `NAME` as the owner: commands then use other proxies, unless the port is named"},
		&ucli.DurationFlag{Name: "stop-timeout", Category: ofLife, Value: 5 * time.Second,
			Usage: "kill the browser, or CMD, if it has not ended `DURATION` after being asked to"})
}

// runs returns the flags that say when the browser runs.
func runs() []ucli.Flag {
	return append(slices.Concat(ends(), flags.Evidence(ofLife),
		flags.Settings(settings.Proxy, settings.Lives, ofLife, "session")),
		&ucli.BoolFlag{Name: "eager", Category: ofLife,
			Usage: "launch the browser, or connect with --one-connection, at once"})
}
