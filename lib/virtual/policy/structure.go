package policy

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
)

// structure are the events, or those that begin so, which say what targets, frames and contexts there are, and nothing
// of what pages show.
var structure = []string{"Target.targetCreated", "Target.targetInfoChanged", "Target.targetDestroyed",
	"Target.targetCrashed", "Target.attachedToTarget", "Target.detachedFromTarget", "Page.frame", "Page.lifecycleEvent",
	"Page.domContentEventFired", "Page.loadEventFired", "Page.navigatedWithinDocument", "Page.javascriptDialog",
	"Runtime.executionContext", "Inspector.", "Browser.downloadProgress"}

// Structure returns the params of an event as clients get them after a person was private: its addresses are origins,
// and it has no text of a page. Nil: they do not get it.
func Structure(method string, params json.RawMessage) json.RawMessage {
	for _, s := range structure {
		if !strings.HasPrefix(method, s) {
			continue
		}
		return structureOf(params, method == "Page.lifecycleEvent")
	}
	return nil
}

// StructureOf returns a TargetInfo as clients get it while a person is private.
func StructureOf(info json.RawMessage) json.RawMessage { return structureOf(info, false) }

func structureOf(object json.RawMessage, names bool) json.RawMessage {
	var all map[string]any
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber() // a timestamp stays as it is
	if d.Decode(&all) != nil {
		return json.RawMessage("{}")
	}
	strip(all, names)
	raw, err := json.Marshal(all)
	if err != nil {
		return json.RawMessage("{}")
	}
	return raw
}

// words are the members whose texts are of the protocol, besides those that end in Id.
var words = map[string]bool{"type": true, "subtype": true, "reason": true, "status": true, "state": true,
	"navigationType": true, "disposition": true, "secureContextType": true, "crossOriginIsolatedContextType": true,
	"mimeType": true, "guid": true, "id": true, "adFrameType": true, "explanations": true, "gatedAPIFeatures": true}

// strip removes from an event what tells of a page. names: its name is one of the protocol.
func strip(all map[string]any, names bool) {
	isolated := false
	if aux, ok := all["auxData"].(map[string]any); ok {
		isolated = aux["type"] == "isolated" // the world is a client's own, which finds it by its name
	}
	for name, value := range all {
		switch v := value.(type) {
		case map[string]any:
			if name == "stack" {
				delete(all, name)
			} else {
				strip(v, false)
			}
		case []any:
			if !words[name] {
				delete(all, name)
			}
		case string:
			switch lower := strings.ToLower(name); {
			case words[name] || strings.HasSuffix(name, "Id") || name == "name" && (names || isolated):
			case strings.HasSuffix(lower, "url"):
				all[name] = Origin(v)
			case strings.HasSuffix(lower, "origin"):
				all[name] = strings.TrimSuffix(Origin(v), "/")
			case name == "urlFragment":
				delete(all, name)
			default:
				all[name] = ""
			}
		}
	}
	if all["waitingForDebugger"] == true {
		all["waitingForDebugger"] = false
	}
}

// Origin returns an address without what follows its origin.
func Origin(address string) string {
	u, err := url.Parse(address)
	switch {
	case address == "" || address == "about:blank" || address == "about:srcdoc" || address == "://":
		return address
	case err != nil || u.Host == "":
		scheme, _, _ := strings.Cut(address, ":")
		if err != nil || len(scheme) > 20 || strings.ContainsAny(scheme, "/?# ") {
			return ""
		}
		return scheme + ":"
	}
	return u.Scheme + "://" + u.Host + "/"
}
