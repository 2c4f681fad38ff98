package mcp

import (
	"encoding/json"
	"strings"

	"btools/lib/jsonrpc"
)

// Filter is what a host of the stateless protocol listens to, as subscriptions/listen has it.
type Filter json.RawMessage

// listChanges are the members of a filter for changed lists, each with the capability of a server that has the list.
var listChanges = []struct{ member, capability string }{
	{"toolsListChanged", "tools"}, {"promptsListChanged", "prompts"}, {"resourcesListChanged", "resources"},
}

// Agree is as much of what a host wants as a server with these capabilities tells of. It returns the resources, at
// most so many, whose changes are among that.
func Agree(want, can json.RawMessage, most int) (agreed Filter, uris []string) {
	f := json.RawMessage("{}")
	for _, l := range listChanges {
		if string(jsonrpc.Get(want, l.member)) == "true" && jsonrpc.Get(can, l.capability) != nil {
			f = jsonrpc.Set(f, l.member, json.RawMessage("true"))
		}
	}
	var some []json.RawMessage
	for v := range jsonrpc.Elements(jsonrpc.Get(want, "resourceSubscriptions")) {
		if len(uris) < most && jsonrpc.Get(can, "resources", "subscribe") != nil {
			some, uris = append(some, v), append(uris, jsonrpc.GetString(v))
		}
	}
	if some != nil {
		f = jsonrpc.Set(f, "resourceSubscriptions", jsonrpc.Array(some))
	}
	return Filter(f), uris
}

// Wants reports whether a notification passes the filter.
func (f Filter) Wants(method string, params json.RawMessage) bool {
	for _, l := range listChanges {
		if method == "notifications/"+l.capability+"/list_changed" {
			return jsonrpc.Get(json.RawMessage(f), l.member) != nil
		}
	}
	if method != "notifications/resources/updated" {
		return false
	}
	uri := jsonrpc.GetString(params, "uri")
	for v := range jsonrpc.Elements(jsonrpc.Get(json.RawMessage(f), "resourceSubscriptions")) {
		subscribed := jsonrpc.GetString(v)
		part, ok := strings.CutPrefix(uri, subscribed) // it, or what is below it
		if ok && subscribed != "" && (part == "" || strings.ContainsAny(part[:1], "/?#")) {
			return true
		}
	}
	return false
}
