package firefox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"btools/lib/browse"
)

// sandbox names the world of our scripts: the page's own cannot see or change it.
const sandbox = "btools"

// remote is a value as script.evaluate has it.
type remote struct {
	Type     string
	SharedID string `json:"sharedId"`
	Value    json.RawMessage
}

// evaluated is the answer to script.evaluate and script.callFunction.
type evaluated struct {
	Type             string
	Result           remote
	ExceptionDetails struct{ Text string }
}

// script evaluates an expression in the world of our scripts, which it loads first.
func (b *Browser) script(ctx context.Context, place, expression string) (remote, error) {
	evaluate := func(expression string) (got evaluated, err error) {
		for range 3 { // a document that has just been replaced answers no more
			err = b.call(ctx, place, "script.evaluate", map[string]any{"expression": expression, "awaitPromise": true,
				"target": map[string]string{"context": place, "sandbox": sandbox}, "userActivation": true}, &got)
			if !isLost(err) {
				break
			}
		}
		if err == nil && got.Type == "exception" {
			err = errors.New(got.ExceptionDetails.Text)
		}
		return got, err
	}
	expression = "globalThis.btools ? (" + expression + ") : undefined"
	got, err := evaluate(expression)
	if err == nil && got.Result.Type == "undefined" {
		if _, err = evaluate(browse.Scripts()); err == nil {
			got, err = evaluate(expression)
		}
	}
	return got.Result, err
}

// run calls a function of our scripts in a document.
func (b *Browser) run(ctx context.Context, place, name string, args map[string]any, result any) error {
	raw, err := json.Marshal(args)
	if _, ok := args["target"].(string); ok && err == nil {
		err = browse.Strayed(ctx)
	}
	if err != nil {
		return err
	}
	got, err := b.script(ctx, place, fmt.Sprintf("(async () => JSON.stringify(await btools.run(%q,%s)))()", name, raw))
	if err != nil {
		return err
	}
	var text string
	var answer struct {
		Value json.RawMessage
		Fault string
	}
	if err := json.Unmarshal(got.Value, &text); err == nil {
		err = json.Unmarshal([]byte(text), &answer)
	}
	if answer.Fault != "" {
		return errors.New(answer.Fault)
	}
	if result == nil || answer.Value == nil {
		return nil
	}
	return json.Unmarshal(answer.Value, result)
}

// frame is a document's place: a tab, or a frame in one.
type frame struct {
	tab    *Tab
	id     string // of its context
	around *frame // nil: it is the tab itself
}

// Same reports whether it is the same place.
func (f *frame) Same(other *frame) bool { return f.id == other.id }

// Around is the frame around it, nil if it is the tab itself.
func (f *frame) Around() *frame { return f.around }

// Mute reports whether it has not answered yet.
func (f *frame) Mute() bool {
	f.tab.b.mu.Lock()
	defer f.tab.b.mu.Unlock()
	return f.tab.b.mute[f.id]
}

// Inner is the frame in an iframe element, nil if it has none.
func (f *frame) Inner(ctx context.Context, ref int) (*frame, error) {
	b := f.tab.b
	got, err := b.script(ctx, f.id, fmt.Sprintf("btools.api.element({target:%d})?.contentWindow", ref))
	var window struct{ Context string }
	if err != nil || got.Type != "window" || json.Unmarshal(got.Value, &window) != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.parents[window.Context] == "" { // gone meanwhile
		return nil, nil
	}
	return &frame{f.tab, window.Context, f}, nil
}

// tree returns the frames of the tab, outer ones first.
func (t *Tab) tree(ctx context.Context) ([]*frame, error) {
	all := []*frame{t.main}
	var tree struct{ Contexts []node }
	t.b.conn.Call(ctx, "browsingContext.getTree", map[string]string{"root": t.id}, &tree)
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	var add func(n node, around *frame)
	add = func(n node, around *frame) {
		for _, child := range n.Children {
			f := &frame{t, child.Context, around}
			all = append(all, f)
			t.b.parents[f.id] = around.id
			add(child, f)
		}
	}
	for _, n := range tree.Contexts {
		add(n, t.main)
	}
	return all, nil
}

// Evaluate calls a function of the page's own world, with an element or without, and returns its value as JSON. Seen
// is false: the page is to be asked what it is.
func (t *Tab) Evaluate(ctx context.Context, code string, target browse.Target) (value string, seen bool, err error) {
	args := []any{}
	at := t.id
	if target != "" {
		p, element, err := t.element(ctx, target)
		if err != nil {
			return "", false, err
		}
		at, args = p.Frame.id, append(args, map[string]string{"sharedId": element})
	}
	since := t.mark()
	call := func(function string) (got evaluated, err error) {
		err = t.b.callFor(ctx, t.b.of(evaluateTimeout), at, "script.callFunction", map[string]any{
			"functionDeclaration": "async (element) => JSON.stringify(await (" + function + ")(element))",
			"awaitPromise":        true, "arguments": args, "userActivation": true,
			"target": map[string]string{"context": at}}, &got)
		return got, err
	}
	got, err := call(browse.AsFunction(code))
	if err == nil && strings.HasPrefix(got.ExceptionDetails.Text, "SyntaxError") {
		if as, err := call(browse.AsBody(code)); err == nil && as.Type != "exception" {
			got = as
		}
	}
	switch {
	case errors.Is(err, errLate) && t.answers(browse.AnswerPatience):
		return "", false, fmt.Errorf("the function did not return within %v", t.b.of(evaluateTimeout))
	case errors.Is(err, errLate):
		return "", false, t.late(evaluateTimeout)
	case err != nil && !errors.Is(err, errDialog):
		return "", false, err
	case got.Type == "exception":
		return "", false, &browse.Thrown{Text: got.ExceptionDetails.Text}
	}
	if err := t.settle(ctx, since); err != nil {
		return "", false, err
	}
	var text string
	if json.Unmarshal(got.Result.Value, &text) != nil {
		return "undefined", false, nil
	}
	var out bytes.Buffer
	if json.Indent(&out, []byte(text), "", "  ") != nil {
		return text, false, nil
	}
	return out.String(), false, nil
}

// element returns an element as all worlds know it.
func (t *Tab) element(ctx context.Context, target browse.Target) (p browse.Place[*frame], sharedID string, err error) {
	if p, err = t.Locate(ctx, target); err != nil {
		return p, "", err
	}
	raw, err := json.Marshal(p.Find)
	if err != nil {
		return p, "", err
	}
	got, err := t.b.script(ctx, p.Frame.id, fmt.Sprintf("btools.api.element({target:%s})", raw))
	if err == nil && got.SharedID == "" {
		err = fmt.Errorf("%s is not in the page any more", target)
	}
	return p, got.SharedID, err
}
