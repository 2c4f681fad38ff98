package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"btools/lib/cast"
	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/front"
	"btools/lib/lifetime"
	"btools/lib/record"
	"btools/lib/spell"
)

// Cast records a page of a session, or of a browser without sessions.
func Cast(c *cli.Context) error {
	args := c.Args()
	switch {
	case len(args) != 1 && len(args) != 2:
		return c.UsageError("expected a session and the file or directory of the recording")
	case c.Int("fps") < 1 || c.Int("fps") > 60:
		return c.UsageError("--fps must be 1 to 60, not %d", c.Int("fps"))
	case c.IsSet("duration") && c.Duration("duration") <= 0:
		return c.UsageError("--duration must be positive, such as 30s")
	}
	token, err := flags.ReadToken(c)
	if err != nil {
		return err
	}
	ctx, stop, _ := lifetime.Context()
	defer stop(nil)
	address, err := awaitPage(ctx, c, args[:len(args)-1], token)
	if err != nil {
		return err
	}
	return recordPage(ctx, c, address, token, args[len(args)-1])
}

// awaitPage returns the WebSocket of the page to record, of a named session or of a proxy
// without sessions. With --wait, it waits until there is one.
func awaitPage(ctx context.Context, c *cli.Context, session []string, token string) (string, error) {
	for due := time.Now().Add(time.Second); ; {
		address, err := findPage(ctx, c, session, token)
		var e *exit.Error
		if !c.Bool("wait") || !errors.As(err, &e) || e.Code != exit.Unavailable {
			return address, err
		}
		if !due.IsZero() && time.Now().After(due) {
			due = time.Time{}
			c.Log.Info("waiting for a page: " + err.Error())
		}
		select {
		case <-ctx.Done():
			if i := (*lifetime.Interrupted)(nil); errors.As(context.Cause(ctx), &i) {
				err = exit.Errorf(exit.Signalled+int(i.Signal), "interrupted before there was a page")
			}
			return "", err
		case <-time.After(lookEvery):
		}
	}
}

// lookEvery is how often --wait looks for a page.
const lookEvery = 200 * time.Millisecond

// findPage returns the WebSocket of a page that there is.
func findPage(ctx context.Context, c *cli.Context, session []string, token string) (address string, err error) {
	base := ""
	if len(session) > 0 {
		base, err = sessionBase(c, session[0])
	} else {
		base, err = wholeBase(c)
	}
	if err != nil {
		return "", err
	}
	id, err := castPage(ctx, c, base, token)
	return pageAddress(base, id, token), err
}

// castSink writes a recording, and says what is not in it.
type castSink struct {
	cast.Sink
	c *cli.Context
}

func (s castSink) Private() {
	s.c.Log.Warn("a person has control in private: the recording shows nothing of the page until it is given back")
}

// recordPage records the page at a WebSocket into a file or directory. The end
// of the page is an end like others.
func recordPage(ctx context.Context, c *cli.Context, address, token, path string) error {
	out, err := cast.Create(path, c.Int("fps"))
	if err != nil {
		return fmt.Errorf("cannot record to %s: %w", path, err)
	}
	began := time.Now()
	n, err := cast.Record(ctx, address, "", c.Int("fps"), c.Duration("duration"), castSink{out, c})
	if closeErr := out.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("cannot write the recording: %w", closeErr)
	}
	said := spell.Count(n, "frame") + " in " + time.Since(began).Round(100*time.Millisecond).String()
	switch {
	case err == nil:
		c.Log.Info(said)
		return nil
	case errors.Is(err, cast.ErrClosed), errors.Is(err, cast.ErrLost):
		c.Log.Warn(fmt.Sprintf("the recording has ended with the page: %v; %s", err, said))
		return nil
	case token != "":
		err = errors.New(strings.ReplaceAll(err.Error(), token, "TOKEN"))
	}
	return fmt.Errorf("the recording has failed: %w; %s", err, said)
}

// sessionBase returns the address of a session, which must exist: to connect to
// it would create it.
func sessionBase(c *cli.Context, name string) (string, error) {
	p, name, err := proxyOf(c, name)
	if err != nil {
		return "", err
	}
	all, err := sessionsAt(p)
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range all {
		if s.Name == name && s.HTTPURL != "" {
			return s.HTTPURL, nil
		}
		if s.HTTPURL != "" {
			names = append(names, s.Name)
		}
	}
	e := &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("there is no named session %q", name)}
	if len(names) > 0 {
		e.Hint = "there are: " + strings.Join(names, ", ")
	}
	return "", e
}

// wholeBase returns the address of a proxy without sessions whose browser runs.
func wholeBase(c *cli.Context) (string, error) {
	p, err := pick(c, client.Any)
	if err != nil {
		return "", err
	}
	r, err := api.Status.Ask(context.Background(), p, api.Of{})
	if err != nil {
		return "", err
	}
	e := record.Member[record.Proxy](r, "proxy")
	switch {
	case e.Isolated:
		return "", c.UsageError("the proxy on port %d has sessions: name one of them", e.Port)
	case record.Member[api.ProxyStatus](r, "status").State == "stopped": // to connect would launch one
		return "", exit.Errorf(exit.Unavailable, "no browser is running behind port %d", e.Port)
	case e.Protocol == record.BiDi:
		return "", c.UsageError("the browser behind port %d speaks WebDriver BiDi, which has no screencast", e.Port)
	}
	return e.HTTPURL, nil
}

// pageTimeout is how long the list of pages may take.
const pageTimeout = 30 * time.Second

// listedPage is an entry of the list of pages.
type listedPage struct{ ID, Type, Title, URL string }

// pagesAt returns the list of pages at an address.
func pagesAt(ctx context.Context, base, token string) (pages []listedPage, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	b, err := front.Get(ctx, base+"/json/list", token)
	if err == nil {
		err = json.Unmarshal(b, &pages)
	}
	if err != nil {
		return nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("cannot list the pages: %w", err)}
	}
	return pages, nil
}

// castPage returns the page of --page, else the only one.
func castPage(ctx context.Context, c *cli.Context, base, token string) (string, error) {
	pages, err := pagesAt(ctx, base, token)
	if err != nil {
		return "", err
	}
	var all, used []string
	for _, p := range pages {
		if p.Type != "page" {
			continue
		}
		if p.ID == c.String("page") {
			return p.ID, nil
		}
		all = append(all, p.ID)
		if p.URL != "about:blank" {
			used = append(used, p.ID)
		}
	}
	if len(used) == 0 && !c.Bool("wait") { // the page with which a session begins
		used = all
	}
	if len(used) == 1 && !c.IsSet("page") {
		return used[0], nil
	}
	var list strings.Builder
	for _, p := range pages {
		if p.Type == "page" && slices.Contains(all, p.ID) {
			fmt.Fprintf(&list, "\n  %s %s", p.ID, p.URL)
		}
	}
	switch {
	case len(all) == 0 || len(used) == 0 && !c.IsSet("page"):
		return "", exit.Errorf(exit.Unavailable, "there is no page")
	case c.IsSet("page"):
		return "", exit.Errorf(exit.Unavailable, "there is no page %s; there are:%s", c.String("page"), list.String())
	}
	return "", c.UsageError("there are several pages; choose one with --page:%s", list.String())
}

// pageAddress returns the WebSocket of a page.
func pageAddress(base, id, token string) string {
	address := webSocket(base) + "/devtools/page/" + id
	if token != "" {
		address += "?token=" + url.QueryEscape(token)
	}
	return address
}
