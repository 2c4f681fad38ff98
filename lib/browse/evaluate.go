package browse

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

//go:embed scripts/value.js
var valueScript string

// Thrown is the error of a script of an agent. Its text is the page's: code of the page
// may have thrown it.
type Thrown struct{ Text string }

func (e *Thrown) Error() string { return e.Text }

// Evaluate calls a function in the page, with an element if a target is given, and
// returns its result as JSON. An expression does as well as a function. Seen is that the
// page has said what it is since then, so that Tab.Seen is its state.
func (t *elements) Evaluate(ctx context.Context, function string, target Target) (value string, seen bool, err error) {
	if err := t.gone(); err != nil {
		return "", false, err
	}
	since := t.mark()
	session := t.main.session
	var element string
	if target != "" {
		f, err := t.Ready(ctx, target, needs{})
		if err != nil {
			return "", false, err
		}
		session = f.Frame.target.session
		if element, err = t.inPage(ctx, f); err != nil {
			return "", false, err
		}
		defer t.b.conn.Begin(session, "Runtime.releaseObject", map[string]string{"objectId": element}, nil)
	}
	var got evaluated
	var statements bool
	seen, err = t.evaluate(ctx, since, session, AsFunction(function), element, &got)
	if err == nil && isSyntaxError(got.ExceptionDetails) { // statements do as well, if they are a function's body
		as := evaluated{}
		var after bool
		after, err = t.evaluate(ctx, since, session, AsBody(function), element, &as)
		if err == nil && as.ExceptionDetails == nil {
			got, seen, statements = as, after, true
		}
	}
	switch {
	case errors.Is(err, errDialog):
		return "", false, nil
	case err != nil:
		return "", false, err
	case got.ExceptionDetails != nil:
		return "", false, &Thrown{got.err().Error()}
	}
	if t.hasStarted(since) {
		seen = false
		if err := t.settle(ctx, since); err != nil {
			return "", false, err
		}
	}
	if value = got.Result.json(); value == "undefined" && statements {
		value = "undefined (statements have no value: a return gives one)"
	}
	return value, seen, nil
}

// hasStarted reports whether a script has begun a navigation or opened a tab. Otherwise there
// is nothing to wait for: it has done what it does when it returns.
func (t *effects) hasStarted(since mark) bool {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	_, starts := t.starting[t.main.id]
	return starts || t.navigations > since.navigations || t.windows > since.windows || t.b.opened > since.opened
}

// AsFunction is a function that returns the value of an expression, or what it
// returns if it is a function.
func AsFunction(code string) string {
	code = strings.TrimRight(strings.TrimSpace(code), ";")
	return "async (element) => { const value = (" + code + "\n); return (" + valueScript + ")(typeof value === " +
		"'function' ? await value(element) : await value) }"
}

// AsBody is a function with these statements.
func AsBody(code string) string {
	return "async (element) => { const body = async () => {\n" + code + "\n}; return (" + valueScript +
		")(await body()) }"
}

func isSyntaxError(e *exception) bool {
	return e != nil && strings.HasPrefix(e.Exception.Description, "SyntaxError")
}

// evaluate calls a function in the page's own world. It asks the page for its state right
// behind it, which saves the time of an answer; seen is that this was told, and after the
// function's end.
func (t *elements) evaluate(ctx context.Context, since mark, session, function, element string, got *evaluated,
) (seen bool, err error) {
	method := "Runtime.evaluate"
	params := map[string]any{"awaitPromise": true, "returnByValue": true, "userGesture": true}
	if element == "" {
		params["expression"] = "(" + function + ")()"
	} else {
		method = "Runtime.callFunctionOn"
		params["functionDeclaration"], params["objectId"] = function, element
		params["arguments"] = []map[string]string{{"objectId": element}}
	}
	sent, state := t.begin(session, method, params), t.askState()
	a, err := t.answerOf(ctx, agentTimeout, session, sent, got)
	if err != nil || state == nil || t.hasStarted(since) {
		return false, err
	}
	var told evaluated
	end := time.Now().Add(t.b.of(AnswerPatience))
	behind, err := t.await(ctx, state, &told, func() (error, time.Duration) { return t.overOrLate(end) })
	var now Shown
	if err != nil || behind.number < a.number || answered(told.Result.Value, &now) != nil {
		return false, nil
	}
	t.note(now)
	return true, nil
}

// askState asks the page for its state; nil: it can't be asked, or has no context of ours.
func (t *elements) askState() <-chan answer {
	t.b.mu.Lock()
	w, ok := t.main.worlds[t.main.id]
	ok = ok && t.canTellLocked()
	t.b.mu.Unlock()
	if !ok {
		return nil
	}
	return t.begin(t.main.session, "Runtime.evaluate", map[string]any{"expression": askPage(), "contextId": w.id,
		"returnByValue": true})
}

// inPage is the handle of an element in the page's own world.
func (t *elements) inPage(ctx context.Context, f Found[*frame]) (objectID string, err error) {
	node, err := t.node(ctx, f)
	if err != nil {
		return "", err
	}
	var resolved struct{ Object remote }
	err = t.call(ctx, f.Frame.target.session, "DOM.resolveNode", map[string]int{"backendNodeId": node}, &resolved)
	return resolved.Object.ObjectID, err
}

// node is the number by which the browser knows an element in all worlds.
func (t *elements) node(ctx context.Context, f Found[*frame]) (int, error) {
	target, err := json.Marshal(f.Find)
	if err != nil {
		return 0, err
	}
	ours, err := f.Frame.evaluateIf(ctx, f.Frame.world, metBy(f.Find),
		fmt.Sprintf("btools.api.element({target:%s})", target), false)
	if err != nil {
		return 0, err
	}
	if ours.ObjectID == "" {
		return 0, fmt.Errorf("%s is not in the page any more", f.What)
	}
	session, object := f.Frame.target.session, map[string]string{"objectId": ours.ObjectID}
	defer t.b.conn.Begin(session, "Runtime.releaseObject", object, nil)
	var described struct{ Node struct{ BackendNodeID int } }
	err = t.call(ctx, session, "DOM.describeNode", object, &described)
	return described.Node.BackendNodeID, err
}

// json is a value as results show it.
func (r remote) json() string {
	switch {
	case r.Value != nil:
		var out bytes.Buffer
		value := readable(r.Value)
		if json.Indent(&out, value, "", "  ") == nil {
			return out.String()
		}
		return string(value)
	case r.UnserializableValue != "":
		return r.UnserializableValue
	}
	return "undefined"
}

// readable is a JSON value whose letters are not escaped: Chrome escapes all that are
// not ASCII. What cannot be seen stays as it is.
func readable(value []byte) []byte {
	out := make([]byte, 0, len(value))
	for len(value) > 0 {
		n := bytes.IndexByte(value, '\\')
		if n < 0 {
			break
		}
		out, value = append(out, value[:n]...), value[n:]
		letter, length := escaped(value)
		if length > 6 && letter == unicode.ReplacementChar { // two halves that do not belong together
			length = 6
		}
		if unicode.IsPrint(letter) && letter > unicode.MaxASCII && letter != unicode.ReplacementChar {
			out = utf8.AppendRune(out, letter)
		} else {
			out = append(out, value[:length]...)
		}
		value = value[length:]
	}
	return append(out, value...)
}

// escaped is the letter of an escape at the beginning of a text, and the length of that.
// Of an escape that is no \u it is 0.
func escaped(text []byte) (letter rune, length int) {
	unit := func(text []byte) (rune, bool) {
		if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
		return rune(n), err == nil
	}
	first, ok := unit(text)
	if !ok {
		return 0, min(2, len(text))
	}
	if second, ok := unit(text[6:]); ok && utf16.IsSurrogate(first) {
		return utf16.DecodeRune(first, second), 12
	}
	return first, 6
}
