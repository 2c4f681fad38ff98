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
)

// The settings of a session may emulate a device, a place or a language, and its clients
// change that with Btools.emulate. Chrome does so for each page by itself, for as long as the
// CDP session that wants it lasts. So the session's own ones want it, before a page runs, and
// before its workers and its frames of other sites do: then it is so for all clients, in
// pop-ups, and after hibernation. A client that emulates something else overrides it, but the
// time zone and the language, of which Chrome refuses a second.

// emulated is what a session emulates. The browser's lock guards it.
type emulated struct {
	emulate.Emulation
	commands []emulate.Command // to each new page, before it runs
	metrics  json.RawMessage   // the parameters of the setDeviceMetricsOverride among them; nil: there is none
	parts    map[string]string // the types of workers and of frames of other sites, by the session's own CDP sessions
	fault    error             // the first error of a new page
}

// emulateTimeout is how long pages may take to say that they emulate something else: one that
// runs a script does so afterwards.
const emulateTimeout = 3 * time.Second

// emulate makes all pages emulate something, and those to come.
func (s *Session) emulate(ctx context.Context, now emulate.Emulation) error {
	b, e := s.browser, &s.emulates
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
	change = append(change, s.attachPartsLocked()...)
	for session, typ := range s.emulatingLocked() {
		for _, c := range change {
			answers.Add(1)
			s.emulateLocked(session, typ, c, func(err error) {
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
	select {
	case <-answered:
	case <-time.After(emulateTimeout):
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(errs...)
}

// emulatingLocked returns the types of all that emulates, by the session's own CDP sessions.
func (s *Session) emulatingLocked() map[string]string {
	all := map[string]string{}
	for _, own := range s.ownSessions {
		all[own] = "page"
	}
	for own, typ := range s.emulates.parts {
		all[own] = typ
	}
	return all
}

// attachPartsLocked returns the command by which Chrome tells of the workers of a page, and of its frames
// of other sites, before they run.
func (s *Session) attachPartsLocked() []emulate.Command {
	if len(s.emulates.commands)+len(s.options.InitScript) == 0 {
		return nil
	}
	return []emulate.Command{{Method: "Target.setAutoAttach", Params: map[string]any{"autoAttach": true,
		"waitForDebuggerOnStart": true, "flatten": true,
		"filter": []map[string]string{{"type": "iframe"}, {"type": "worker"}}}}}
}

// emulateLocked sends a command to a page, or to a part of one, which need not know it. It calls done with the
// fault under the lock, at once if workers have it from the pages of their process.
func (s *Session) emulateLocked(session, typ string, c emulate.Command, done func(error)) {
	if (c.IsOfProcess() || strings.HasPrefix(c.Method, "Page.")) && strings.HasSuffix(typ, "worker") {
		done(nil)
		return
	}
	s.link.Begin(session, c.Method, c.Params, func(_ json.RawMessage, err error) {
		s.browser.mu.Lock()
		defer s.browser.mu.Unlock()
		if emulate.IsInEffect(err) {
			s.claimLocked(session, claims)
		}
		if err = c.Fault(err); typ != "page" {
			err = nil
		}
		done(err)
	})
}

// beginEmulatingLocked makes a new page or part of one emulate what the session does, and calls done when
// it does so, or cannot.
func (s *Session) beginEmulatingLocked(own, typ string, done func()) {
	left := slices.Concat(s.emulates.commands, s.initScripts(), s.attachPartsLocked())
	for i, c := range left {
		s.emulateLocked(own, typ, c, func(err error) {
			if err != nil && s.emulates.fault == nil {
				s.emulates.fault = err
				s.browser.log.Warn("a page is not as its session wants it", "error", err)
			}
			if i == len(left)-1 {
				done()
			}
		})
	}
}

// initScripts returns the commands by which the scripts of the settings run in each document of a page.
func (s *Session) initScripts() (all []emulate.Command) {
	if len(s.options.InitScript) > 0 { // or Chrome runs none
		all = append(all, emulate.Command{Method: "Page.enable"})
	}
	for _, file := range s.options.InitScript {
		_, script, _ := strings.Cut(file, "\n")
		all = append(all, emulate.Command{Method: "Page.addScriptToEvaluateOnNewDocument",
			Params: map[string]any{"source": script, "runImmediately": true}})
	}
	return all
}

// checkScripts returns an error if a script of the settings cannot be compiled.
func (s *Session) checkScripts(ctx context.Context) error {
	if len(s.options.InitScript) == 0 {
		return nil
	}
	s.browser.mu.Lock()
	page := ""
	for _, page = range s.ownSessions {
		break
	}
	s.browser.mu.Unlock()
	s.link.Send(page, "Runtime.enable", nil) // or Chrome compiles none
	defer s.link.Send(page, "Runtime.disable", nil)
	for _, file := range s.options.InitScript {
		path, script, _ := strings.Cut(file, "\n")
		got, err := s.link.Call(ctx, page, "Runtime.compileScript", map[string]any{"expression": script,
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
func (s *Session) partAttached(params json.RawMessage) {
	own, typ := jsonrpc.GetString(params, "sessionId"), jsonrpc.GetString(params, "targetInfo", "type")
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	s.emulates.parts[own] = typ
	s.beginEmulatingLocked(own, typ, func() {})
	s.link.Send(own, "Runtime.runIfWaitingForDebugger", nil)
}

// claims is how often, and claimAgain how soon, a target is told again what another one of its process may still
// have: Chrome lets one target have the language and the time zone of a process.
const (
	claims     = 10
	claimAgain = 50 * time.Millisecond
)

// claimLocked lets a target have the language and the time zone itself, unless another one of its process stays,
// which has them for both.
func (s *Session) claimLocked(own string, left int) {
	for _, c := range s.emulates.commands {
		if !c.IsOfProcess() {
			continue
		}
		s.link.Begin(own, c.Method, c.Params, func(_ json.RawMessage, err error) {
			if left > 1 && emulate.IsInEffect(err) {
				time.AfterFunc(claimAgain, func() {
					s.browser.mu.Lock()
					defer s.browser.mu.Unlock()
					s.claimLocked(own, left-1)
				})
			}
		})
	}
}

// claimAllLocked lets all other targets claim what a target had that has left its process.
func (s *Session) claimAllLocked(left *target) {
	if !slices.ContainsFunc(s.emulates.commands, emulate.Command.IsOfProcess) {
		return
	}
	for own, typ := range s.emulatingLocked() {
		if typ == "page" && own != s.ownSessions[left.id] {
			s.claimLocked(own, claims)
		}
	}
}

// isWorkerLocked reports whether a target is a worker without a page that it belongs to, which is to emulate
// what the session does.
func (s *Session) isWorkerLocked(t *target) bool {
	return (t.typ == "shared_worker" || t.typ == "service_worker") && len(s.emulates.commands) > 0
}

// prepareWorkerLocked makes a worker of several pages emulate what the session does, before it runs.
func (s *Session) prepareWorkerLocked(t *target) {
	b := s.browser
	prepared := func() {
		t.prepared = true
		b.unblockLocked(t, blocker{})
	}
	late := time.AfterFunc(readyTimeout, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		prepared()
	})
	s.link.Begin("", "Target.attachToTarget", map[string]any{"targetId": t.id, "flatten": true},
		func(got json.RawMessage, err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			own := jsonrpc.GetString(got, "sessionId")
			if err != nil || b.targets[t.id] != t {
				prepared()
				return
			}
			s.emulates.parts[own] = t.typ
			s.beginEmulatingLocked(own, t.typ, func() {
				late.Stop()
				prepared()
			})
		})
}

// Emulate changes what all pages emulate as emulate.Emulation.With does, and returns all of it. After an
// error it is as it was.
func (s *Session) Emulate(ctx context.Context, change json.RawMessage) (emulate.Emulation, error) {
	s.emulating.Lock()
	defer s.emulating.Unlock()
	s.browser.mu.Lock()
	was := s.emulates.Emulation
	s.browser.mu.Unlock()
	now, err := was.With(change, s.options.Emulation)
	if err != nil {
		return was, err
	}
	if len(now.Grant) > 0 && s.options.DefaultContext {
		return was, errors.New("the browser's own profile has the permissions that its user gives: in bmcp, " +
			"a session_id has another session")
	}
	if err = s.emulate(ctx, now); err == nil {
		err = s.grant(ctx, now, was)
	}
	if err != nil {
		return was, errors.Join(err, s.emulate(ctx, was))
	}
	return now, nil
}

// emulate answers Btools.emulate.
func (k *Client) emulate(c policy.Command, _ *root) {
	ctx, cancel := k.bounded()
	defer cancel()
	now, err := k.session.Emulate(ctx, c.Params)
	if err != nil {
		k.refuse(c, jsonrpc.Errorf(policy.ServerError, "%v", err))
		return
	}
	result, _ := json.Marshal(now) // of texts
	k.reply(c, result)
}

// emulation returns what the pages emulate.
func (s *Session) emulation() *emulate.Emulation {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	return new(s.emulates.Emulation)
}
