package browse

import (
	"context"
	"errors"
)

// Exists reports whether something in the page matches a selector.
func (t *elements) Exists(ctx context.Context, target Target) (bool, error) {
	_, ok, err := t.first(ctx, "count", map[string]any{"target": string(target)})
	return ok, err
}

// Value is the value of a control: of a checkbox it is true or false.
func (t *elements) Value(ctx context.Context, target Target) (value string, err error) {
	err = t.onElement(ctx, target, "valueNow", map[string]any{}, &value)
	return value, err
}

// Missing is the first of some texts that nothing in an element has, "": none is missing.
func (t *elements) Missing(ctx context.Context, target Target, texts []string) (text string, err error) {
	var got *string
	if err = t.onElement(ctx, target, "missing", map[string]any{"texts": texts}, &got); err == nil && got != nil {
		text = *got
	}
	return text, err
}

// Locator is an expression that finds an element in a test of Playwright.
func (t *elements) Locator(ctx context.Context, target Target) (string, error) {
	var got string
	p, err := t.Locate(ctx, target)
	if err != nil {
		return "", err
	}
	if err := t.run(ctx, p.Frame, "locator", map[string]any{"target": p.Find}, &got); err != nil {
		return "", err
	}
	for f := p.Frame; f.parent != nil; f = f.parent {
		in, err := f.locator(ctx)
		if err != nil {
			return "", err
		}
		got = in + ".contentFrame()." + got
	}
	return got, nil
}

// locator is that of the element which a frame is in.
func (f *frame) locator(ctx context.Context) (string, error) {
	owner, err := f.owner(ctx)
	if err != nil {
		return "", err
	}
	w, err := f.parent.world(ctx)
	if err != nil {
		return "", err
	}
	session := f.parent.target.session
	var resolved struct{ Object remote }
	err = f.tab.call(ctx, session, "DOM.resolveNode", map[string]any{"backendNodeId": owner,
		"executionContextId": w.id}, &resolved)
	if err != nil {
		return "", err
	}
	object := map[string]string{"objectId": resolved.Object.ObjectID}
	defer f.tab.b.conn.Begin(session, "Runtime.releaseObject", object, nil)
	var got evaluated
	err = f.tab.call(ctx, session, "Runtime.callFunctionOn", map[string]any{"objectId": object["objectId"],
		"functionDeclaration": "function () { return btools.run('locator', { el: this }) }", "awaitPromise": true,
		"returnByValue": true}, &got)
	if err = errors.Join(err, got.err()); err != nil {
		return "", err
	}
	var locator string
	return locator, answered(got.Result.Value, &locator)
}

// onElement calls a function of our scripts with an element.
func (t *elements) onElement(ctx context.Context, target Target, name string, args map[string]any, result any) error {
	p, err := t.Locate(ctx, target)
	if err != nil {
		return err
	}
	args["target"] = p.Find
	return t.run(ctx, p.Frame, name, args, result)
}
