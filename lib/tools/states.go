package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"btools/lib/logins"
	"btools/lib/spell"
)

func manageStates(ctx context.Context, r *reply, a struct {
	Action, Name string
	Overwrite    bool
}) error {
	switch a.Action {
	case "save":
		return r.saveState(ctx, a.Name, a.Overwrite)
	case "load":
		return r.loadState(ctx, a.Name)
	}
	all, bad, err := r.server.ListStates(ctx)
	if err != nil {
		return err
	}
	if len(all)+len(bad) == 0 {
		r.say("There are no named logins: the action save makes one.")
	}
	for _, i := range all {
		r.say("- %s: %s, saved at %s", i.Name, contents(i), i.SavedAt.UTC().Format(time.RFC3339))
	}
	for _, why := range bad {
		r.say("- %s", why)
	}
	return nil
}

// named checks the name of a login.
func named(name string) error {
	if name == "" {
		return errors.New("name is missing: it names the login, such as shop-admin")
	}
	return logins.CheckName(name)
}

// loadState replaces the login of the session.
func (r *reply) loadState(ctx context.Context, name string) error {
	if err := named(name); err != nil {
		return err
	}
	state, err := r.server.LoadState(ctx, name)
	if err != nil {
		return err
	}
	b, err := r.server.chromium(ctx)
	if err != nil {
		return err
	}
	refused, err := b.SetState(ctx, state)
	if err != nil {
		return err
	}
	r.say("This session has the login %q now: %s. A page that is open shows it when it is loaded again.", name,
		contents(state.Describe(name)))
	for _, l := range refused {
		r.say("Left out: %s", oneLine(l))
	}
	return nil
}

func (r *reply) saveState(ctx context.Context, name string, overwrite bool) error {
	if err := named(name); err != nil {
		return err
	}
	if _, err := r.server.connect(ctx); err != nil { // the session begins with its first use
		return err
	}
	saved, lost, err := r.server.SaveState(ctx, name, !overwrite)
	if err != nil {
		return err
	}
	r.say("Saved the login %q: %s", name, contents(saved))
	for _, l := range lost {
		r.say("Not saved: %s", oneLine(l))
	}
	return nil
}

// maxSites is how many sites of a login are listed.
const maxSites = 10

// contents says what a login has, without its values.
func contents(i logins.Info) string {
	text := spell.Count(i.CookieCount, "cookie")
	if len(i.Domains) > 0 {
		text += " of " + sites(i.Domains)
	}
	if len(i.Origins) > 0 {
		text += ", storage of " + sites(i.Origins)
	}
	if at := i.EarliestExpiry; at != nil {
		text += ", the first cookie expires at " + at.UTC().Format(time.RFC3339)
	}
	return text
}

func sites(all []string) string {
	more := ""
	if n := len(all) - maxSites; n > 0 {
		all, more = all[:maxSites], fmt.Sprintf(" and %d more", n)
	}
	return oneLine(strings.Join(all, ", ")) + more
}
