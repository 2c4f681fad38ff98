package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/flags"
	statecommand "btools/lib/logins/command"
	"btools/lib/record"
)

// Ports offers the ports of proxies, and HubPorts those of hubs.
func Ports(c *cli.Completion)    { offerPorts(c, client.Any) }
func HubPorts(c *cli.Completion) { offerPorts(c, client.Hubs) }

// proxiesOf returns the proxies with sessions, or that of --port whatever it has. No
// port is connected to that is not listed: systemd would start what it is for.
func proxiesOf(c *cli.Completion) []client.Proxy {
	ps, _ := client.Any.All(c.State())
	return slices.DeleteFunc(ps, func(p client.Proxy) bool {
		if c.IsSet("port") {
			return p.Port != c.Int("port")
		}
		return !p.Isolated
	})
}

func offerPorts(c *cli.Completion, kind client.Kind) {
	ps, _ := kind.All(c.State())
	for _, p := range ps {
		what := ""
		switch {
		case p.Isolated:
			what = "sessions, "
		case p.Extension:
			what = "browsers that join, "
		}
		if p.Owner != "" {
			what += "of " + p.Owner + ", "
		}
		c.Offer(strconv.Itoa(p.Port), fmt.Sprintf("%spid %d", what, p.PID))
	}
}

// SessionNames offers the sessions of the proxies: of --port, or of all. Those without
// a name are offered where they are to be ended.
func SessionNames(c *cli.Completion) {
	ps := proxiesOf(c)
	var asked sync.WaitGroup
	for _, p := range ps {
		asked.Go(func() {
			all, _ := sessionsAt(p) // one that does not answer has none to offer
			for _, s := range all {
				what := fmt.Sprintf("%d tabs", s.TabCount)
				if s.Hibernated {
					what = "hibernated"
				}
				if s.HTTPURL != "" || slices.Equal(c.Args(), []string{"end"}) {
					c.Offer(s.Name, fmt.Sprintf("%s, on port %d", what, p.Port))
				}
			}
		})
	}
	asked.Wait()
}

// SessionToEnd offers the sessions after end.
func SessionToEnd(c *cli.Completion) {
	if c.Args()[0] == "end" && !c.Bool("all") {
		SessionNames(c)
	}
}

// StateNames offers the states of the proxy that runs the sessions.
func StateNames(c *cli.Completion) {
	socket := ""
	if ps := client.Preferred(proxiesOf(c)); len(ps) == 1 {
		socket = string(ps[0].Control)
	}
	statecommand.Offer(c, socket)
}

// Pages offers the pages of the session that is named, else of the only browser. A
// session that is hibernated stays so.
func Pages(c *cli.Completion) {
	token, err := flags.ReadToken(c.Context)
	ps := proxiesOf(c)
	if err != nil || c.IsSet("port") && len(ps) == 0 {
		return
	}
	base := ""
	for _, p := range ps {
		all, _ := sessionsAt(p)
		for _, s := range all {
			if len(c.Args()) > 0 && s.IsCalled(c.Args()[0]) && !s.Hibernated {
				base = s.HTTPURL
			}
		}
	}
	if base == "" {
		if base, err = wholeBase(c.Context); err != nil {
			return
		}
	}
	pages, _ := pagesAt(context.Background(), base, token)
	for _, p := range pages {
		if p.Type == "page" {
			c.Offer(p.ID, cmp.Or(p.URL, p.Title))
		}
	}
}

// Joined offers the browsers that have joined a hub and that nobody has claimed.
func Joined(c *cli.Completion) {
	if c.IsSet("port") && len(proxiesOf(c)) == 0 {
		return
	}
	p, err := pick(c.Context, client.Hubs)
	if err != nil {
		return
	}
	for _, r := range instancesOf(p) {
		if j := record.Member[record.Joined](r, "joined"); !j.Claimed {
			c.Offer(j.ID, fmt.Sprintf("%d tabs, %s", j.Tabs, j.UserAgent))
		}
	}
}
