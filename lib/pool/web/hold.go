package web

import (
	"encoding/json"
	"net/http"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/front"
	"btools/lib/pool"
	"btools/lib/tokens"
)

// maxHeld is the greatest number of leases in a request.
const maxHeld = 10_000

// held answers /hold.
type held struct {
	Boot     string `json:"boot"`     // ID of the host's process
	Draining string `json:"draining"` // whether it grants no leases: no, yes, or move if they move, too
	pool.Held
}

// holdOn answers /hold: leases of a token go on for their time to live from now.
func (s *Server) holdOn(w *front.Response, r *http.Request, t *tokens.Token) error {
	var p pool.Holding
	if err := read(r, &p); err != nil {
		return err
	}
	if len(p.Leases) > maxHeld {
		return control.Errorf(control.BadRequest, "a request holds at most %d leases, not %d", maxHeld, len(p.Leases))
	}
	answer := held{Boot: s.Boot, Held: s.Pools.For(control.ByToken(t)).HoldOn(r.Context(), p, s.HoldElsewhere)}
	answer.Draining = s.Pools.Draining()
	answer.Gone = append([]string{}, answer.Gone...)
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeBound))
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	return json.NewEncoder(w).Encode(answer)
}

// freeze answers /freeze: nobody uses a lease of a token for a while, so that it can be moved to another host.
func (s *Server) freeze(w *front.Response, r *http.Request, _ *tokens.Token) error {
	var p struct {
		Lease string `json:"lease"`
		Off   bool   `json:"off"` // it can be used again
		Why   string `json:"why"` // with off: why it has not moved
	}
	if err := read(r, &p); err != nil {
		return err
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pool.FreezeTime)) // its session is saved first
	_, err := s.call(r.Context(), string(api.Freeze), api.FreezeRequest{Of: api.Of{Lease: p.Lease}, Off: p.Off,
		Why: p.Why})
	if err != nil && control.ErrorOf(err).Code == control.TryAgain {
		return front.Unavailable(err)
	}
	if err != nil {
		return err
	}
	return answer(w, map[string]bool{"frozen": !p.Off})
}
