package pool

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"btools/lib/find"
	"btools/lib/fleet"
	"btools/lib/record"
)

// protocol returns the protocol of the browser that BROWSER selects.
func protocol(browser string) string {
	var b record.Browser
	switch {
	case filepath.IsAbs(browser):
		b, _ = find.Inspect(browser, "")
	case browser == "":
		home, _ := os.UserHomeDir()
		o := find.Options{Getenv: os.Getenv, Home: home}
		if best, _, err := find.Browsers(context.Background(), o); err == nil &&
			len(best) > 0 {
			b = best[0]
		}
	default:
		b.Type = record.Canonical(browser)
	}
	if b.Type == record.Firefox {
		return record.BiDi
	}
	return record.CDP
}

// setAddresses sets the addresses of the instance's permanent endpoint, or of the session
// of a lease there.
func (s *slot) setAddresses(i *record.Instance, lease string) {
	host, port, _ := net.SplitHostPort(s.addr)
	i.Host = host
	i.Port, _ = strconv.Atoi(port)
	path, socket := "", "/devtools/browser"
	switch {
	case s.shares():
		path, socket = fleet.Prefix+lease, "/devtools/browser/"+lease
	case i.Protocol == record.BiDi:
		socket = "/session"
	}
	i.HTTPURL, i.WSURL = "http://"+s.addr+path, "ws://"+s.addr+path+socket
}
