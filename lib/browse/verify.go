package browse

import "context"

// Exists reports whether something in the page matches a selector.
func (t *Tab) Exists(ctx context.Context, target Target) (bool, error) {
	all, err := t.allFrames(ctx)
	if err != nil {
		return false, err
	}
	for i, f := range all {
		var n int
		err := t.run(ctx, f, "count", map[string]any{"target": string(target)}, &n)
		if n > 0 {
			return true, nil
		}
		if err != nil && i == 0 {
			return false, err
		}
	}
	return false, nil
}

// HasText reports whether a text is visible in the page.
func (t *Tab) HasText(ctx context.Context, text string) (bool, error) { return t.hasText(ctx, text) }

// Value is the value of a control: of a checkbox it is true or false.
func (t *Tab) Value(ctx context.Context, target Target) (value string, err error) {
	err = t.onElement(ctx, target, "valueNow", map[string]any{}, &value)
	return value, err
}

// Missing is the first of some texts that nothing in an element has, "": none is missing.
func (t *Tab) Missing(ctx context.Context, target Target, texts []string) (text string, err error) {
	var got *string
	if err = t.onElement(ctx, target, "missing", map[string]any{"texts": texts}, &got); err == nil && got != nil {
		text = *got
	}
	return text, err
}

// Locator is an expression that finds an element in a test of Playwright.
func (t *Tab) Locator(ctx context.Context, target Target) (string, error) {
	var got string
	p, err := t.locate(ctx, target)
	if err != nil {
		return "", err
	}
	if err := t.run(ctx, p.frame, "locator", map[string]any{"target": p.find}, &got); err != nil {
		return "", err
	}
	for f := p.frame; f.parent != nil; f = f.parent {
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
	world, err := f.parent.world(ctx)
	if err != nil {
		return "", err
	}
	session := f.parent.target.session
	var resolved struct{ Object remote }
	err = f.tab.call(ctx, session, "DOM.resolveNode", map[string]any{"backendNodeId": owner,
		"executionContextId": world}, &resolved)
	if err != nil {
		return "", err
	}
	var got struct {
		Result struct{ Value struct{ Value string } }
	}
	err = f.tab.call(ctx, session, "Runtime.callFunctionOn", map[string]any{"objectId": resolved.Object.ObjectID,
		"functionDeclaration": "function () { return btools.run('locator', { el: this }) }", "awaitPromise": true,
		"returnByValue": true}, &got)
	return got.Result.Value.Value, err
}

// onElement calls a function of our scripts with an element.
func (t *Tab) onElement(ctx context.Context, target Target, name string, args map[string]any, result any) error {
	p, err := t.locate(ctx, target)
	if err != nil {
		return err
	}
	args["target"] = p.find
	return t.run(ctx, p.frame, name, args, result)
}
