package coordinator

import "sync"

// owners are the children whose prompts and resources are in the lists that a
// host has been given: by the list, and by the name in it.
type owners struct {
	mu sync.Mutex
	of map[string]map[string]*Child
}

// update replaces a list. Of children that have not answered, what they listed
// before stays known.
func (o *owners) update(list string, now map[string]*Child, failed func(*Child) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, child := range o.of[list] {
		if now[name] == nil && failed(child) {
			now[name] = child
		}
	}
	if o.of == nil {
		o.of = map[string]map[string]*Child{}
	}
	o.of[list] = now
}

// find is the child that has listed a prompt or resource, nil if none has.
func (o *owners) find(capability, name string) *Child {
	o.mu.Lock()
	defer o.mu.Unlock()
	if child := o.of[capability][name]; child != nil || capability != "resources" {
		return child
	}
	return o.of["resourceTemplates"][name]
}
