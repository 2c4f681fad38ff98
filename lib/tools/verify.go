package tools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"btools/lib/browse"
)

// The errors of what is verified are those of @playwright/mcp: scripts look for them.

func verifyElement(ctx context.Context, r *reply, t *browse.Tab, a struct{ Role, AccessibleName string }) error {
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	is, err := t.Exists(ctx, browse.Target(fmt.Sprintf(`role=%s[name="%s"i]`, a.Role, quote.Replace(a.AccessibleName))))
	if err == nil && !is {
		err = fmt.Errorf("Element with role %q and accessible name %q not found", a.Role, a.AccessibleName)
	}
	return r.says(err, "Done")
}

func verifyText(ctx context.Context, r *reply, t *browse.Tab, a struct{ Text string }) error {
	if err := isTooLong(a.Text); err != nil {
		return err
	}
	is, err := t.HasText(ctx, a.Text)
	if err == nil && !is {
		err = errors.New("Text not found")
	}
	return r.says(err, "Done")
}

func verifyList(ctx context.Context, r *reply, t *browse.Tab, a struct {
	Target browse.Target
	Items  []string
}) error {
	if len(a.Items) == 0 || slices.ContainsFunc(a.Items, isBlank) {
		return errors.New("items has no text, or an empty one, to look for")
	}
	missing, err := t.Missing(ctx, a.Target, a.Items)
	if err == nil && missing != "" {
		err = fmt.Errorf("Item %q not found", missing)
	}
	return r.says(err, "Done")
}

func verifyValue(ctx context.Context, r *reply, t *browse.Tab, a struct {
	Target      browse.Target
	Type, Value string
}) error {
	value, err := t.Value(ctx, a.Target)
	if err == nil && value != a.Value {
		err = fmt.Errorf("Expected value %q, but got %q", a.Value, clipped(value, maxEntry))
	}
	return r.says(err, "Done")
}

func generateLocator(ctx context.Context, r *reply, t *browse.Tab, a struct{ Target browse.Target }) error {
	locator, err := t.Locator(ctx, a.Target)
	return r.says(err, "%s", locator)
}
