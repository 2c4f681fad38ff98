// Bport prints free TCP ports and reserves them for a while, or waits until the
// server on one is there.
package main

import (
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/port"
	"btools/lib/record"
	"btools/lib/state"
	"btools/lib/waitfor"
	"btools/lib/waitfor/command"
)

func main() {
	cli.Main(&cli.Program{
		Command: cli.Command{
			Name: "bport", Usage: "hand out free TCP ports",
			Examples: []string{"port=$(bport -f port)", "bport -n 3 --range 3301-3399",
				"bfind --first | bport | blaunch"},
			Flags: []ucli.Flag{
				&ucli.IntFlag{Name: "count", Aliases: []string{"n"}, Value: 1, Usage: "hand out `N` distinct ports"},
				&ucli.StringFlag{Name: "range", Usage: "choose from `LOW-HIGH`, such as 3301-3399 (default: the " +
					"system chooses)"},
				&ucli.StringFlag{Name: "host", Value: "127.0.0.1", Usage: "choose ports that are free on `ADDRESS`"},
				&ucli.DurationFlag{Name: "reserve", Value: 30 * time.Second,
					Usage: "reserve the ports for `DURATION`, at most 24h"},
				&ucli.StringSliceFlag{Name: "wait",
					Usage: "print nothing; wait until `URL|HOST:PORT` is answered or accepts a connection " +
						"(repeatable)"},
				&ucli.DurationFlag{Name: "wait-timeout", Value: time.Minute,
					Usage: "give up after `DURATION` of --wait"},
			},
			Prints: &cli.Records{Columns: []cli.Column{{Head: "PORT", Field: "port"}}},
			Do:     run, Values: map[string]cli.Values{"ADDRESS": cli.Of("127.0.0.1", "::1", "localhost", "0.0.0.0")},
		},
		About: "Prints records with a member \"port\". As a filter, it adds a port to each record that it reads.",
	})
}

func run(c *cli.Context) error {
	targets, err := command.ReadTargets(c, "wait")
	if err != nil {
		return err
	}
	if targets != nil {
		return wait(c, targets)
	}
	req, err := request(c)
	if err != nil {
		return err
	}
	filtered, err := c.Filter("printing a new one", func(rec *record.Record) error {
		if c.IsSet("count") {
			return c.UsageError("--count and records on standard input exclude each other: each record gets one port")
		}
		ports, err := take(c, req)
		if err == nil {
			rec.MustSet("port", ports[0])
		}
		return err
	})
	if filtered || err != nil {
		return err
	}
	ports, err := take(c, req)
	if err != nil {
		return err
	}
	var rs []*record.Record
	for _, p := range ports {
		rs = append(rs, record.Of("port", p))
	}
	return c.Out.Print(nil, rs...)
}

// wait waits for applications in the place of handing out ports.
func wait(c *cli.Context, targets []waitfor.Target) error {
	for _, f := range []string{"count", "range", "host", "reserve", "output", "field"} {
		if c.IsSet(f) {
			return c.UsageError("--wait and --%s exclude each other: with --wait, no port is handed out", f)
		}
	}
	return command.Wait(c.Context.Context, c, targets)
}

func take(c *cli.Context, req port.Request) ([]int, error) {
	ports, err := port.Take(c.Context.Context, c.State(), req)
	if errors.Is(err, port.ErrExhausted) {
		return nil, &exit.Error{Code: exit.TryAgain, Err: err,
			Hint: "ask for fewer or another --range, or wait until reservations run out"}
	}
	if errors.Is(err, port.ErrDescriptors) {
		return nil, &exit.Error{Code: exit.Failed, Err: err,
			Hint: "ask for fewer, or allow more open files (ulimit -n)"}
	}
	return ports, state.Explain(err)
}

func request(c *cli.Context) (port.Request, error) {
	r := port.Request{N: c.Int("count"), Host: c.String("host"), Reserve: c.Duration("reserve")}
	if r.N < 1 || r.N > 10000 {
		return r, c.UsageError("--count is 1 to 10000, not %d", r.N)
	}
	if r.Reserve < 0 || r.Reserve > state.MaxReserve {
		return r, c.UsageError("--reserve is 0s to 24h, not %v", r.Reserve)
	}
	if r.Host != "localhost" && net.ParseIP(r.Host) == nil {
		return r, c.UsageError("--host is an IP address or localhost, not %q", r.Host)
	}
	if s := c.String("range"); s != "" {
		low, high, ok := strings.Cut(s, "-")
		var err1, err2 error
		r.Low, err1 = strconv.Atoi(low)
		r.Hi, err2 = strconv.Atoi(high)
		if !ok || err1 != nil || err2 != nil || r.Low < 1 || r.Hi > 65535 || r.Low > r.Hi {
			return r, c.UsageError("--range is LOW-HIGH with ports from 1 to 65535, not %q", s)
		}
	}
	return r, nil
}
