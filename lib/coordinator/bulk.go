package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"btools/lib/jsonrpc"
)

func bulkTool(c *Coordinator) ownTool {
	return ownTool{"browser_execute_bulk", "Run several tools", "Run browser tools one after the other, in one call and on one browser. Results are returned for commands that ask for them.",
		`{"type":"object","properties":{"commands":{"type":"array","minItems":1,"items":{"type":"object","properties":{"tool":{"type":"string","description":"The tool's name"},"args":{"type":"object","description":"Its arguments"},"return_result":{"type":"boolean","description":"Return its result (default: false)"}},"required":["tool"],"additionalProperties":false}},"stop_on_error":{"type":"boolean","description":"Stop at the first error (default: true)"},"return_all_results":{"type":"boolean","description":"Return the results of all commands (default: false)"},"browser_pool":{"type":"string","description":"The pool of browsers to use, if there are pools"},"browser_instance":{"type":"string","description":"The instance of the pool, by its ID or alias"}},"required":["commands"],"additionalProperties":false}`,
		`{"type":"object","properties":{"success":{"type":"boolean"},"executed_count":{"type":"integer"},"total_count":{"type":"integer"},"results":{"type":"array"},"errors":{"type":"array"},"stopped_at":{"anyOf":[{"type":"integer"},{"type":"null"}]}},"required":["success","executed_count","total_count","results","errors","stopped_at"]}`,
		false, true, c.bulk}
}

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

	at *place // that it was done on; nil: none was needed
}

// bulk runs tools one after the other on one browser, which is held for all of
// them.
func (c *Coordinator) bulk(ctx context.Context, s *Session, args json.RawMessage) (any, error) {
	p := struct {
		Commands []bulkCommand `json:"commands"`
		Stop     *bool         `json:"stop_on_error"`
		All      bool          `json:"return_all_results"`
		Pool     string        `json:"browser_pool"`
		Instance string        `json:"browser_instance"`
	}{}
	if err := json.Unmarshal(args, &p); err != nil {
		return nil, errors.New("the arguments are not those of the tool's schema")
	}
	if s == nil || len(p.Commands) == 0 {
		return nil, errors.New("there are no commands")
	}
	if _, pools := c.Browsers.(*pooled); !pools && (p.Pool != "" || p.Instance != "") {
		return nil, errors.New("there are no pools: leave browser_pool and browser_instance out")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var at *place
	defer func() {
		if at != nil {
			at.release()
		}
	}()
	out := &bulkResult{Success: true, Total: len(p.Commands), Results: []json.RawMessage{}, Errors: []bulkError{}}
	for i, command := range p.Commands {
		result, err := func() (json.RawMessage, error) {
			if c.isOwn(command.Tool) {
				return nil, fmt.Errorf("%s can't be run in bulk: only the tools of children can", command.Tool)
			}
			r, ok := s.find(ctx, command.Tool)
			if !ok {
				return nil, s.unknown(command.Tool)
			}
			if at == nil && r.child.takesEndpoint() {
				var err error
				if at, err = s.take(ctx, p.Pool, p.Instance); err != nil {
					return nil, explain(err)
				}
				out.at = at
				if died := at.died; died != nil {
					go func() {
						select {
						case <-died:
							cancel(errBrowserDied)
						case <-ctx.Done():
						}
					}()
				}
			}
			var on *place
			if r.child.takesEndpoint() {
				on = at
			}
			child, err := s.at(ctx, r.child, on)
			if err != nil {
				return nil, err
			}
			params := jsonrpc.Set(nil, "arguments", orEmpty(command.Args))
			params = jsonrpc.Set(params, "name", quote(r.name))
			return child.call(ctx, "tools/call", params)
		}()
		out.Executed++
		if err == nil && string(jsonrpc.Get(result, "isError")) == "true" {
			err = errors.New(firstText(result))
		}
		if !command.Return && !p.All {
			result = nil
		}
		if result == nil {
			result = json.RawMessage("null")
		}
		out.Results = append(out.Results, result)
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
	return out, nil
}

func orEmpty(args json.RawMessage) json.RawMessage {
	if len(args) == 0 || string(args) == "null" {
		return json.RawMessage("{}")
	}
	return args
}

// firstText is what a result says.
func firstText(result json.RawMessage) string {
	for c := range jsonrpc.Elements(jsonrpc.Get(result, "content")) {
		if t := jsonrpc.GetString(c, "text"); t != "" {
			return t
		}
	}
	return "it failed, and does not say why"
}
