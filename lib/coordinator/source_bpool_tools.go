package coordinator

import (
	"context"
	"encoding/json"

	"btools/lib/jsonrpc"
)

func (s *pooled) parted() *single      { return nil }
func (s *pooled) arguments() arguments { return poolArguments }

func (s *pooled) instructions(drives bool) string {
	if !drives {
		return barePoolInstructions
	}
	return poolInstructions
}

func (s *pooled) describe(ctx context.Context, session *Session, st *status) {
	var err error
	if st.Pools, err = s.status(ctx, ""); err != nil {
		st.Notes = append(st.Notes, explain(err).Error())
		return
	}
	st.Pools = session.c.withChildren(st.Pools)
	st.Running = string(jsonrpc.Get(st.Pools, "summary", "healthy_instances")) != "0"
}

func (s *pooled) tools(c *Coordinator) []ownTool {
	return []ownTool{{"browser_pool_status", "Pool status", "Show the pools of browsers, their instances, and which " +
		"of them are in use.",
		schemaFile("browser_pool_status.input"),
		schemaFile("browser_pool_status.output"), true, false,
		func(ctx context.Context, _ *Session, args json.RawMessage) (any, error) {
			st, err := s.status(ctx, jsonrpc.GetString(args, "pool_name"))
			if err != nil {
				return nil, explain(err)
			}
			return c.withChildren(st), nil
		}}}
}
