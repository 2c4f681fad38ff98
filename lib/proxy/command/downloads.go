package command

import (
	"context"
	"net"
	"os"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/downloads"
	downloadscommand "btools/lib/downloads/command"
	"btools/lib/exit"
	"btools/lib/extension/hub"
	"btools/lib/fleet"
	historycommand "btools/lib/history/command"
	"btools/lib/launch/options"
	"btools/lib/proxy"
	"btools/lib/sibling"
)

// keepDownloads has the sessions keep their downloads in directories of their
// own, below the program's. A browser on another machine cannot write there.
func keepDownloads(c *cli.Context, p *proxy.Proxy) error {
	if p.Sessions == nil {
		return nil
	}
	if p.Spec.Foreign && !isNear(p) {
		for _, f := range []string{"downloads", "download-limit", "upload-root", "download-root"} {
			if c.IsSet(f) {
				return c.UsageError("--%s needs a browser on this machine", f)
			}
		}
		return nil
	}
	p.Sessions.Downloads = true
	return makeKeep(p.Sessions.Defaults.Downloads)
}

// makeKeep makes the directory in which downloads stay after the end of their session, unless it is "".
func makeKeep(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return exit.Errorf(exit.Config, "cannot create the directory of the downloads: %v", err)
	}
	return nil
}

// isNear reports whether the browser of another program runs on this machine.
func isNear(p *proxy.Proxy) bool {
	b, err := p.Launch(context.Background(), options.Options{}, "") // which finds it
	if err != nil {
		return false
	}
	host, _, err := net.SplitHostPort(sibling.Addr(b.Instance))
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// downloads answers with the downloads of a session.
func (s *service) downloads(ctx context.Context, r api.DownloadsRequest) ([]downloads.File, error) {
	if r.Session == "" {
		return nil, errNoSession
	}
	files, err := s.proxy.Sessions.DownloadsOf(r.Session)
	switch {
	case err != nil:
		return nil, err
	case r.Wait:
		return fleet.AwaitDownloads(ctx, files, r.TimeoutMS)
	}
	return files.List(), nil
}

// Downloads prints the downloads of a session.
func Downloads(c *cli.Context) error {
	return downloadscommand.Print(c, "session", func(name string) (control.Caller, api.Of, error) {
		p, whole, err := proxyOf(c, name)
		return p, api.Of{Session: whole}, err
	})
}

// Events are the records of events: of sessions, and of browsers that join a hub.
var Events = &cli.Records{Columns: []cli.Column{
	{Head: "TIME", Field: "event.time", Show: cli.Clock}, {Head: "EVENT", Field: "event.event"},
	{Head: "SESSION", Field: "event.session"}, {Head: "NAME", Field: "event.download.name"},
	{Head: "BYTES", Field: "event.download.bytes"}, {Head: "WHY", Field: "event.why", Below: true},
}, Members: map[string]any{"event": struct {
	sessionEvent
	Instance string `json:"instance"` // of a hub
}{}}}

type sessionEvent fleet.Event // its name hides no member

var hubEventColumns = []cli.Column{
	{Head: "TIME", Field: "event.time", Show: cli.Clock}, {Head: "EVENT", Field: "event.event"},
	{Head: "INSTANCE", Field: "event.instance"}, {Head: "WHY", Field: "event.why", Below: true},
}

// Watch prints events of sessions as they happen.
func Watch(c *cli.Context) error {
	p, err := pick(c, client.Watching)
	if err != nil {
		return err
	}
	ctx := context.Background()
	cl, err := p.Dial(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	if !p.Extension {
		return historycommand.Print(ctx, cl, c.Out, "proxy", -1, func(e fleet.Event) int64 { return e.Number })
	}
	if c.Out.Table() {
		c.Out = c.Table(c.Stdout, hubEventColumns)
	}
	return historycommand.Print(ctx, cl, c.Out, "proxy", -1, func(e hub.Event) int64 { return e.Number })
}
