package browse

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	proto "github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/cdp/jsonv2"
	"github.com/chromedp/cdproto/webmcp"

	"btools/lib/cdp"
	"btools/lib/cdp/wire"
)

// PageTool is a tool that a page declares for agents, by a script or as a form. Its words are the page's.
type PageTool struct {
	Name, Description                  string
	Schema                             json.RawMessage // of its input; nil: it has none
	ReadOnly, Consequential, Untrusted bool            // which the page says of it, or of its answers
	Waits                              bool            // it is a form, which a person is to submit
	Frame                              string          // as refs have it, such as f1; "": it is the page itself
	Of                                 *ToolDocument   // that declares it

	session, frame string // that declare it
}

// ToolDocument is a document that declares tools. No other document has the same pointer.
type ToolDocument struct {
	Page string // the address of the page that it is, or is in

	session, frame string
}

// is reports whether a tool is the one with a name in a frame. A frame that gets a process of its own is in another
// target then.
func (p *PageTool) is(name, session, frame string) bool {
	return p.Name == name && p.session == session && p.frame == frame
}

// invocation is a call of a page's tool. Its fields are guarded by the browser's lock.
type invocation struct {
	tool   PageTool
	id     string // "": the page has not been told of it yet
	begun  bool   // the page has been told of it
	alone  bool   // nobody waits for it any more: what comes of it is told later
	answer *webmcp.EventToolResponded
	err    error // why there will be none
}

// Bounds of what a page declares, and of the answers that wait to be told.
const (
	maxAnswered  = 10
	maxPageTools = 1000
	maxToolName  = 20_000 // bytes of the name of one
	maxSchema    = 64 << 10
	maxAbout     = 8 << 10
)

// pageTools are the tools that the documents of a tab declare.
type pageTools struct {
	*effects
	tools       []PageTool
	declaring   []*ToolDocument
	toolChanges int           // of them, counted
	invocations []*invocation // calls of them that are open
	answered    []*invocation // and those whose answers came when nobody waited
}

// toolEvent notes an event of the tools of a page.
func (t *target) toolEvent(e cdp.Event) {
	tab := t.tab
	switch e.Method {
	case webmcp.ToolsAdded.Method:
		for _, p := range read(webmcp.ToolsAdded, e.Params).Tools {
			tab.addTool(t.session, p)
		}
	case webmcp.ToolsRemoved.Method:
		for _, p := range read(webmcp.ToolsRemoved, e.Params).Tools {
			tab.dropTools(func(known *PageTool) bool { return known.is(p.Name, t.session, string(p.FrameID)) })
		}
	case webmcp.ToolInvoked.Method:
		if c := tab.invocation(t.session, read(webmcp.ToolInvoked, e.Params).InvocationID); c != nil {
			c.begun = true
		}
	case webmcp.ToolResponded.Method:
		p := read(webmcp.ToolResponded, e.Params)
		if p.Exception != nil && p.Exception.ObjectID != "" {
			tab.b.conn.Begin(t.session, "Runtime.releaseObject", map[string]any{"objectId": p.Exception.ObjectID}, nil)
		}
		if c := tab.invocation(t.session, p.InvocationID); c != nil {
			c.answer = &p
			tab.forget(c)
			if c.alone && len(tab.answered) < maxAnswered {
				tab.answered = append(tab.answered, c)
			}
		}
	}
}

// invocation is the call with an ID that a target has given it, nil if there is none that is open.
func (t *pageTools) invocation(session, id string) *invocation {
	i := slices.IndexFunc(t.invocations, func(c *invocation) bool { return c.tool.session == session && c.id == id })
	if i < 0 {
		return nil
	}
	return t.invocations[i]
}

func (t *pageTools) forget(c *invocation) {
	t.invocations = slices.DeleteFunc(t.invocations, func(other *invocation) bool { return other == c })
}

// addTool notes a tool that a page has declared. One that it declares again takes the place of that before.
func (t *pageTools) addTool(session string, p *webmcp.Tool) {
	known := func(k PageTool) bool { return k.is(p.Name, session, string(p.FrameID)) }
	i := slices.IndexFunc(t.tools, known)
	if i < 0 && len(t.tools) >= maxPageTools || p.Name == "" || len(p.Name) > maxToolName {
		return
	}
	tool := PageTool{Name: p.Name, Description: cut(p.Description, maxAbout), session: session,
		frame: string(p.FrameID), Of: t.toolDocument(session, string(p.FrameID))}
	if len(p.InputSchema) <= maxSchema {
		tool.Schema = slices.Clone(json.RawMessage(p.InputSchema))
	}
	if a := p.Annotations; a != nil {
		tool.ReadOnly, tool.Consequential, tool.Untrusted = a.ReadOnly, a.Consequential, a.UntrustedContent
	}
	tool.Waits = p.BackendNodeID != 0 && (p.Annotations == nil || !p.Annotations.Autosubmit)
	if t.toolChanges++; i >= 0 {
		t.tools[i] = tool
	} else {
		t.tools = append(t.tools, tool)
	}
}

// toolDocument returns the document that a frame of a target shows.
func (t *pageTools) toolDocument(session, frame string) *ToolDocument {
	is := func(d *ToolDocument) bool { return d.session == session && d.frame == frame }
	i := slices.IndexFunc(t.declaring, is)
	if i < 0 {
		i = len(t.declaring)
		t.declaring = append(t.declaring, &ToolDocument{t.url, session, frame})
	}
	return t.declaring[i]
}

// dropTools forgets tools.
func (t *pageTools) dropTools(is func(*PageTool) bool) {
	n := len(t.tools)
	t.tools = slices.DeleteFunc(t.tools, func(p PageTool) bool { return is(&p) })
	if len(t.tools) != n {
		t.toolChanges++
	}
}

// errLeft is the error of a call of a tool whose document has gone.
var errLeft = errors.New("the page, or the frame, of the tool has gone")

// toolsGone forgets the tools of documents that have gone, and ends their calls: Chrome tells nothing of that. They are
// those of a frame of a target, if frame is "" of all its frames, and if session is "" of the whole page.
func (t *pageTools) toolsGone(session, frame string) {
	of := func(p *PageTool) bool {
		return (session == "" || p.session == session) && (frame == "" || p.frame == frame)
	}
	t.dropTools(of)
	t.declaring = slices.DeleteFunc(t.declaring, func(d *ToolDocument) bool {
		return (session == "" || d.session == session) && (frame == "" || d.frame == frame)
	})
	for _, c := range slices.Clone(t.invocations) {
		if of(&c.tool) {
			c.err = errLeft
			t.forget(c)
		}
	}
}

// PageTools are the tools that the page declares now, those of the page itself first.
func (t *pageTools) PageTools(ctx context.Context) ([]PageTool, error) {
	t.b.mu.Lock()
	all := slices.Clone(t.tools)
	t.b.mu.Unlock()
	inFrame := func(p PageTool) bool { return p.frame != t.main.id }
	if !slices.ContainsFunc(all, inFrame) {
		return all, nil
	}
	frames, err := t.allFrames(ctx)
	if err != nil {
		return nil, err
	}
	var sorted []PageTool
	for _, f := range frames {
		for _, p := range all {
			if p.frame != f.id {
				continue
			}
			if inFrame(p) {
				p.Frame = t.b.refs.prefix(f)
			}
			sorted = append(sorted, p)
		}
	}
	return sorted, nil
}

// ToolState is what changes with the tools of a page: those of each document are others.
type ToolState struct {
	tab     *Tab
	loader  string
	changes int
}

// Document is the same for the tools of one document.
func (s ToolState) Document() ToolState { return ToolState{s.tab, s.loader, 0} }

// Shown is the current tab, nil if there is none, and the state of its tools.
func (b *Browser) Shown() (*Tab, ToolState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Front, b.toolStateLocked()
}

func (b *Browser) toolStateLocked() ToolState {
	if b.Front == nil {
		return ToolState{}
	}
	return ToolState{b.Front, b.Front.loader, b.Front.toolChanges}
}

// AwaitTools waits until there are other tools.
func (b *Browser) AwaitTools(ctx context.Context, than ToolState) error {
	return b.wait(ctx, func() bool { return b.toolStateLocked() != than })
}

// ToolAnswer is what has come of a call of a page's tool.
type ToolAnswer struct {
	Tool   PageTool
	Output json.RawMessage // nil: none
	State  AnswerState
}

// AnswerState is how a call of a page's tool has ended.
type AnswerState int

const (
	Answered AnswerState = iota
	Waiting              // for a person, who is to submit the form
	Left                 // the page has gone, and the answer with it
	Leaving              // the page is about to go
	Held                 // by a dialog, which is open
)

// CallPageTool calls a tool of the page with these arguments, and waits for its answer. Another call of the same form
// that waits is cancelled: it has one state. A page that is leaving is not asked: Chrome may give a command for it to
// the next one.
func (t *pageTools) CallPageTool(ctx context.Context, p PageTool, args json.RawMessage) (a ToolAnswer, err error) {
	most := t.b.of(agentTimeout)
	if err := t.until(ctx, most, func() bool { return !t.isLeaving() }); err != nil {
		return a, err
	}
	if a.Tool = p; p.Waits {
		t.CancelPageTool(p)
	}
	t.CatchUp()
	since := t.mark()
	c, err := t.invoke(p, args)
	if err != nil {
		return a, err
	}
	gaveUp := t.until(ctx, most, func() bool {
		switch {
		case c.answer != nil:
			a.Output, err = outputOf(c.answer)
		case t.overLocked() != nil: // which says more than that its documents have gone
			return false
		case c.err != nil && !errors.Is(c.err, errLeft):
			err = c.err
		case c.err != nil:
			a.State = Left
		case p.Waits && c.begun:
			a.State = Waiting
		default:
			return false
		}
		return true
	})
	var leaving *leavingError
	switch {
	case errors.As(gaveUp, &leaving):
		a.State = Leaving
	case errors.Is(gaveUp, errDialog):
		a.State = Held
	case gaveUp != nil:
		t.cancel(c)
		return a, t.noAnswer(p, gaveUp, most)
	}
	if a.State == Waiting || a.State == Leaving || a.State == Held {
		t.leave(c)
	}
	if err != nil || a.State == Leaving || a.State == Held || !t.hasStarted(since) {
		return a, err
	}
	return a, t.settle(ctx, since)
}

// noAnswer returns why a tool has not answered. If the page runs a script, that is stopped.
func (t *pageTools) noAnswer(p PageTool, why error, most time.Duration) error {
	switch {
	case !errors.Is(why, errLate):
		return why
	case t.answers(p.session):
		return fmt.Errorf("the tool did not answer within %v, and was cancelled", most)
	}
	t.b.conn.Begin(p.session, "Runtime.terminateExecution", nil, nil)
	if p.session != t.main.session {
		return errFrame
	}
	return errBusy
}

// leave has the answer of a call told later.
func (t *pageTools) leave(c *invocation) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if c.alone = true; c.answer != nil && len(t.answered) < maxAnswered { // it has come meanwhile
		t.answered = append(t.answered, c)
	}
}

// invoke begins a call of a tool, if its document is still there.
func (t *pageTools) invoke(p PageTool, args json.RawMessage) (*invocation, error) {
	c := &invocation{tool: p}
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if !slices.Contains(t.declaring, p.Of) {
		return nil, errLeft
	}
	t.invocations = append(t.invocations, c)
	params := webmcp.InvokeToolParams{FrameID: proto.FrameID(p.frame), ToolName: p.Name, Input: jsonv2.Value(args)}
	t.b.conn.Begin(p.session, webmcp.InvokeTool.Method, params, func(raw json.RawMessage, err error) {
		t.b.mu.Lock()
		defer t.b.mu.Unlock()
		defer t.b.changed.Wake()
		var told webmcp.InvokeToolResult
		if err == nil {
			err = json.Unmarshal(raw, &told)
		}
		switch c.id = told.InvocationID; {
		case err == nil && c.err != nil: // it was cancelled before
			t.tellCancelled(c)
		case err != nil && c.err == nil:
			if c.err = err; errors.Is(err, wire.ErrDetached) || isNoSession(err) {
				c.err = errLeft
			}
			t.forget(c)
		}
	})
	return c, nil
}

// CancelPageTool cancels the calls of a tool that nobody waits for, and reports whether there was one.
func (t *pageTools) CancelPageTool(p PageTool) (was bool) {
	t.b.mu.Lock()
	all := slices.Clone(t.invocations)
	t.b.mu.Unlock()
	for _, c := range all {
		if c.tool.is(p.Name, p.session, p.frame) {
			t.cancel(c)
			was = true
		}
	}
	return was
}

// cancel cancels a call.
func (t *pageTools) cancel(c *invocation) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	c.err = context.Canceled
	t.forget(c)
	if c.id != "" && c.answer == nil {
		t.tellCancelled(c)
	}
}

func (t *pageTools) tellCancelled(c *invocation) {
	t.b.conn.Begin(c.tool.session, webmcp.CancelInvocation.Method,
		webmcp.CancelInvocationParams{InvocationID: c.id}, nil)
}

// LateAnswers are those that have come since to calls which waited for a person or were held back.
func (t *pageTools) LateAnswers() (all []ToolAnswer, errs []error) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	for _, c := range t.answered {
		output, err := outputOf(c.answer)
		all, errs = append(all, ToolAnswer{Tool: c.tool, Output: output}), append(errs, err)
	}
	t.answered = nil
	return all, errs
}

// outputOf is what a tool has answered, or the error of that.
func outputOf(a *webmcp.EventToolResponded) (json.RawMessage, error) {
	switch a.Status {
	case webmcp.InvocationStatusCompleted:
		return readable(a.Output), nil
	case webmcp.InvocationStatusCanceled:
		return nil, errors.New("the page has cancelled the tool")
	}
	text := a.ErrorText
	if x := a.Exception; x != nil {
		text = cmp.Or(x.Description, string(x.Value), text)
	}
	text, _, _ = strings.Cut(text, "\n") // then the stack follows
	return nil, &Thrown{text}
}
