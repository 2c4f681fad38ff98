package limits

import (
	"net/netip"
	"sync"
)

// kinds are the networks that are not public, by what an error calls them. The first that
// has an address names it.
var kinds = sync.OnceValue(func() (all []network) {
	for _, n := range []struct{ kind, prefix string }{
		{"an address of cloud metadata", "169.254.169.254/32"},
		{"an address of cloud metadata", "168.63.129.16/32"}, // Azure's, which is a public one
		{"an address of cloud metadata", "100.100.100.200/32"},
		{"an address of cloud metadata", "fd00:ec2::254/128"},
		{"this machine", "0.0.0.0/8"},
		{"a private address", "10.0.0.0/8"},
		{"a private address", "100.64.0.0/10"},
		{"a loopback address", "127.0.0.0/8"},
		{"a link-local address", "169.254.0.0/16"},
		{"a private address", "172.16.0.0/12"},
		{"a reserved address", "192.0.0.0/24"},
		{"a private address", "192.168.0.0/16"},
		{"a reserved address", "198.18.0.0/15"},
		{"a multicast address", "224.0.0.0/4"},
		{"a reserved address", "240.0.0.0/4"},
		{"this machine", "::/128"},
		{"a loopback address", "::1/128"},
		{"a private address", "64:ff9b:1::/48"},
		{"a private address", "fc00::/7"},
		{"a link-local address", "fe80::/10"},
		{"a private address", "fec0::/10"},
		{"a multicast address", "ff00::/8"},
	} {
		all = append(all, network{n.kind, netip.MustParsePrefix(n.prefix)})
	}
	return all
})

type network struct {
	kind   string
	prefix netip.Prefix
}

// embedded are the networks of IPv6 whose addresses lead to one of IPv4, and the byte at
// which that stands: compatible ones, NAT64, 6to4.
var embedded = []struct {
	prefix string
	at     int
}{{"::/96", 12}, {"64:ff9b::/96", 12}, {"2002::/16", 2}}

// kindOf says which kind of address that is not public it is; "": it is public.
func kindOf(ip netip.Addr) string {
	ip = ip.Unmap().WithZone("")
	for _, n := range kinds() {
		if n.prefix.Contains(ip) {
			return n.kind
		}
	}
	for _, e := range embedded {
		if b := ip.AsSlice(); len(b) == 16 && netip.MustParsePrefix(e.prefix).Contains(ip) {
			v4, _ := netip.AddrFromSlice(b[e.at : e.at+4])
			return kindOf(v4)
		}
	}
	return ""
}
