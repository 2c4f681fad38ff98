package command

import (
	"context"
	"slices"
	"strings"

	"btools/lib/agent/toolline"
	"btools/lib/cli"
	"btools/lib/shell"
)

// OfferCall offers tools, their arguments, and the elements of the last snapshot.
func OfferCall(c *cli.Completion) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	t := sessionTools(ctx, c.Env)
	for _, choice := range toolline.Complete(t.Tools, c.Args(), c.Word) {
		c.Offer(choice.Word, choice.About)
	}
	if len(c.Args()) == 0 {
		return
	}
	tool, err := toolline.Of(t.Tools).Find(c.Args()[0])
	if err != nil || !slices.ContainsFunc(tool.Next(c.Args()[1:]), func(name string) bool {
		return slices.Contains([]string{"target", "selector", "startTarget", "endTarget", "uid"}, name)
	}) {
		return
	}
	for _, ref := range t.Refs {
		ref, about, _ := strings.Cut(ref, " ")
		c.Offer(ref, about)
	}
}

// OfferSessions offers the names of the sessions of bmcp call.
func OfferSessions(c *cli.Completion) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	sessionsOf(ctx, c.State(), func(all []shell.Session) {
		for _, s := range all {
			if s.Name != "" {
				c.Offer(s.Name, s.URL)
			}
		}
	})
}
