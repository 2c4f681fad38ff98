package firefox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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

// Snapshot is what an agent has to know of the page, as browse.Tab has it.
func (t *Tab) Snapshot(ctx context.Context, o browse.SnapshotOptions) (string, error) {
	place := t.id
	args := map[string]any{"boxes": o.Boxes, "whole": o.Whole, "interactive": o.Interactive, "headings": o.Headings}
	if o.Target != "" {
		at, err := t.locate(ctx, o.Target)
		if err != nil {
			return "", err
		}
		place, args["target"] = at.context, at.find
	}
	if o.Depth != nil {
		args["depth"] = *o.Depth
	}
	lines, err := t.outline(ctx, place, "snapshot", args, 0)
	return strings.Join(lines, "\n"), err
}

// Holding are the elements that hold a text that is visible, though it runs over what is in them: a line for each.
func (t *Tab) Holding(ctx context.Context, text string) ([]string, error) {
	return t.outline(ctx, t.id, "holding", map[string]any{"want": text}, 0)
}

// outline is what a script writes of a document and of those in it, in lines.
func (t *Tab) outline(ctx context.Context, place, script string, args map[string]any, depth int) ([]string, error) {
	t.b.mu.Lock()
	args["next"], args["prefix"] = t.b.nextRef, ""
	if i := slices.Index(t.b.frames, place); i >= 0 {
		args["prefix"] = fmt.Sprint("f", i+1)
	}
	t.b.mu.Unlock()
	args["ms"] = browse.SnapshotTime.Milliseconds()
	if args["whole"] == true {
		args["ms"] = browse.SearchTime.Milliseconds()
	}
	var got struct {
		Lines     []string
		Frames    []struct{ Line, Depth, Number int }
		Next, Cut int
		Page      *told
	}
	if err := t.b.run(ctx, place, script, args, &got); err != nil {
		return nil, err
	}
	t.b.mu.Lock()
	t.b.nextRef = max(t.b.nextRef, got.Next)
	if got.Page != nil && place == t.id {
		t.told = *got.Page
	}
	t.b.mu.Unlock()
	lines := got.Lines
	if got.Cut > 0 {
		lines = append(lines, browse.CutLine(got.Cut))
	}
	if depth == browse.MaxFrames || args["depth"] != nil {
		return lines, nil
	}
	for _, in := range slices.Backward(got.Frames) { // the last first: lines before it stay where they are
		inner := t.inner(ctx, place, in.Number)
		if inner == "" {
			continue
		}
		same := maps.Clone(args)
		delete(same, "target")
		more, err := t.outline(ctx, inner, script, same, depth+1)
		if errors.Is(err, errFrame) && script == "snapshot" {
			lines[in.Line] += " # does not answer: a script of it runs without end"
		}
		if err != nil || len(more) == 0 {
			continue // the frame has gone
		}
		for i := range more {
			more[i] = strings.Repeat("  ", in.Depth) + more[i]
		}
		if in.Depth > 0 && !strings.HasSuffix(lines[in.Line], ":") {
			lines[in.Line] += ":"
		}
		lines = slices.Insert(lines, in.Line+1, more...)
	}
	return lines, context.Cause(ctx)
}

// inner is the context of the document in an iframe, which gets a number; "": it has
// none.
func (t *Tab) inner(ctx context.Context, place string, ref int) string {
	got, err := t.b.script(ctx, place, fmt.Sprintf("btools.api.element({target:%d})?.contentWindow", ref))
	var window struct{ Context string }
	if err != nil || got.Type != "window" || json.Unmarshal(got.Value, &window) != nil {
		return ""
	}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if t.b.parents[window.Context] == "" { // gone meanwhile
		return ""
	}
	if !slices.Contains(t.b.frames, window.Context) {
		t.b.frames = append(t.b.frames, window.Context)
	}
	return window.Context
}

// place is an element's document, and how our scripts find it there.
type place struct {
	context string
	find    any
}

// locate finds the document of a target. It waits until a selector matches something.
func (t *Tab) locate(ctx context.Context, target browse.Target) (place, error) {
	if frame, n, ok := target.Ref(); ok {
		t.b.mu.Lock()
		defer t.b.mu.Unlock()
		switch {
		case n >= t.b.nextRef || frame > len(t.b.frames):
			return place{}, fmt.Errorf("there is no ref %s: take a new browser_snapshot", target)
		case frame > 0 && t.b.topLocked(t.b.frames[frame-1]) != t:
			return place{}, fmt.Errorf("there is no ref %s in this tab: take a new browser_snapshot", target)
		case frame > 0:
			return place{t.b.frames[frame-1], n}, nil
		}
		return place{t.id, n}, nil
	}
	for end := time.Now().Add(browse.ActionTimeout); ; {
		for i, at := range t.tree(ctx) {
			var n int
			err := t.b.run(ctx, at, "count", map[string]any{"target": string(target)}, &n)
			if err != nil && i == 0 {
				return place{}, err
			}
			if n > 0 {
				return place{at, string(target)}, nil
			}
		}
		if time.Now().After(end) {
			return place{}, fmt.Errorf("nothing matches %q: within %v no element appeared", target, browse.ActionTimeout)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return place{}, context.Cause(ctx)
		}
	}
}

// tree are the contexts of the tab's documents, outer ones first.
func (t *Tab) tree(ctx context.Context) []string {
	all := []string{t.id}
	var tree struct{ Contexts []node }
	t.b.conn.Call(ctx, "browsingContext.getTree", map[string]string{"root": t.id}, &tree)
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	var add func(n node)
	add = func(n node) {
		for _, child := range n.Children {
			all = append(all, child.Context)
			t.b.parents[child.Context] = n.Context
			add(child)
		}
	}
	for _, n := range tree.Contexts {
		add(n)
	}
	return all
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
		at, args = p.context, append(args, map[string]string{"sharedId": element})
	}
	since := t.mark()
	call := func(function string) (evaluated, error) {
		got := &evaluated{}
		returned, err := t.orDialog(ctx, func() error {
			return t.b.callFor(ctx, t.b.of(evaluateTimeout), at, "script.callFunction", map[string]any{
				"functionDeclaration": "async (element) => JSON.stringify(await (" + function + ")(element))",
				"awaitPromise":        true, "arguments": args, "userActivation": true,
				"target": map[string]string{"context": at}}, got)
		})
		if !returned {
			return evaluated{}, err
		}
		return *got, err
	}
	expression, statements := browse.Functions(code)
	got, err := call(expression)
	if err == nil && strings.HasPrefix(got.ExceptionDetails.Text, "SyntaxError") {
		if as, err := call(statements); err == nil && as.Type != "exception" {
			got = as
		}
	}
	switch {
	case errors.Is(err, errLate) && t.answers(browse.AnswerPatience):
		return "", false, fmt.Errorf("the function did not return within %v", t.b.of(evaluateTimeout))
	case errors.Is(err, errLate):
		return "", false, t.late(evaluateTimeout)
	case err != nil:
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
func (t *Tab) element(ctx context.Context, target browse.Target) (p place, sharedID string, err error) {
	if p, err = t.locate(ctx, target); err != nil {
		return p, "", err
	}
	raw, err := json.Marshal(p.find)
	if err != nil {
		return p, "", err
	}
	got, err := t.b.script(ctx, p.context, fmt.Sprintf("btools.api.element({target:%s})", raw))
	if err == nil && got.SharedID == "" {
		err = fmt.Errorf("%s is not in the page any more", target)
	}
	return p, got.SharedID, err
}
