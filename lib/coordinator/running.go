package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/liveness"
	"btools/lib/mcp"
	"btools/lib/mcp/child"
)

// running is a child that runs, for its supervisor.
type running struct {
	*child.Process
	sup          *supervisor
	capabilities json.RawMessage // once it is initialized
	// logLevel is the least severe level that it does not log, for hosts of the stateless protocol.
	logLevel atomic.Int32
	listing  atomic.Int32              // of its tools: notListing, isListing or listChanged
	pinged   atomic.Pointer[time.Time] // when it last answered a ping; nil: it has not been pinged
}

// States of the list of a child's tools.
const (
	notListing  = iota
	isListing   // the child is asked for it
	listChanged // the same, but it has changed since
)

// run starts the child of a supervisor, and reads its messages until the child has ended.
func (sup *supervisor) run(ctx context.Context) (*running, error) {
	p := &running{sup: sup}
	p.logLevel.Store(int32(len(mcp.Levels)))
	s := sup.host.server
	start := s.Start
	if sup.child.Builtin {
		start = sup.host.serveBuiltin(sup.browser, sup.audience)
	}
	var err error
	p.Process, err = child.Start(ctx, start, sup.child, endpointOf(sup.browser), p, s.Stderr, s.Limits.Child)
	if err != nil {
		return nil, err
	}
	sup.host.work.Go(p.Run) // whose end waits for this start
	return p, nil
}

func endpointOf(b source.Browser) child.Endpoint {
	return child.Endpoint{ID: b.ID, HTTPURL: b.HTTPURL, WSURL: b.WSURL, Port: b.Port, Type: b.Type,
		Headless: b.Headless, Profile: b.Profile, Windows: b.Windows}
}

// can reports whether the child has a capability.
func (p *running) can(names ...string) bool { return jsonrpc.Get(p.capabilities, names...) != nil }

// logs lowers the level that the child logs, if necessary. Of allLevels, the host has
// told it by itself.
func (p *running) logs(level int) {
	if level == mcp.AllLevels || !p.can("logging") {
		return
	}
	for {
		was := p.logLevel.Load()
		if int32(level) >= was {
			return
		}
		if p.logLevel.CompareAndSwap(was, int32(level)) {
			p.Tell("logging/setLevel", jsonrpc.Set(nil, "level", jsonrpc.Quote(mcp.Levels[level])))
			return
		}
	}
}

// ping has the child answer a ping.
func (p *running) ping(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err := p.Call(ctx, "ping", nil)
	switch {
	case errors.As(err, new(*jsonrpc.Error)): // which is an answer
		return nil
	case err != nil && p.Gone() != nil:
		return liveness.ErrNotChecked
	}
	return err
}
