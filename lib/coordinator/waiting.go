package coordinator

import (
	"context"
	"fmt"
	"time"

	"btools/lib/agent/source"
	"btools/lib/jsonrpc"
)

// How often a host that has asked for it is told that its call waits.
const (
	lookEvery = 250 * time.Millisecond
	tellEvery = 10 * time.Second // if nothing has changed
)

// tellWaiting sends the host progress while a request waits for a place, if it has
// asked for that, until the caller calls stop.
func (req *request) tellWaiting(ctx context.Context, w source.BrowserRef) (stop func()) {
	waiting := req.host.browsers.Waiting(w)
	if req.Token == nil || waiting == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	if !req.host.do(func() {
		defer close(told)
		req.tellPlace(ctx, waiting)
	}) {
		close(told)
	}
	return func() {
		cancel()
		<-told
	}
}

func (req *request) tellPlace(ctx context.Context, waiting func() (ahead int, waits bool)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	began, before := time.Now(), -1
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n, waits := waiting()
		if !waits || n == before && time.Since(last) < tellEvery {
			continue
		}
		before, last = n, time.Now()
		params := jsonrpc.Set(nil, "message", jsonrpc.Quote(fmt.Sprintf("waits for a browser: %d wait before it", n)))
		params = jsonrpc.Set(params, "progress", fmt.Appendf(nil, "%.3f", time.Since(began).Seconds()))
		params = jsonrpc.Set(params, "progressToken", req.Token)
		to := req.ID
		if id := taskID(to); id != "" {
			to, params = nil, withTask(params, id)
		}
		req.host.send(to, false, jsonrpc.Request(nil, "notifications/progress", params))
	}
}
