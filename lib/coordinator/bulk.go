package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
	"btools/lib/mcp/catalog"
	"btools/lib/results"
)

const bulkName = "browser_execute_bulk"

type bulkCommand struct {
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
	Return bool            `json:"return_result"`
}

type bulkError struct {
	Index int    `json:"index"`
	Tool  string `json:"tool"`
	Error string `json:"error"`
}

type bulkResult struct {
	Success  bool              `json:"success"`
	Executed int               `json:"executed_count"`
	Total    int               `json:"total_count"`
	Results  []json.RawMessage `json:"results"` // a command each; null where none was asked for
	Errors   []bulkError       `json:"errors"`
	Stopped  *int              `json:"stopped_at"` // the command that the rest was left out after
	// States are those of the commands, in a task.
	States []commandState `json:"states,omitempty"`

	at    *source.Lease     // nil: none was needed
	items []json.RawMessage // content of the results that is no text
	fails bool              // the call as such has failed
}

// bulkRun is a bulk call that is being answered.
type bulkRun struct {
	*Host
	req   *request
	asked source.BrowserRef // by the call
	at    *source.Lease     // for all commands; nil: none has needed one
	fail  context.CancelCauseFunc

	shown int // bytes of text that the results have

	task   *taskCall // that executes the call; nil: none does
	states *commandStates

	watching sync.WaitGroup // the browser
}

type bulkArgs struct {
	Commands []bulkCommand `json:"commands"`
	Stop     *bool         `json:"stop_on_error"`
	All      bool          `json:"return_all_results"`
}

// bulk runs tools one after the other on one browser, which is held for all of
// them.
func (s *Server) bulk(ctx context.Context, req *request, args json.RawMessage) (any, error) {
	var p bulkArgs
	if err := json.Unmarshal(args, &p); err != nil {
		return nil, errors.New("the arguments are not those of the tool's schema")
	}
	if len(p.Commands) == 0 {
		return nil, errors.New("there are no commands")
	}
	asked, err := source.RefIn(args, s.chosenBy())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	run := &bulkRun{Host: req.host, req: req, asked: asked, fail: cancel, task: req.task()}
	run.states = newCommandStates(run.task, p.Commands)
	defer func() {
		cancel(nil)
		run.watching.Wait()
		if run.at != nil {
			run.at.Release()
		}
	}()
	out := &bulkResult{Success: true, Total: len(p.Commands), Results: []json.RawMessage{}, Errors: []bulkError{}}
	for i, command := range p.Commands {
		run.states.begin(i)
		result, err := run.do(ctx, command)
		out.at = run.at
		out.Executed++
		if command.Return || p.All || string(jsonrpc.Get(result, "isError")) == "true" {
			result = run.bounded(ctx, command, result)
		}
		if err == nil && string(jsonrpc.Get(result, "isError")) == "true" {
			err = errors.New(firstText(result))
		}
		if result == nil || !command.Return && !p.All {
			result = json.RawMessage("null")
		}
		out.Results = append(out.Results, out.take(result))
		err = run.disconnected(ctx, err)
		run.states.end(i, err)
		if err == nil {
			continue
		}
		out.Success = false
		out.Errors = append(out.Errors, bulkError{i, command.Tool, err.Error()})
		if p.Stop == nil || *p.Stop || ctx.Err() != nil {
			out.Stopped = &i
			break
		}
	}
	out.States = run.states.finish()
	out.fails = run.task != nil && ctx.Err() != nil
	return out, nil
}

// do runs one command.
func (b *bulkRun) do(ctx context.Context, command bulkCommand) (json.RawMessage, error) {
	switch own := b.server.isOwn(command.Tool); {
	case own && (command.Tool == resultTool || command.Tool == blobTool):
		args := orEmpty(command.Args)
		if command.Tool == resultTool && b.asked.Session != "" {
			args = jsonrpc.Set(args, "session_id", jsonrpc.Quote(b.asked.Session))
		}
		return b.req.callOwn(ctx, command.Tool, args)
	case own:
		return nil, fmt.Errorf("%s can't be run in bulk: only the tools of children can", command.Tool)
	}
	r, ok := b.req.find(ctx, command.Tool)
	if !ok {
		return nil, b.req.unknown(command.Tool)
	}
	on := &source.Lease{}
	if r.Child.Drives() {
		if err := b.hold(ctx); err != nil {
			return nil, err
		}
		on = b.at
	}
	params := jsonrpc.Set(nil, "arguments", orEmpty(command.Args))
	params = jsonrpc.Set(params, "name", jsonrpc.Quote(command.Tool))
	if f, ok := results.FormOf(b.req.m.Params); ok && r.Child.Builtin { // the reader is that of the whole call
		params = results.Form{Command: f.Command, Snapshot: f.Snapshot}.AddTo(params)
	}
	if err := b.checkBrowser(r, params); err != nil {
		return nil, err
	}
	m, err := jsonrpc.Parse(jsonrpc.Request(json.RawMessage("0"), "tools/call", params))
	if err != nil {
		return nil, err
	}
	sup := b.supervisor(r.Child, on.Browser, b.req.env.Audience)
	if sup == nil {
		return nil, source.ErrEnded
	}
	child, err := b.req.start(ctx, sup)
	if err != nil {
		return nil, err
	}
	ctx, stop := boundCommand(ctx, b.task)
	defer stop()
	result, err := child.callTool(ctx, r.Rename(m).Params, on)
	result, _ = results.Begun(result)
	return result, err
}

// hold leases the browser that the commands share, unless it is leased already.
// Its death ends them.
func (b *bulkRun) hold(ctx context.Context) error {
	if b.at != nil {
		return nil
	}
	told := b.req.tellWaiting(ctx, b.asked)
	at, err := b.browsers.Take(ctx, b.asked)
	told()
	if err != nil {
		return source.Explain(err)
	}
	b.at = at
	if b.task != nil {
		return b.holdForTask(ctx)
	}
	if at.Died != nil {
		b.watching.Go(func() {
			select {
			case <-at.Died:
				b.fail(source.ErrBrowserDied)
			case <-ctx.Done():
			}
		})
	}
	return nil
}

// checkBrowser refuses a command that names another browser than the one that it
// would run on: the agent would believe that it drives that one.
func (b *bulkRun) checkBrowser(r catalog.Route, params json.RawMessage) error {
	named, err := source.RefIn(jsonrpc.Get(params, "arguments"), r.Stripped)
	if err != nil {
		return err
	}
	if named.Session != "" && named.Session != b.asked.Session {
		return errors.New("give session_id to browser_execute_bulk, not to its commands: all run on one browser")
	}
	if slices.Contains(r.Stripped, "instanceId") && named.Instance != "" && named.Instance != b.asked.Instance {
		return errors.New("give instanceId to browser_execute_bulk, not to its commands: all run on one browser")
	}
	if !slices.Contains(r.Stripped, "browser_pool") {
		return nil
	}
	for _, one := range []struct{ name, named, asked, is string }{
		{"browser_pool", named.Pool, b.asked.Pool, b.at.Pool},
		{"browser_instance", named.Instance, b.asked.Instance, b.at.Instance},
	} {
		if one.named != "" && one.named != one.asked && one.named != one.is {
			return fmt.Errorf("give %s to browser_execute_bulk, not to its commands: all run on one browser, "+
				"here %q of pool %s", one.name, b.at.Instance, b.at.Pool)
		}
	}
	return nil
}

// take keeps the content of a result that is not text, such as images, to show it
// unchanged. The result refers to the item by its index.
func (b *bulkResult) take(result json.RawMessage) json.RawMessage {
	var content []json.RawMessage
	some := len(b.items)
	for item := range jsonrpc.Elements(jsonrpc.Get(result, "content")) {
		if kind := jsonrpc.GetString(item, "type"); kind == "image" || kind == "audio" ||
			jsonrpc.Get(item, "resource", "blob") != nil {
			b.items = append(b.items, item)
			// The first item of the call's content is the whole result as JSON.
			text := fmt.Sprintf("(%s: item %d of this call's content)", kind, len(b.items)+1)
			item = jsonrpc.Set(jsonrpc.Set(nil, "text", jsonrpc.Quote(text)), "type", json.RawMessage(`"text"`))
		}
		content = append(content, item)
	}
	if len(b.items) == some {
		return result
	}
	return jsonrpc.Set(result, "content", jsonrpc.Array(content))
}

// addTo adds to the call's result what is not in its text.
func (b *bulkResult) addTo(result json.RawMessage) json.RawMessage {
	if b.fails {
		result = jsonrpc.Set(result, "isError", json.RawMessage("true"))
	}
	content := slices.Collect(jsonrpc.Elements(jsonrpc.Get(result, "content")))
	return jsonrpc.Set(result, "content", jsonrpc.Array(append(content, b.items...)))
}
