package command

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

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
	"btools/lib/settings"
	"btools/lib/sibling"
	"btools/lib/state"
)

// keepDownloads has the sessions keep their downloads in directories of their
// own, below the program's. A browser on another machine cannot write there.
func keepDownloads(c *cli.Context, p *proxy.Proxy, dir *state.Dir) error {
	if p.Sessions == nil {
		return nil
	}
	if p.Foreign && !isNear(p) {
		for _, f := range []string{"downloads", "download-limit", "upload-root", "download-root"} {
			if c.IsSet(f) {
				return c.UsageError("--%s needs a browser on this machine", f)
			}
		}
		return nil
	}
	open, err := openDownloads(p.Sessions.Defaults.Downloads, dir)
	if err != nil {
		return err
	}
	p.Sessions.OpenDownloads = func(name string, s settings.Settings, tell func(string, downloads.File),
	) (*downloads.Files, error) {
		if p.Foreign && name == p.Sessions.Default {
			return nil, nil // the user works with that browser, and looks for the files where they always are
		}
		return open(name, s, tell)
	}
	return nil
}

// opener opens the downloads of a session.
type opener func(name string, s settings.Settings, tell func(string, downloads.File)) (*downloads.Files, error)

// openDownloads returns a function that keeps the downloads of a session in a directory
// of its own, and in keep, unless that is "", also after its end.
func openDownloads(keep string, dir *state.Dir) (opener, error) {
	if keep != "" {
		if err := os.MkdirAll(keep, 0o700); err != nil {
			return nil, exit.Errorf(exit.Config, "cannot create the directory of the downloads: %v", err)
		}
	}
	return func(name string, s settings.Settings, tell func(string, downloads.File)) (*downloads.Files, error) {
		at, err := dir.Make(context.Background())
		if err != nil {
			return nil, err
		}
		if at, err = os.MkdirTemp(at, "session-"); err != nil { // an earlier one of this name may still end
			return nil, fmt.Errorf("cannot make the directory of the downloads: %w", err)
		}
		o := downloads.Options{Dir: at, Limit: s.DownloadLimit, Tell: tell}
		if keep != "" {
			o.Keep = filepath.Join(keep, name)
		}
		return downloads.New(o)
	}, nil
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
func (s *service) downloads(ctx context.Context, r api.DownloadsRequest) (any, error) {
	if r.Session == "" {
		return nil, errNoSession
	}
	files, err := s.proxy.Sessions.Downloads(r.Session)
	if err != nil || !r.Wait {
		if err != nil {
			return nil, err
		}
		return files.List(), nil
	}
	return control.Later(func() (any, error) { return fleet.AwaitDownloads(ctx, files, r.TimeoutMS) }), nil
}

// Download is the member "download" of a record.
type Download struct {
	downloads.File
	Session string `json:"session"`
	Saved   string `json:"saved,omitempty"` // the path of the copy of --save
}

// DownloadRecords are the records of downloads.
var DownloadRecords = downloadscommand.Records(Download{})

// Downloads prints the downloads of a session.
func Downloads(c *cli.Context) error {
	of := func(name string, r api.DownloadsRequest) ([]downloads.File, error) {
		p, whole, err := proxyOf(c, name)
		if err != nil {
			return nil, err
		}
		r.Session = whole
		return api.Downloads.Ask(context.Background(), p, r)
	}
	return downloadscommand.Print(c, "session", of,
		func(f downloads.File, session, saved string) Download { return Download{f, session, saved} })
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
	if len(c.Args()) != 0 {
		return c.UsageError("watch has no arguments; --port chooses a proxy")
	}
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

// events answers with the events after a number.
func (s *service) events(ctx context.Context, p api.WatchRequest) (any, error) {
	return control.Later(func() (any, error) {
		events, err := s.proxy.Sessions.Events(ctx, p.After)
		return api.EventList[fleet.Event]{Events: events}, err
	}), nil
}
