package pool

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"btools/lib/find"
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

// setStableAddresses sets the addresses of the instance's permanent endpoint.
func (s *slot) setStableAddresses(i *record.Instance) {
	host, port, _ := net.SplitHostPort(s.addr)
	i.Host = host
	i.Port, _ = strconv.Atoi(port)
	i.HTTPURL, i.WSURL = "http://"+s.addr, "ws://"+s.addr+"/devtools/browser"
	if i.Protocol == record.BiDi {
		i.WSURL = "ws://" + s.addr + "/session"
	}
}
