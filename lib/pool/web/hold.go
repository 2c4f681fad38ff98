package web

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/front"
	"btools/lib/pool"
	"btools/lib/tokens"
)

const (
	// maxHeld is the greatest number of leases in a request.
	maxHeld = 10_000
	// maxHoldWait is how long the answer waits at most.
	maxHoldWait = 10 * time.Second
)

// Holding asks for leases to go on for a while. It is how a gateway says that it and its clients are alive.
type Holding struct {
	Leases []string `json:"leases"`
	Wait   duration `json:"wait"` // time for which the answer may wait for the end of one
}

// Held answers it.
type Held struct {
	Boot     string   `json:"boot"`           // ID of the host's process
	Draining string   `json:"draining"`       // whether it grants no leases: no, yes, or move if they move, too
	Gone     []string `json:"gone"`           // IDs of leases that have ended
	Move     []string `json:"move,omitempty"` // IDs of leases that are to be moved now
}

// holdOn answers /hold: leases of a token go on for their time to live from now.
func (s *Server) holdOn(w *front.Response, r *http.Request, t *tokens.Token) error {
	var p Holding
	if err := read(r, &p); err != nil {
		return err
	}
	if len(p.Leases) > maxHeld {
		return control.Errorf(control.BadRequest, "a request holds at most %d leases, not %d", maxHeld, len(p.Leases))
	}
	wait := time.Duration(0)
	if p.Wait.Duration != nil {
		wait = min(*p.Wait.Duration, maxHoldWait)
	}
	gone, elsewhere, news := s.Pools.For(control.ByToken(t)).HoldOn(p.Leases)
	var move []string
	for _, id := range elsewhere { // another process of this service may have it
		if _, err := s.call(r.Context(), string(api.Renew), api.RenewRequest{Of: api.Of{Lease: id}}); err != nil {
			gone = append(gone, id)
		} else if s.Pools.Draining() == pool.DrainingMove { // freeze says whether it can
			move = append(move, id)
		}
	}
	if len(gone) > 0 || len(move) > 0 {
		wait = 0
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	ended, movable := news(ctx)
	cancel()
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeBound))
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	return json.NewEncoder(w).Encode(Held{Boot: s.Boot, Draining: s.Pools.Draining(),
		Gone: append(append([]string{}, gone...), ended...), Move: append(move, movable...)})
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
