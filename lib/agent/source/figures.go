package source

import (
	"context"
	"sync"
	"time"

	"btools/lib/front"
	"btools/lib/jsonrpc"
)

// Figure is the tabs and the idle time of a session of a host.
type Figure struct {
	SessionID  string  `json:"session_id,omitempty"`
	Joined     string  `json:"instanceId,omitempty"`
	Pool       string  `json:"browser_pool,omitempty"`
	Instance   string  `json:"browser_instance,omitempty"`
	Tabs       *int    `json:"tab_count,omitempty"` // nil: the browser does not say
	Idle       float64 `json:"idle_seconds"`
	Hibernated bool    `json:"hibernated,omitempty"`
}

func (b *ownerUse) Figures(ctx context.Context) (all []Figure) {
	if b.pool != nil {
		return b.leaseFigures(ctx)
	}
	if !b.HasSessions() {
		at := b.up("", "")
		if at == nil || at.HTTPURL == "" {
			return nil
		}
		one := Figure{Tabs: countTabs(ctx, at.HTTPURL)}
		if idle := b.unused(ctx); idle != nil {
			one.Idle = *idle
		}
		return []Figure{one}
	}
	for _, v := range b.statuses(ctx) {
		all = append(all, Figure{SessionID: v.id, Joined: v.Instance, Tabs: &v.Tabs, Idle: v.Idle,
			Hibernated: v.Hibernated})
	}
	return all
}

func (b *ownerUse) leaseFigures(ctx context.Context) []Figure {
	var all []Figure
	var kept []*Lease
	b.mu.Lock()
	for _, k := range b.leases {
		if k.at == nil {
			continue
		}
		all = append(all, Figure{Pool: k.at.Pool, Instance: k.at.Instance,
			Idle: b.table.unused(k, time.Now()).Round(time.Millisecond).Seconds()})
		kept = append(kept, k.at)
	}
	b.mu.Unlock()
	var wg sync.WaitGroup
	for i, at := range kept {
		wg.Go(func() {
			now := b.pool.instance(ctx, at.Pool, at.Instance)
			if now == nil {
				return
			}
			all[i].Hibernated, all[i].Tabs = now.Hibernated, now.Tabs
			if !at.Virtual && now.ProcessID != nil { // else it would be launched to be asked
				all[i].Tabs = countTabs(ctx, at.HTTPURL)
			}
		})
	}
	wg.Wait()
	return all
}

// countTabs returns the number of a browser's tabs; nil: a Firefox, for example, does not say.
func countTabs(ctx context.Context, url string) *int {
	body, err := front.Get(ctx, url+"/json/list", "")
	if err != nil {
		return nil
	}
	n := 0
	for target := range jsonrpc.Elements(body) {
		if jsonrpc.GetString(target, "type") == "page" {
			n++
		}
	}
	return &n
}
