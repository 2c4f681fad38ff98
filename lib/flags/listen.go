package flags

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	ucli "github.com/urfave/cli/v2"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/tokens"
)

// Listening returns the flags of a program that clients connect to; standard is where
// it listens by default.
func Listening(category, standard string) []ucli.Flag {
	return []ucli.Flag{
		&ucli.StringFlag{Name: "listen", Category: category, DefaultText: standard,
			Usage: "listen on `HOST:PORT` or PORT"},
		&ucli.StringFlag{Name: "token-file", Category: category,
			Usage: "require a token in `FILE` from every client"},
		&ucli.StringSliceFlag{Name: "allow-origin", Category: category,
			Usage: "allow web pages from `ORIGIN` to connect (repeatable; * means any)"},
		&ucli.IntFlag{Name: "max-connections", Category: category, Value: 512,
			Usage: "serve at most `N` connections at once"},
	}
}

// OpenTokens reads the file of --token-file. It returns nil without the flag.
func OpenTokens(c *cli.Context, check func([]tokens.Token) error) (*tokens.File, error) {
	if !c.IsSet("token-file") {
		return nil, nil
	}
	f, err := tokens.Open(c.String("token-file"), check, c.Log)
	if err != nil {
		return nil, exit.Errorf(exit.Config, "%w", err)
	}
	return f, nil
}

// ReadToken returns the token that a client is to send to a port with this --token-file, the first one; "" without the
// flag.
func ReadToken(c *cli.Context) (string, error) {
	if !c.IsSet("token-file") {
		return "", nil
	}
	word, err := tokens.First(c.String("token-file"))
	if err != nil {
		return "", exit.Errorf(exit.Config, "%w", err)
	}
	return word, nil
}

// Listen listens on the HOST:PORT or PORT of a flag. Without --token-file, that
// must be a loopback address. With port 0, the system chooses the port.
func Listen(c *cli.Context, flag, addr string) (net.Listener, error) {
	if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
		addr = "127.0.0.1:" + addr
	}
	host, port, err := net.SplitHostPort(addr)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || perr != nil || n > 65535 {
		return nil, c.UsageError("--%s must be HOST:PORT or PORT, not %q", flag, addr)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if ip := net.ParseIP(host); ip == nil && host != "" {
		return nil, c.UsageError("--%s takes an IP address or localhost, not %q", flag, host)
	} else if (ip == nil || !ip.IsLoopback()) && !c.IsSet("token-file") {
		return nil, c.UsageError("--%s %s would let other machines in: give --token-file too, or listen on 127.0.0.1",
			flag, addr)
	}
	network := "tcp"
	if ip := net.ParseIP(host); ip.To4() != nil {
		network = "tcp4" // 0.0.0.0 is not [::]
	}
	l, err := net.Listen(network, net.JoinHostPort(host, port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("port %s on %s is taken", port, host),
			Hint: "port 0 lets the system choose; bport finds a free one"}
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen: %w", err)
	}
	return l, nil
}
