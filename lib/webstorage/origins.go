package webstorage

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"btools/lib/jsonrpc"
)

// OriginOf returns the origin of a URL, as Chrome writes it; "" if that is not a
// web page.
func OriginOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// SiteOf returns the site of an origin, or a part of its host that several sites
// have in common: the last two labels of the host, or an IP address.
func SiteOf(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return ""
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	labels := strings.Split(host, ".")
	return strings.Join(labels[max(0, len(labels)-2):], ".")
}

// AddOrigins adds the origins of the frames in a FrameTree.
func AddOrigins(all map[string]bool, tree json.RawMessage) {
	if origin := OriginOf(jsonrpc.GetString(tree, "frame", "url")); origin != "" {
		all[origin] = true
	}
	for child := range jsonrpc.Elements(jsonrpc.Get(tree, "childFrames")) {
		AddOrigins(all, child)
	}
}

// maxVisited is how many origins are saved, the latest.
const maxVisited = 500

// Visits are the origins of the pages that a browser has shown.
type Visits struct {
	count int
	last  map[string]int // by origin, the number of the latest visit
}

// Add notes the URL of a page.
func (v *Visits) Add(url string) {
	origin := OriginOf(url)
	if origin == "" {
		return
	}
	if v.last == nil {
		v.last = map[string]int{}
	}
	v.count++
	v.last[origin] = v.count
	if len(v.last) > 2*maxVisited {
		for _, old := range v.all()[maxVisited:] {
			delete(v.last, old)
		}
	}
}

// Latest returns the origins, the latest first, but not more than are saved.
func (v *Visits) Latest() []string {
	all := v.all()
	return all[:min(len(all), maxVisited)]
}

func (v *Visits) all() []string {
	return slices.SortedFunc(maps.Keys(v.last), func(a, b string) int { return cmp.Compare(v.last[b], v.last[a]) })
}
