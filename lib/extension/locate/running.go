package locate

import (
	"slices"

	"btools/lib/extension"
	"btools/lib/record"
	"btools/lib/state"
)

// Running returns the hubs that run on this machine, the one on the default port
// first.
func Running(f *state.File) (hubs []state.Proxy) {
	for _, p := range f.Proxies {
		var e record.Proxy
		p.Record.Get("proxy", &e)
		switch {
		case !e.Extension || !p.Process.Alive():
		case e.Port == extension.DefaultPort:
			hubs = slices.Insert(hubs, 0, p)
		default:
			hubs = append(hubs, p)
		}
	}
	return hubs
}
