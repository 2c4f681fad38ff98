package source

import (
	"context"
	"encoding/json"
)

func (s *pooled) Kind() Kind                                          { return Pool }
func (s *pooled) Type() string                                        { return "" }
func (s *pooled) SessionOf(context.Context, *Browser) json.RawMessage { return nil }
func (s *pooled) Emptied(Browser) func()                              { return nil }

func (h *keeper) Status(ctx context.Context, pool string) (Status, error) {
	raw, err := h.source.status(ctx, pool)
	return Status{Pools: raw}, Explain(err)
}
