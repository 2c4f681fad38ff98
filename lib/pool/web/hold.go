package web

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
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
	Boot     string   `json:"boot"`     // ID of the host's process
	Draining bool     `json:"draining"` // it grants no leases
	Gone     []string `json:"gone"`     // IDs of leases that have ended
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
	gone, elsewhere, ended := s.Pools.For(control.ByToken(t)).HoldOn(p.Leases)
	for _, id := range elsewhere { // another process of this service may have it
		if _, err := s.call(r.Context(), string(api.Renew), api.RenewRequest{Of: api.Of{Lease: id}}); err != nil {
			gone = append(gone, id)
		}
	}
	if len(gone) == 0 {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		gone = ended(ctx)
		cancel()
	}
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeBound))
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	grants := func(r pool.Room) bool { return !r.Drained }
	return json.NewEncoder(w).Encode(Held{Boot: s.Boot,
		Draining: !slices.ContainsFunc(s.Pools.Offers.Rooms(), grants),
		Gone:     append([]string{}, gone...)})
}
