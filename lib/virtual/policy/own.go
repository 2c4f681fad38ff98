package policy

import (
	"net/netip"
	"strconv"
	"strings"

	"btools/lib/jsonrpc"
)

// Address returns the address that a command opens or requests; "": none.
func Address(c Command) string {
	for _, p := range rules[c.Method] {
		if p.path == "url" {
			return jsonrpc.GetString(c.Params, "url")
		}
	}
	return ""
}

// LeadsTo reports whether an address may lead to a port of the machine at an IP
// address, which is this machine's if it is a loopback address. A name may, whatever
// it is: names are resolved later. So may an IP address in any form but the usual one.
func LeadsTo(raw string, host netip.Addr, port uint16) bool {
	u := normalize(raw)
	for _, outer := range []string{"view-source", "blob"} {
		if scheme(u) == outer {
			u = normalize(u[len(outer)+1:])
		}
	}
	s := scheme(u)
	number := map[string]uint64{"http": 80, "ws": 80, "https": 443, "wss": 443}[s]
	if number == 0 {
		return false
	}
	authority := strings.TrimLeft(u[len(s)+1:], `/\`)
	if i := strings.IndexAny(authority, `/\?#`); i >= 0 {
		authority = authority[:i]
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	name := authority
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		name = authority[:i]
		if digits := authority[i+1:]; digits != "" {
			var err error
			if number, err = strconv.ParseUint(digits, 10, 16); err != nil {
				return false // Chrome refuses it
			}
		}
	}
	if number != uint64(port) {
		return false
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	if err != nil {
		return true
	}
	a = a.Unmap().WithZone("")
	return a == host.Unmap() || a.IsLoopback() || a.IsUnspecified()
}
