package tools

import (
	"context"
	"fmt"
	"strings"

	"btools/lib/browse"
)

func verifyElement(ctx context.Context, r *reply, a struct{ Role, AccessibleName string }) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	is, err := t.Exists(ctx, browse.Target(fmt.Sprintf(`role=%s[name="%s"i]`, a.Role, quote.Replace(a.AccessibleName))))
	if err == nil && !is {
		err = fmt.Errorf("there is no %s with the name %q", a.Role, a.AccessibleName)
	}
	return r.done(err)
}

func verifyText(ctx context.Context, r *reply, a struct{ Text string }) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	is, err := t.HasText(ctx, a.Text)
	if err == nil && !is {
		err = fmt.Errorf("the text %q is not visible", a.Text)
	}
	return r.done(err)
}

func verifyList(ctx context.Context, r *reply, a struct {
	Target browse.Target
	Items  []string
}) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	missing, err := t.Missing(ctx, a.Target, a.Items)
	if err == nil && missing != "" {
		err = fmt.Errorf("the item %q is not in the list", missing)
	}
	return r.done(err)
}

func verifyValue(ctx context.Context, r *reply, a struct {
	Target      browse.Target
	Type, Value string
}) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	value, what, err := t.Value(ctx, a.Target)
	if err == nil && value != a.Value {
		err = fmt.Errorf("%s has the value %q, not %q", what, value, a.Value)
	}
	return r.done(err)
}

// done is the result of what was verified.
func (r *reply) done(err error) error {
	if err == nil {
		r.say("Done")
	}
	return err
}

func generateLocator(ctx context.Context, r *reply, a struct{ Target browse.Target }) error {
	t, err := r.act(ctx)
	if err != nil {
		return err
	}
	locator, err := t.Locator(ctx, a.Target)
	if err == nil {
		r.say("%s", locator)
	}
	return err
}
