package coordinator

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"btools/lib/jsonrpc"
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
			if sup := s.supervisorOf(jsonrpc.GetString(p, "name"), i); sup != nil {
				was := jsonrpc.GetString(i, "status")
				i = sup.describe(i)
				if was == healthy && jsonrpc.GetString(i, "status") == failedState {
					failed++
				}
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

// supervisorOf returns the supervisor of the child that launches an instance's
// browser, nil if there is none.
func (s *Server) supervisorOf(pool string, instance json.RawMessage) (found *supervisor) {
	kind := jsonrpc.GetString(instance, "browser")
	if kind != record.Firefox && kind != record.WebKit {
		return nil
	}
	s.mu.Lock()
	hosts := slices.Collect(maps.Keys(s.hosts))
	s.mu.Unlock()
	for _, h := range hosts {
		for _, sup := range h.children.list() {
			if !sup.child.Drives() || sup.browser.Pool != pool ||
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
	case err != nil:
		text := err.Error()
		h.Error = &text
		if p == nil { // it can't be started: no call can use the instance
			instance = jsonrpc.Set(instance, "status", jsonrpc.Quote(failedState))
		}
	case p != nil:
		instance = jsonrpc.Set(instance, "process_id", strconv.AppendInt(nil, int64(p.PID()), 10))
		h.Responsive = true
		if at := p.pinged.Load(); at != nil {
			h.LastCheck = &record.Time{Time: *at}
		}
	default:
		return instance // it is being started
	}
	b, _ := json.Marshal(h) // it never fails
	return jsonrpc.Set(instance, "health_check", b)
}
