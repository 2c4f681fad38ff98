package endpoint

import (
	"context"
	"strings"

	"btools/lib/fleet"
)

// owned are the sessions that were used below the name of a claim, by that name.
// They end with the claim.
type owned map[string]map[string]bool

// own notes the session of a request below the name of a claim.
func (s *Server) own(claim, path string) {
	below, ok := strings.CutPrefix(path, fleet.Prefix)
	if !ok {
		return
	}
	name, _, _ := strings.Cut(below, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owned == nil {
		s.owned = owned{}
	}
	if s.owned[claim] == nil {
		s.owned[claim] = map[string]bool{}
	}
	s.owned[claim][name] = true
}

// EndOwned ends the sessions of an instance that were used below the name of a
// claim, which is over.
func (s *Server) EndOwned(ctx context.Context, instance, claim string) {
	s.mu.Lock()
	names, j := s.owned[claim], s.joined[instance]
	delete(s.owned, claim)
	s.mu.Unlock()
	if j == nil {
		return
	}
	for name := range names {
		j.sessions.End(ctx, name) // what is not there has ended
	}
}
