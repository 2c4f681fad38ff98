package firefox

import (
	"context"
	"encoding/json"
	"fmt"

	"btools/lib/emulate"
)

// Emulate changes what all tabs emulate, also those to come, as emulate.Emulation.With does, and returns all of it.
// After an error it is as it was.
func (b *Browser) Emulate(ctx context.Context, change json.RawMessage) (emulate.Emulation, error) {
	was := b.emulates
	now, err := was.With(change, emulate.Emulation{})
	if err != nil {
		return was, err
	}
	commands, err := now.BiDi(was)
	if err != nil {
		return was, err
	}
	for _, c := range commands {
		if err := b.conn.Call(ctx, c.Method, c.Params, nil); err != nil {
			back, _ := was.BiDi(now)
			for _, c := range back {
				b.conn.Call(ctx, c.Method, c.Params, nil)
			}
			return was, fmt.Errorf("Firefox refuses %s: %w", c.Method, err)
		}
	}
	b.emulates = now
	return now, nil
}
