package virtual

import (
	"encoding/json"
	"fmt"
)

// filter selects types of targets for a client. The first entry that matches decides.
type filter []struct {
	Type    string `json:"type"` // "": any
	Exclude bool   `json:"exclude"`
}

// defaultFilter is Chrome's filter for a client without one.
var defaultFilter = filter{{Type: "browser", Exclude: true}, {Type: "tab", Exclude: true}, {}}

// newFilter decodes a client's filter.
func newFilter(raw json.RawMessage) (filter, error) {
	if raw == nil || string(raw) == "null" {
		return defaultFilter, nil
	}
	var f filter
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	if len(f) > maxFilter {
		return nil, fmt.Errorf("it has more than %d entries", maxFilter)
	}
	return f, nil
}

func (f filter) matches(typ string) bool {
	for _, e := range f {
		if e.Type == "" || e.Type == typ {
			return !e.Exclude
		}
	}
	return false
}

// visibleTypes are the types of targets that clients see in their contexts.
// Chrome has other types for its own user interface, such as browser_ui.
var visibleTypes = map[string]bool{
	"page": true, "tab": true, "iframe": true, "worker": true, "service_worker": true, "shared_worker": true,
	"worklet": true, "auction_worklet": true, "shared_storage_worklet": true, "background_page": true,
}

// attachedAtRoot are the types to which Chrome attaches clients of the
// browser's WebSocket by itself; their parents attach the other types.
var attachedAtRoot = map[string]bool{
	"page": true, "tab": true, "service_worker": true, "shared_worker": true, "background_page": true,
}
