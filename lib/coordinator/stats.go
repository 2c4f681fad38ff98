package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"btools/lib/agent/source"
	"btools/lib/tools"
)

// statsTools are what counts sessions, if there are tools that use them and it is
// chosen.
func (c *Coordinator) statsTools() []ownTool {
	builtin := slices.ContainsFunc(c.Children, func(child Child) bool { return child.Builtin })
	if !builtin || c.Tools != nil && !slices.Contains(c.Tools, tools.SessionStats) {
		return nil
	}
	return []ownTool{{tools.SessionStats, "Session statistics", "Your browser sessions, their tabs and idle time",
		schemaFile(tools.SessionStats), nil, true, false, sessionStatsOf}}
}

// statsTimeout bounds how long the figures of a browser may take.
const statsTimeout = 2 * time.Second

func sessionStatsOf(ctx context.Context, req *request, _ json.RawMessage) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	all := append([]source.Figure{}, req.host.browsers.Figures(ctx)...)
	active := 0
	for _, one := range all {
		own := one.SessionID == "" && one.Pool == "" // the host's, which is not that of a sub-agent
		if !own && !one.Hibernated {
			active++
		}
	}
	return map[string]any{"active_sessions": active, "sessions": all}, nil
}
