package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"btools/lib/cli"
	"btools/lib/control"
	"btools/lib/downloads"
	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/launcher"
	"btools/lib/proxy"
	"btools/lib/record"
	"btools/lib/state"
	"btools/lib/virtual/sessions"
)

// downloadFlags are the flags of downloads that need --isolate.
var downloadFlags = []string{"downloads", "download-limit", "upload-root"}

// readDownloads reads the flags that say what sessions may download and upload.
func readDownloads(c *cli.Context, s *sessions.Settings) error {
	var err error
	if s.DownloadLimit, err = readLimit(c); err != nil {
		return err
	}
	s.UploadRoots, err = readRoots(c)
	return err
}

func readLimit(c *cli.Context) (int64, error) {
	n, err := downloads.ParseSize(c.String("download-limit"))
	if err != nil {
		return 0, c.UsageError("--download-limit %v, not %q", err, c.String("download-limit"))
	}
	return n, nil
}

// readRoots reads --upload-root: directories, whose links are resolved now.
func readRoots(c *cli.Context) (roots []string, err error) {
	for _, dir := range c.StringSlice("upload-root") {
		if dir, err = filepath.Abs(dir); err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		var st os.FileInfo
		if err == nil {
			st, err = os.Stat(dir)
		}
		if err == nil && !st.IsDir() {
			err = fmt.Errorf("%s is not a directory", dir)
		}
		if err != nil {
			return nil, exit.Errorf(exit.Config, "--upload-root: %v", err)
		}
		roots = append(roots, dir)
	}
	return roots, nil
}

// keepDownloads has the sessions keep their downloads in directories of their
// own, below the program's. A browser on another machine cannot write there.
func keepDownloads(c *cli.Context, p *proxy.Proxy, dir *state.Dir) error {
	if p.Sessions == nil {
		return nil
	}
	if p.Foreign && !isNear(p) {
		for _, f := range downloadFlags {
			if c.IsSet(f) {
				return c.UsageError("--%s needs a browser on this machine", f)
			}
		}
		return nil
	}
	keep := c.String("downloads")
	if c.IsSet("downloads") {
		var err error
		if keep, err = filepath.Abs(keep); err == nil {
			err = os.MkdirAll(keep, 0o700)
		}
		if err != nil {
			return exit.Errorf(exit.Config, "cannot create the directory of the downloads: %v", err)
		}
	}
	p.Sessions.OpenDownloads = func(name string, s sessions.Settings, tell func(string, downloads.File),
	) (*downloads.Files, error) {
		if p.Foreign && name == p.Sessions.Default {
			return nil, nil // the user works with that browser, and looks for the files where they always are
		}
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
	}
	return nil
}

// isNear reports whether the browser of another program runs on this machine.
func isNear(p *proxy.Proxy) bool {
	b, err := p.Launch(context.Background(), options.Options{}, "") // which finds it
	if err != nil {
		return false
	}
	host, _, err := net.SplitHostPort(launcher.Addr(b.Instance))
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// downloadsRequest names a session.
type downloadsRequest struct {
	Name      string `json:"name"`
	Wait      bool   `json:"wait,omitempty"` // until there is a download and none is in progress
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
}

// downloads answers with the downloads of a session.
func (s *service) downloads(ctx context.Context, params json.RawMessage) (any, error) {
	var r downloadsRequest
	if err := json.Unmarshal(params, &r); err != nil || r.Name == "" {
		return nil, control.Errorf(control.BadRequest, "session_downloads takes the name of a session")
	}
	files, err := s.proxy.Sessions.Downloads(r.Name)
	if err != nil || !r.Wait {
		if err != nil {
			return nil, err
		}
		return files.List(), nil
	}
	return control.Later(func() (any, error) { return sessions.AwaitDownloads(ctx, files, r.TimeoutMS) }), nil
}

// Download is the member "download" of a record.
type Download struct {
	downloads.File
	Session string `json:"session"`
	Saved   string `json:"saved,omitempty"` // the path of the copy of --save
}

// Downloads prints the downloads of a session.
func Downloads(c *cli.Context) error {
	out, err := c.Output([]cli.Column{
		{Head: "NAME", Field: "download.name"}, {Head: "STATE", Field: "download.state"},
		{Head: "WHY", Field: "download.why"}, {Head: "BYTES", Field: "download.bytes"},
		{Head: "URL", Field: "download.url"}, {Head: "PATH", Field: "download.path"},
	}, cli.Schema(map[string]any{"download": Download{}}), nil)
	if err != nil {
		return err
	}
	switch {
	case len(c.Args()) != 1:
		return c.UsageError("expected one session")
	case c.IsSet("timeout") && !c.Bool("wait"):
		return c.UsageError("--timeout needs --wait")
	case c.Duration("timeout") <= 0:
		return c.UsageError("--timeout must be positive, such as 5m")
	}
	p, err := isolatedProxy(c)
	if err != nil {
		return err
	}
	r := downloadsRequest{Name: c.Args()[0], Wait: c.Bool("wait"), TimeoutMS: c.Duration("timeout").Milliseconds()}
	bound := statusTimeout
	if r.Wait {
		bound = 0
	}
	var all []downloads.File
	if err := callInto(p, "session_downloads", r, &all, bound); err != nil {
		return err
	}
	for _, f := range all {
		d := Download{File: f, Session: r.Name}
		if c.IsSet("save") && f.State == downloads.Complete {
			dir, err := filepath.Abs(c.String("save"))
			if err == nil {
				d.Saved, err = downloads.Deliver(f.Path, dir, f.Name, false)
			}
			if err != nil {
				return fmt.Errorf("cannot save %s: %w", f.Name, err)
			}
		}
		rec := record.New()
		rec.MustSet("download", d)
		if err := out.Write(rec); err != nil {
			return err
		}
	}
	return out.Close()
}

// Watch prints events of sessions as they happen.
func Watch(c *cli.Context) error {
	out, err := c.Output([]cli.Column{
		{Head: "TIME", Field: "event.time", Show: cli.Clock}, {Head: "EVENT", Field: "event.event"},
		{Head: "SESSION", Field: "event.session"}, {Head: "NAME", Field: "event.download.name"},
		{Head: "BYTES", Field: "event.download.bytes"}, {Head: "WHY", Field: "event.why", Below: true},
	}, cli.Schema(map[string]any{"event": sessions.Event{}}), nil)
	if err != nil {
		return err
	}
	if len(c.Args()) != 0 {
		return c.UsageError("watch has no arguments; --port chooses a proxy")
	}
	p, err := isolatedProxy(c)
	if err != nil {
		return err
	}
	ctx := context.Background()
	cl, err := control.Dial(ctx, p.Control)
	if err != nil {
		return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("the proxy does not answer: %w", err)}
	}
	defer cl.Close()
	for after := int64(-1); ; {
		var got struct{ Events []sessions.Event }
		if err := cl.Call(ctx, "watch", map[string]int64{"after": after}, &got); err != nil {
			var e *control.Error
			if !errors.As(err, &e) {
				return &exit.Error{Code: exit.Unavailable, Err: errors.New("the proxy has ended")}
			}
			return e.Exit()
		}
		for _, e := range got.Events {
			after = e.Number
			r := record.New()
			r.MustSet("event", e)
			if err := out.Write(r); err != nil {
				return err
			}
		}
		if err := out.Close(); err != nil { // flush: a table would wait for more rows
			return err
		}
	}
}

// events answers with the events after a number.
func (s *service) events(ctx context.Context, params json.RawMessage) (any, error) {
	p := struct {
		After int64 `json:"after"` // number of the last known event; -1: only new events
	}{-1}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, control.Errorf(control.BadRequest, "watch takes the number of an event: %v", err)
	}
	return control.Later(func() (any, error) {
		events, err := s.proxy.Sessions.Events(ctx, p.After)
		return map[string]any{"events": events}, err
	}), nil
}

// cloned returns settings whose lists belong to nobody else.
func cloned(s sessions.Settings) sessions.Settings {
	s.UploadRoots = slices.Clone(s.UploadRoots)
	return s
}
