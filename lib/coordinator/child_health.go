package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/liveness"
	"btools/lib/mcp/child"
	"btools/lib/record"
)

// health is the health of an instance whose browser its child launches, not bpool:
// that of the child.
type health struct {
	LastCheck  *record.Time `json:"last_check"` // the last ping that was answered
	Responsive bool         `json:"responsive"`
	Error      *string      `json:"error"`
}

// States of an instance, as bpool has them.
const (
	healthy     = "healthy"
	failedState = "failed"
)

// withChildren adds to bpool's report on its pools what only bmcp knows.
func (s *Server) withChildren(status json.RawMessage) json.RawMessage {
	var pools []json.RawMessage
	failed := 0
	for p := range jsonrpc.Elements(jsonrpc.Get(status, "pools")) {
		var instances []json.RawMessage
		before := failed
		for i := range jsonrpc.Elements(jsonrpc.Get(p, "instances")) {
			was := jsonrpc.GetString(i, "status")
			if i = s.withChild(jsonrpc.GetString(p, "name"), i); was == healthy &&
				jsonrpc.GetString(i, "status") == failedState {
				failed++
			}
			instances = append(instances, i)
		}
		p = add(p, "healthy_instances", before-failed)
		pools = append(pools, jsonrpc.Set(p, "instances", jsonrpc.Array(instances)))
	}
	summary := add(add(jsonrpc.Get(status, "summary"), "healthy_instances", -failed), "failed_instances", failed)
	return jsonrpc.Set(jsonrpc.Set(status, "summary", summary), "pools", jsonrpc.Array(pools))
}

// add adds to a number among an object's members.
func add(object json.RawMessage, name string, n int) json.RawMessage {
	old, err := strconv.Atoi(string(jsonrpc.Get(object, name)))
	if err != nil {
		return object
	}
	return jsonrpc.Set(object, name, strconv.AppendInt(nil, int64(old+n), 10))
}

// withChild adds to the status of an instance that of the child that launches its
// browser, if one does or none can.
func (s *Server) withChild(pool string, instance json.RawMessage) json.RawMessage {
	builtin := func(c child.Spec) bool { return c.Builtin && c.Drives() }
	sup := s.supervisorOf(pool, instance)
	switch kind := jsonrpc.GetString(instance, "browser"); {
	case sup != nil:
		return sup.describe(instance)
	case kind == record.WebKit && slices.ContainsFunc(s.Children, builtin):
		return unusable(instance, undriven(kind))
	}
	return instance
}

// supervisorOf returns the supervisor of the child that launches an instance's
// browser, nil if there is none, such as if bpool launches it.
func (s *Server) supervisorOf(pool string, instance json.RawMessage) (found *supervisor) {
	kind := jsonrpc.GetString(instance, "browser")
	launched := jsonrpc.GetString(instance, "status") != healthy ||
		string(jsonrpc.Get(instance, "process_id")) != "null"
	if kind != record.Firefox && kind != record.WebKit || launched {
		return nil
	}
	s.mu.Lock()
	hosts := slices.Collect(maps.Keys(s.hosts))
	s.mu.Unlock()
	for _, h := range hosts {
		for _, sup := range h.children.list() {
			if !sup.child.Drives() || sup.child.Builtin || sup.browser.Pool != pool ||
				sup.browser.Instance != jsonrpc.GetString(instance, "id") {
				continue
			}
			if found = sup; sup.running() != nil {
				return sup
			}
		}
	}
	return found
}

// describe puts the child's process and health into an instance's status.
func (sup *supervisor) describe(instance json.RawMessage) json.RawMessage {
	h := health{}
	p, err := sup.proc.Last()
	if p != nil && err == nil {
		err = p.Gone()
	}
	switch {
	case err != nil && p == nil: // it can't be started: no call can use the instance
		return unusable(instance, err)
	case err != nil:
		text := err.Error()
		h.Error = &text
	case p != nil:
		instance = jsonrpc.Set(instance, "process_id", strconv.AppendInt(nil, int64(p.PID()), 10))
		h.Responsive = true
		if at := p.pinged.Load(); at != nil {
			h.LastCheck = &record.Time{Time: *at}
		}
	default:
		return instance // it is being started
	}
	return withHealth(instance, h)
}

// unusable returns the status of an instance that no call can use.
func unusable(instance json.RawMessage, why error) json.RawMessage {
	text := why.Error()
	return withHealth(jsonrpc.Set(instance, "status", jsonrpc.Quote(failedState)), health{Error: &text})
}

func withHealth(instance json.RawMessage, h health) json.RawMessage {
	b, _ := json.Marshal(h) // it never fails
	return jsonrpc.Set(instance, "health_check", b)
}

// watchHealth pings the child of a pool until it has ended, at HEALTH_INTERVAL. A child that does not answer within
// HEALTH_TIMEOUT is stopped: its calls fail, and the next call starts another one.
func (p *running) watchHealth() {
	interval, timeout := p.sup.browser.HealthInterval, p.sup.browser.HealthTimeout
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-p.Done():
			return
		case <-tick.C:
		}
		err := liveness.Check(context.Background(), timeout, liveness.Load, p.ping)
		if err == nil {
			now := time.Now()
			p.pinged.Store(&now)
			continue
		}
		if p.Gone() == nil {
			err = fmt.Errorf("child %s did not answer two pings, each within %v or more (HEALTH_TIMEOUT of pool %s): "+
				"it was stopped", p.sup.child.Name, timeout, p.sup.browser.Pool)
			p.sup.host.server.Log.Warn(err.Error())
			p.Abort(err)
		}
		return
	}
}
