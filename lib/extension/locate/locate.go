// Package locate finds the hub that a browser is to join.
package locate

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"btools/lib/exit"
	"btools/lib/record"
	"btools/lib/state"
)

// Hub is a running hub.
type Hub struct {
	URL      string `json:"url"`
	Control  string `json:"control"`   // its control socket
	CodeFile string `json:"code_file"` // which has its pairing code
}

// Find returns the hub with this port or address, or, if name is "", the only
// one that is running. Hubs are found in the state file.
func Find(store *state.Store, name string) (Hub, error) {
	wanted, err := matcher(name)
	if err != nil {
		return Hub{}, err
	}
	f, err := store.Read()
	if err != nil {
		return Hub{}, state.Explain(err)
	}
	var found []Hub
	var ports []string
	for _, p := range Running(f) {
		var at record.Proxy
		if _, err := p.Record.Get("proxy", &at); err == nil && wanted(at) {
			found = append(found, Hub{at.HTTPURL, p.Control, at.PairingFile})
			ports = append(ports, strconv.Itoa(at.Port))
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return Hub{}, exit.Errorf(exit.Usage, "several hubs are running: name one with --hub %s",
			strings.Join(ports, " or "))
	case name != "":
		return Hub{}, &exit.Error{Code: exit.Unavailable,
			Err:  fmt.Errorf("no hub is running at %s (looked in %s)", name, store.Path()),
			Hint: "bproxy list shows the hubs that are running"}
	}
	return Hub{}, &exit.Error{Code: exit.Unavailable,
		Err:  fmt.Errorf("no hub is running that a browser could join (looked in %s)", store.Path()),
		Hint: "start one with bproxy hub"}
}

// matcher returns a function that reports whether a hub has the name.
func matcher(name string) (func(record.Proxy) bool, error) {
	if name == "" {
		return func(record.Proxy) bool { return true }, nil
	}
	if port, err := strconv.ParseUint(name, 10, 16); err == nil {
		return func(p record.Proxy) bool { return p.Port == int(port) }, nil
	}
	u, err := url.Parse(name)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" {
		return nil, exit.Errorf(exit.Usage,
			"--hub must be a port or an address such as http://127.0.0.1:3300, not %q", name)
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = "80"
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return func(p record.Proxy) bool {
		return strconv.Itoa(p.Port) == port && (p.Host == host || net.ParseIP(host).Equal(net.ParseIP(p.Host)))
	}, nil
}
