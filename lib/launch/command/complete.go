package command

import (
	"slices"
	"strconv"
	"strings"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/record"
)

// Instances offers the browsers that run and are not named yet.
func Instances(c *cli.Completion) {
	f, err := c.State().Read()
	if err != nil || c.Bool("all") {
		return
	}
	for _, i := range f.Instances {
		if i.Record == nil || !i.Alive() || slices.Contains(c.Args(), i.ID) {
			continue
		}
		about := record.Member[record.Browser](i.Record, "browser").Type
		if port := record.Member[record.Instance](i.Record, "instance").Port; port > 0 {
			about += " on port " + strconv.Itoa(port)
		}
		if i.Owner != "" {
			about += " of " + i.Owner
		}
		c.Offer(i.ID, strings.TrimSpace(about))
	}
}

// Hubs offers the ports of the hubs that run.
func Hubs(c *cli.Completion) {
	hubs, _ := client.Hubs.All(c.State())
	for _, p := range hubs {
		c.Offer(strconv.Itoa(p.Port), p.HTTPURL)
	}
}
