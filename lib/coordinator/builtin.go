package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"btools/lib/agent/source"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
	"btools/lib/tools"
)

// builtin is the program of the server in bmcp itself: a goroutine.
type builtin struct {
	toIt   *io.PipeWriter
	fromIt *io.PipeReader
	over   chan error
	cancel context.CancelFunc
}

func (x *builtin) Input() io.WriteCloser               { return x.toIt }
func (x *builtin) Output() io.ReadCloser               { return x.fromIt }
func (x *builtin) TryWrite() func([]byte) (int, error) { return nil }
func (x *builtin) Ended() <-chan error                 { return x.over }
func (x *builtin) Kill()                               { x.End() }
func (x *builtin) Sweep() error                        { return nil }
func (x *builtin) Free()                               {}
func (x *builtin) PID() int                            { return os.Getpid() }

func (x *builtin) End() {
	x.cancel()
	x.toIt.Close()
	x.fromIt.Close()
}

// serveBuiltin starts the server in bmcp itself for a browser and an audience.
func (h *Host) serveBuiltin(b source.Browser, to mcp.Audience) child.Starter {
	return func(context.Context, *child.Spec, child.Endpoint, io.Writer) (child.Program, error) {
		return h.startBuiltin(b, to)
	}
}

// undriven returns why the built-in server cannot have a browser.
func undriven(kind string) error {
	return fmt.Errorf("its tools drive browsers based on Chromium, and Firefox, not %s: --mcp %s drives the one of "+
		"Playwright, which %s installs", kind, child.Playwright, child.InstallBrowser(kind))
}

func (h *Host) startBuiltin(b source.Browser, to mcp.Audience) (child.Program, error) {
	s := h.server
	if b.WSURL == "" && b.BiDi == "" {
		return nil, undriven(b.Type)
	}
	in, toIt := io.Pipe()
	fromIt, out := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	x := &builtin{toIt: toIt, fromIt: fromIt, over: make(chan error, 1), cancel: cancel}
	go func() {
		err := tools.Serve(ctx, in, out, tools.Options{Endpoint: b.WSURL, HTTPURL: b.HTTPURL, BiDi: b.BiDi,
			Release: s.Release,
			Own:     source.HasID(b.Session, h.Name()), Arguments: s.Source.Arguments,
			Dir: s.Dir, Only: s.Tools, Callable: s.Callable, NoImages: s.NoImages, SnapshotFiles: s.SnapshotFiles,
			Secrets:       s.Secrets,
			ListPageTools: s.ListPageTools && to == mcp.OfHandshake, PageNames: &h.pageNames,
			AllFiles: s.AllFiles, ListStates: s.listStates, SaveState: s.stateSaver(b),
			LoadState: s.stateLoader(),
			Emptied:   s.Source.Emptied(b), Guest: s.Source.Guest,
			Asks: &h.asks, Stateless: to != mcp.OfHandshake, View: s.viewer(b),
			Clients: func(ctx context.Context) int { return s.Source.Clients(ctx, b) }})
		in.Close()
		out.Close()
		x.over <- err
	}()
	return x, nil
}

// viewer returns what finds a browser's session on the page of bproxy view; nil: nothing does.
func (s *Server) viewer(b source.Browser) func(context.Context, bool) (key, address string, err error) {
	if s.View == nil {
		return nil
	}
	_, session, _ := strings.Cut(b.HTTPURL, "/session/")
	name := cmp.Or(b.Lease, session, strings.ReplaceAll(source.OwnerOf(os.Getpid()), " ", "-")) // as the page has it
	return func(ctx context.Context, start bool) (key, address string, err error) {
		return s.View(ctx, name, start)
	}
}
