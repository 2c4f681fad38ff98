package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"btools/lib/control"
	"btools/lib/jsonrpc"
	"btools/lib/launch/options"
	"btools/lib/record"
)

func (b *single) parted() *single {
	if b.sessions.Sharing == Whole {
		return nil
	}
	return b
}

func (b *single) arguments() arguments {
	switch {
	case b.parted() == nil:
		return noArguments
	case b.joins != nil:
		return joinedArguments
	}
	return sessionArguments
}

func (b *single) instructions(drives bool) string {
	switch {
	case b.joins != nil && !drives:
		return bareHubInstructions
	case b.joins != nil:
		return hubInstructions + sessionInstructions
	case !drives:
		return bareInstructions
	case b.sessions.Sharing == Apart:
		return apartInstructions + sessionInstructions
	case b.sessions.Sharing == Beside:
		return instructions + sessionInstructions
	}
	return instructions
}

func (b *single) describe(ctx context.Context, s *Session, st *status) {
	rec, err := b.status(ctx)
	if err != nil {
		st.Notes = append(st.Notes, err.Error())
	}
	st.proxied(rec)
	if b.joins != nil && b.up() == nil {
		st.Notes = append(st.Notes, b.joins.missing())
	}
	st.Sessions = s.browsers.(*parts).statuses(ctx)
	if n, places := b.seats.waiting(); n > 0 {
		st.Notes = append(st.Notes, fmt.Sprintf("%d virtual browsers wait: %d have pages, as many as --max-sessions "+
			"allows", n, places))
	}
}

// proxied fills in what a proxy's record says.
func (st *status) proxied(rec *record.Record) {
	if rec == nil {
		return
	}
	var p record.Proxy
	var ps proxyStatus
	rec.Get("proxy", &p)
	rec.Get("status", &ps)
	st.ProxyPort = &p.Port
	st.Running = ps.State == "ready"
	if ps.LastExit != "" {
		st.LastExit = &ps.LastExit
	}
	if ps.LastError != "" {
		st.LastExit = &ps.LastError
	}
	if raw := rec.Raw("browser"); raw != nil && st.Running {
		st.Browser = jsonrpc.Set(raw, "instance", rec.Raw("instance"))
	}
}

// tools are those that launch and stop the one browser. A host that has
// a virtual browser is not to end that of others.
func (b *single) tools(c *Coordinator) []ownTool {
	how, t := b.sessions.Sharing, singleTools{c, b}
	stopInput, restartInput := schemaFile("coordinator_stop_browser.input"),
		schemaFile("coordinator_restart_browser.input")
	ids := ", or that of a session_id,"
	if how == Whole {
		stopInput, restartInput = withoutArgument(stopInput, "session_id"), withoutArgument(restartInput, "session_id")
		ids = ""
	}
	if b.joins != nil {
		stopInput = argumentFiles("instanceId")[0].appendTo(stopInput)
	}
	stop := ownTool{"coordinator_stop_browser", "Stop browser", "Stop the browser" + ids +
		" which loses its pages. Not needed at the end: it stops with the session.",
		stopInput, nil, false, true, t.stop}
	restart := ownTool{"coordinator_restart_browser", "Restart browser", "Replace the browser" + ids +
		" by a fresh one with the same options, if it misbehaves; without one, launch it. Its pages and logins are " +
		"lost; the debugging port stays.",
		restartInput, nil, false, true, t.restart}
	if how == Whole {
		stop.description = strings.Replace(stop.description, "browser which", "browser, which", 1)
	}
	if b.joins != nil {
		stop.description = "Close the tabs of this session, or of that of a session_id. The browser itself stays " +
			"with its user. Not needed when done: they close with the session."
		return []ownTool{stop}
	}
	if how == Apart {
		return []ownTool{stop, restart}
	}
	return []ownTool{
		{"coordinator_launch_browser", "Launch browser", "Launch the browser with another type or with a window. Do " +
			"not call it before using the browser tools: they launch the browser themselves. A browser that runs " +
			"with other options is replaced, which loads its pages again.",
			c.launchInput(), nil, false, true, t.launch},
		stop, restart,
	}
}

// singleTools are what these tools do.
type singleTools struct {
	c *Coordinator
	*single
}

// act has the proxy do something and tells how it is then.
func (t singleTools) act(ctx context.Context, s *Session, method string, o options.Options) (any, error) {
	if _, err := t.single.control(ctx, method, o); err != nil {
		return nil, explain(err)
	}
	if s != nil {
		s.forgetBrowser()
	}
	return t.c.status(ctx, s, nil)
}

func (t singleTools) launch(ctx context.Context, s *Session, args json.RawMessage) (any, error) {
	o := options.Options{Browser: jsonrpc.GetString(args, "browserType")}
	if h := jsonrpc.Get(args, "headless"); h != nil {
		v := string(h) == "true"
		o.Headless = &v
	}
	st, err := t.act(ctx, s, "launch", o)
	var e *control.Error
	if errors.As(err, &e) && strings.Contains(e.Hint, "--no-headless") { // which is not the agent's to leave out
		err = fmt.Errorf("%s (with headless true it needs none)", e.Message)
	}
	return st, err
}

func (t singleTools) stop(ctx context.Context, s *Session, args json.RawMessage) (any, error) {
	if st, done, err := t.endPart(ctx, s, args); done {
		return st, err
	}
	if rec, err := t.single.status(ctx); err == nil && rec == nil {
		return t.c.status(ctx, s, nil) // there is nothing to stop
	}
	t.single.endSession("", hostSession)
	return t.act(ctx, s, "stop", options.Options{})
}

// restart replaces the browser; a virtual one is there again with the next call.
func (t singleTools) restart(ctx context.Context, s *Session, args json.RawMessage) (any, error) {
	if st, done, err := t.endPart(ctx, s, args); done {
		return st, err
	}
	t.single.endSession("", hostSession)
	return t.act(ctx, s, "restart", options.Options{})
}

// endPart ends the virtual browser that the arguments mean. It is not done if
// they mean the browser itself.
func (t singleTools) endPart(ctx context.Context, s *Session, args json.RawMessage) (st any, done bool, err error) {
	id, err := sessionIn(args)
	if err != nil || s == nil {
		return nil, err != nil, err
	}
	of := s.browsers.(*parts)
	if of.nameOf(id) == "" {
		return nil, false, nil
	}
	instance, err := nameIn(args, "instanceId")
	if err != nil {
		return nil, true, err
	}
	if b := t.single; b.joins != nil && instance != "" {
		instance = b.joins.instanceOf(instance)
	}
	of.end(part{id, instance})
	if instance != "" {
		if err := t.joins.check(ctx, instance); err != nil {
			return nil, true, explain(err)
		}
	}
	st, err = t.c.status(ctx, s, nil)
	return st, true, err
}
