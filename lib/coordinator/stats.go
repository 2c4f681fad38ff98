package coordinator

import (
	"context"
	"encoding/json"
	"time"

	"btools/lib/agent/source"
)

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
