package browse

import (
	"context"
	"encoding/json"

	proto "github.com/chromedp/cdproto/cdp"
)

// Commands and events that cdproto has whole are written with its types: a name or a
// member that the protocol does not have does not compile. The others, whose members are
// deprecated or optional, or that come often, are decoded as far as they are needed.

// do is call for a command of cdproto.
func do[P, R any](ctx context.Context, t *link, session string, c proto.Command[P, R], p P) (r R, err error) {
	err = t.call(ctx, session, c.Method, p, &r)
	return r, err
}

// read is decode for an event of cdproto.
func read[E any](_ proto.Event[E], params json.RawMessage) E { return decode[E](params) }
