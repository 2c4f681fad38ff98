package virtual

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"btools/lib/emulate"
	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
	"btools/lib/wait"
)

// The settings of a session may emulate a device, a place or a language, and its clients change that with
// Btools.emulate. Chrome does so for each page by itself, for as long as the CDP session that wants it lasts. So the
// session's own ones want it, before a page runs, and before its workers and its frames of other sites do: then it is
// so for all clients, in pop-ups, and after hibernation. A client that emulates something else overrides it, but the
// time zone and the language, of which Chrome refuses a second.

// emulated is what the pages of a session emulate. The browser's lock guards it.
type emulated struct {
	s        *Session
	changing sync.Mutex // held while a client changes it, before the browser's lock
	emulate.Emulation
	commands []emulate.Command // to each new page, before it runs
	metrics  json.RawMessage   // the parameters of the setDeviceMetricsOverride among them; nil: there is none
	parts    map[string]string // the types of workers and of frames of other sites, by the session's own CDP sessions
	fault    error             // the first error of a new page
}

// emulateTimeout is how long pages may take to say that they emulate something else: one that
// runs a script does so afterwards.
const emulateTimeout = 3 * time.Second

// set makes all pages emulate something, and those to come.
func (e *emulated) set(ctx context.Context, now emulate.Emulation) error {
	b := e.s.browser
	own := jsonrpc.GetString(b.version, "userAgent")
	var answers sync.WaitGroup
	var errs []error // guarded by the browser's lock
	b.mu.Lock()
	change := now.Commands(own, e.Emulation)
	e.Emulation, e.commands, e.metrics = now, now.Commands(own, emulate.Emulation{}), nil
	for _, c := range e.commands {
		if c.Method == "Emulation.setDeviceMetricsOverride" {
			e.metrics, _ = json.Marshal(c.Params)
		}
	}
	change = append(change, e.attachPartsLocked()...)
	for session, typ := range e.allLocked() {
		for _, c := range change {
			answers.Add(1)
			e.sendLocked(session, typ, c, func(err error) {
				errs = append(errs, err)
				answers.Done()
			})
		}
	}
	b.mu.Unlock()
	answered := make(chan struct{})
	go func() {
		answers.Wait()
		close(answered)
	}()
	ctx, cancel := context.WithTimeout(ctx, emulateTimeout)
	defer cancel()
	wait.For(ctx, answered)
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(errs...)
}

// allLocked returns the types of all that emulates, by the session's own CDP sessions.
func (e *emulated) allLocked() map[string]string {
	all := map[string]string{}
	for _, t := range e.s.pages.attachedLocked() {
		all[t.own] = "page"
	}
	for own, typ := range e.parts {
		all[own] = typ
	}
	return all
}

// attachPartsLocked returns the command by which Chrome tells of the workers of a page, and of its frames
// of other sites, before they run.
func (e *emulated) attachPartsLocked() []emulate.Command {
	if len(e.commands)+len(e.s.options.InitScript) == 0 {
		return nil
	}
	return []emulate.Command{{Method: "Target.setAutoAttach", Params: map[string]any{"autoAttach": true,
		"waitForDebuggerOnStart": true, "flatten": true,
		"filter": []map[string]string{{"type": "iframe"}, {"type": "worker"}}}}}
}

// sendLocked sends a command to a page, or to a part of one, which need not know it. It calls done with the
// fault under the lock, at once if workers have it from the pages of their process.
func (e *emulated) sendLocked(session, typ string, c emulate.Command, done func(error)) {
	if (c.IsOfProcess() || strings.HasPrefix(c.Method, "Page.")) && strings.HasSuffix(typ, "worker") {
		done(nil)
		return
	}
	e.s.link.Begin(session, c.Method, c.Params, func(_ json.RawMessage, err error) {
		e.s.browser.mu.Lock()
		defer e.s.browser.mu.Unlock()
		if emulate.IsInEffect(err) {
			e.claimLocked(session, claims)
		}
		if err = c.Fault(err); typ != "page" {
			err = nil
		}
		done(err)
	})
}

// beginLocked makes a new page or part of one emulate what the session does, and calls done when
// it does so, or cannot.
func (e *emulated) beginLocked(own, typ string, done func()) {
	all := slices.Concat(e.commands, e.s.options.initScripts(), e.attachPartsLocked())
	left := len(all) // the answers to a worker come in another order: some are of Chrome's own process
	for _, c := range all {
		e.sendLocked(own, typ, c, func(err error) {
			if err != nil && e.fault == nil {
				e.fault = err
				e.s.browser.log.Warn("a page is not as its session wants it", "error", err)
			}
			if left--; left == 0 {
				done()
			}
		})
	}
}

// checkScripts returns an error if a script of the settings cannot be compiled.
func (e *emulated) checkScripts(ctx context.Context) error {
	if len(e.s.options.InitScript) == 0 {
		return nil
	}
	e.s.browser.mu.Lock()
	page := ""
	if all := e.s.pages.attachedLocked(); len(all) > 0 {
		page = all[0].own
	}
	e.s.browser.mu.Unlock()
	e.s.link.Send(page, "Runtime.enable", nil) // or Chrome compiles none
	defer e.s.link.Send(page, "Runtime.disable", nil)
	for _, file := range e.s.options.InitScript {
		path, script, _ := strings.Cut(file, "\n")
		got, err := e.s.link.Call(ctx, page, "Runtime.compileScript", map[string]any{"expression": script,
			"sourceURL": path, "persistScript": false})
		if err != nil {
			return err
		}
		if wrong := jsonrpc.Get(got, "exceptionDetails"); wrong != nil {
			line, _ := strconv.Atoi(string(jsonrpc.Get(wrong, "lineNumber")))
			return fmt.Errorf("the init script %s, line %d: %s", path, line+1,
				jsonrpc.GetString(wrong, "exception", "description"))
		}
	}
	return nil
}

// partAttached makes a part of a page emulate what the session does before it runs.
func (e *emulated) partAttached(params json.RawMessage) {
	own, typ := jsonrpc.GetString(params, "sessionId"), jsonrpc.GetString(params, "targetInfo", "type")
	e.s.browser.mu.Lock()
	defer e.s.browser.mu.Unlock()
	e.parts[own] = typ
	e.beginLocked(own, typ, func() {})
	e.s.link.Send(own, "Runtime.runIfWaitingForDebugger", nil)
}

// claims is how often, and claimAgain how soon, a target is told again what another one of its process may still
// have: Chrome lets one target have the language and the time zone of a process.
const (
	claims     = 10
	claimAgain = 50 * time.Millisecond
)

// claimLocked lets a target have the language and the time zone itself, unless another one of its process stays,
// which has them for both.
func (e *emulated) claimLocked(own string, left int) {
	for _, c := range e.commands {
		if !c.IsOfProcess() {
			continue
		}
		e.s.link.Begin(own, c.Method, c.Params, func(_ json.RawMessage, err error) {
			if left > 1 && emulate.IsInEffect(err) {
				time.AfterFunc(claimAgain, func() {
					e.s.browser.mu.Lock()
					defer e.s.browser.mu.Unlock()
					e.claimLocked(own, left-1)
				})
			}
		})
	}
}

// claimAllLocked lets all other targets claim what a target had that has left its process.
func (e *emulated) claimAllLocked(left *target) {
	if !slices.ContainsFunc(e.commands, emulate.Command.IsOfProcess) {
		return
	}
	for own, typ := range e.allLocked() {
		if typ == "page" && own != left.own {
			e.claimLocked(own, claims)
		}
	}
}

// isWorkerLocked reports whether a target is a worker without a page that it belongs to, which is to emulate
// what the session does.
func (e *emulated) isWorkerLocked(t *target) bool {
	return (t.typ == "shared_worker" || t.typ == "service_worker") && len(e.commands) > 0
}

// prepareWorkerLocked makes a worker of several pages emulate what the session does, before it runs.
func (e *emulated) prepareWorkerLocked(t *target) {
	b := e.s.browser
	prepared := func() {
		t.prepared = true
		t.unblockLocked(blocker{})
	}
	late := time.AfterFunc(readyTimeout, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		prepared()
	})
	e.s.link.Begin("", "Target.attachToTarget", map[string]any{"targetId": t.id, "flatten": true},
		func(got json.RawMessage, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			own := jsonrpc.GetString(got, "sessionId")
			if err != nil || b.targets[t.id] != t {
				prepared()
				return
			}
			e.parts[own] = t.typ
			e.beginLocked(own, t.typ, func() {
				late.Stop()
				prepared()
			})
		})
}

// change changes what all pages emulate as emulate.Emulation.With does, and returns all of it. After an
// error it is as it was.
func (e *emulated) change(ctx context.Context, change json.RawMessage) (emulate.Emulation, error) {
	e.changing.Lock()
	defer e.changing.Unlock()
	e.s.browser.mu.Lock()
	was := e.Emulation
	e.s.browser.mu.Unlock()
	now, err := was.With(change, e.s.options.Emulation)
	if err != nil {
		return was, err
	}
	if len(now.Grant) > 0 && e.s.options.DefaultContext {
		return was, errors.New("the browser's own profile has the permissions that its user gives: in bmcp, " +
			"a session_id has another session")
	}
	if err = e.set(ctx, now); err == nil {
		err = e.grant(ctx, now, was)
	}
	if err != nil {
		return was, errors.Join(err, e.set(ctx, was))
	}
	return now, nil
}

// changeEmulation answers Btools.emulate.
func changeEmulation(r request) {
	ctx, cancel := r.k.bounded()
	defer cancel()
	now, err := r.k.session.emulates.change(ctx, r.Params)
	if err != nil {
		r.refuse(jsonrpc.Errorf(policy.ServerError, "%v", err))
		return
	}
	result, _ := json.Marshal(now) // of texts
	r.reply(result)
}

// now returns what the pages emulate.
func (e *emulated) now() *emulate.Emulation {
	e.s.browser.mu.Lock()
	defer e.s.browser.mu.Unlock()
	return new(e.Emulation)
}

// grant gives the pages of the base context the permissions of an emulation, and takes away
// those of the one before. A default context is its user's, who is asked.
func (e *emulated) grant(ctx context.Context, now, was emulate.Emulation) error {
	if e.s.options.DefaultContext {
		return nil
	}
	for _, c := range now.Grants(was) {
		c.Params["browserContextId"] = e.s.base
		if _, err := e.s.link.Call(ctx, "", c.Method, c.Params); err != nil {
			return fmt.Errorf("cannot grant %s: %w", c.Params["permission"].(map[string]string)["name"], err)
		}
	}
	return nil
}

// emulation is what a CDP session emulates.
type emulation struct {
	calls   *calls
	session string
	params  json.RawMessage // of Emulation.setDeviceMetricsOverride
}

// metricsLocked returns the sizes that clients, then the session, emulate for a target.
func (e *emulated) metricsLocked(t *target) (all []emulation) {
	for k := range e.s.clients.all {
		for session, params := range k.overrides.metrics {
			if k.sessions.targetLocked(session) == t {
				all = append(all, emulation{k.calls, session, params})
			}
		}
	}
	if e.metrics != nil && t.own != "" {
		all = append(all, emulation{e.s.link.calls, t.own, e.metrics})
	}
	return all
}

// scaleLocked returns the largest device scale factor that clients emulate for a target, 0 if none does.
func (e *emulated) scaleLocked(t *target) (scale float64) {
	for _, e := range e.metricsLocked(t) {
		scale = max(scale, policy.EmulatedScale(e.params))
	}
	return scale
}
