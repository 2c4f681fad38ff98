package calls

import (
	"encoding/json"
	"os"
	"sync"

	"btools/lib/private"
)

// memory is the file in which a service notes its sessions, for the one that comes after it if it is killed: that
// tells each what it has lost.
type memory struct {
	path string

	mu     sync.Mutex // orders writes
	last   string
	closed bool
}

// load returns the pages of the sessions of a service that was killed, by their keys.
func (m *memory) load() (lost map[string]string) {
	if b, err := private.ReadFile(m.path); err == nil {
		json.Unmarshal(b, &lost) // nothing, if it is damaged
	}
	if lost == nil {
		lost = map[string]string{}
	}
	return lost
}

// note writes the sessions as pages returns them. What can't be written is not told later.
func (m *memory) note(pages func() map[string]string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, _ := json.Marshal(pages()) // which strings never fail
	if !m.closed && string(b) != m.last && private.WriteFile(m.path, b) == nil {
		m.last = string(b)
	}
}

// forget says that nothing was lost, and nothing is noted any more.
func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	os.Remove(m.path)
}
