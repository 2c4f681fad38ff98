package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"btools/lib/browse"
)

// errHeadless is the error of a browser that nobody can see.
var errHeadless = errors.New("the browser is headless, and a person sees no window of it: bmcp --no-headless shows one")

func selectElement(ctx context.Context, r *reply, t *browse.Tab, a struct{ Timeout *float64 }) error {
	var version struct{ Product, UserAgent string }
	if err := t.Browser().Call(ctx, "Browser.getVersion", nil, &version); err != nil {
		return err
	}
	headless := strings.Contains(version.Product+version.UserAgent, "Headless")
	if headless && r.server.Clients(ctx) < 2 { // none but us
		return errHeadless
	}
	most := r.server.patience(a.Timeout)
	r.page = pageState
	p, err := t.Pick(ctx, most)
	if errors.Is(err, browse.ErrNotPicked) {
		if err = fmt.Errorf("%w within %v", err, most); headless {
			err = fmt.Errorf("%w: %w", err, errHeadless)
		}
	}
	if err != nil {
		return err
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // a selector has >
	if err := e.Encode(p); err != nil {
		return err
	}
	r.say("A person has chosen %s:\n%s", p.What, fenced("json", strings.TrimSpace(text.String())))
	r.structured = p
	return nil
}
