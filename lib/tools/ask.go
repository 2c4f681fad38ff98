package tools

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"btools/lib/cdp"
	"btools/lib/jsonrpc"
	"btools/lib/terminal"
	"btools/lib/wait"
)

const (
	// askWait is how long a call waits for a person: less than hosts wait for calls.
	askWait = 18 * time.Second
	// consentWait is how long a call waits for the answer of a host that has been asked by the answer to its request,
	// and repeats that: less than bmcp waits.
	consentWait = 4 * time.Minute
	// keptAsks is how long an answer is kept that nobody has fetched.
	keptAsks = time.Hour
	// maxAsk is how long a call may take that is a task.
	maxAsk = 25 * time.Hour
)

// MetaAsTask marks the call of a tool that is executed as a task: it may take as long as it needs.
const MetaAsTask = "btools/as-task"

// Asks are what an agent asks people. Each has a connection of its own to its session, whose end withdraws it: it lasts
// longer than the call that has begun it, and than the server of its session. The zero value is none.
type Asks struct {
	mu     sync.Mutex
	all    map[string]*ask
	closed bool
	work   sync.WaitGroup
}

// ask is one that a person is to answer.
type ask struct {
	id, instructions string
	withdraw         context.CancelCauseFunc
	begun            time.Time

	done chan struct{} // closed when these are known
	got  asked
	err  error
}

// asked is the structured result of browser_ask_human.
type asked struct {
	Outcome string `json:"outcome"`
	Note    string `json:"note,omitempty"`
	URL     string `json:"url,omitempty"`
	AskID   string `json:"ask_id,omitempty"` // what the next call waits with
}

// Outcomes of asks.
const (
	done     = "done"
	declined = "declined"
	waiting  = "waiting"
)

// errWithdrawn is why an ask has ended.
var errWithdrawn = errors.New("nobody is asked any more")

// Close withdraws all asks, and waits for that.
func (all *Asks) Close() {
	all.mu.Lock()
	all.closed = true
	for _, k := range all.all {
		k.withdraw(errWithdrawn)
	}
	all.mu.Unlock()
	all.work.Wait()
}

// find returns an ask, nil if there is none.
func (all *Asks) find(id string) *ask {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.all[id]
}

// begin asks a person in the session at an endpoint, by the parameters of Btools.requestHuman. It returns once it is
// known whether that is refused.
func (all *Asks) begin(ctx context.Context, endpoint, instructions string, params map[string]any) (*ask, error) {
	conn, err := cdp.Dial(ctx, endpoint, func(cdp.Event) {})
	if err != nil {
		return nil, err
	}
	life, withdraw := context.WithCancelCause(context.Background())
	k := &ask{id: strings.ToLower(rand.Text()[:13]), instructions: instructions, begun: time.Now(), withdraw: withdraw,
		done: make(chan struct{})}
	conn.Begin("", "Btools.requestHuman", params, func(result json.RawMessage, err error) {
		if err == nil {
			err = json.Unmarshal(result, &k.got)
		}
		k.err = unasked(err, context.Cause(life))
		close(k.done)
	})
	if !all.add(k) {
		conn.Close()
		return nil, errWithdrawn
	}
	all.work.Go(func() {
		select {
		case <-k.done:
		case <-life.Done():
		}
		conn.Close()
		withdraw(nil)
	})
	err = conn.Call(ctx, "", "Browser.getVersion", nil, nil) // which is answered after a refusal
	if wait.Closed(k.done) {
		return k, k.err
	}
	if err != nil {
		withdraw(err)
	}
	return k, err
}

// add keeps an ask, unless they are closed.
func (all *Asks) add(k *ask) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	for id, other := range all.all {
		if wait.Closed(other.done) && time.Since(other.begun) > keptAsks {
			delete(all.all, id)
		}
	}
	if all.all == nil {
		all.all = map[string]*ask{}
	}
	all.all[k.id] = k
	return !all.closed
}

// errNoPerson is the error of a browser in which nobody can be asked.
var errNoPerson = errors.New("nobody can be asked in this browser: that needs a session of bproxy share, or of bpool " +
	"with ISOLATION=context. bmcp without --cdp, --extension and --pool has one")

// unasked returns why a person was not asked, or is not asked any more; nil: they have answered.
func unasked(err, withdrawn error) error {
	e, refused := errors.AsType[*jsonrpc.Error](err)
	switch {
	case err == nil:
		return nil
	case withdrawn != nil:
		return withdrawn
	case refused && e.Code == jsonrpc.MethodNotFound:
		return errNoPerson
	case refused:
		return errors.New(e.Message)
	}
	return errors.New("nobody is asked any more: the browser or its program has ended")
}

// askHuman asks a person, or waits for the answer to an earlier ask.
func askHuman(ctx context.Context, r *reply, a struct {
	Instructions, Until string
	Private             *bool
	Timeout             float64
	AskID               string `json:"ask_id"`
}) error {
	s := r.server
	if a.AskID != "" {
		k := s.Asks.find(a.AskID)
		if k == nil {
			return fmt.Errorf("there is no ask %q, or its answer was told long ago", a.AskID)
		}
		return r.await(ctx, k, nil)
	}
	if a.Instructions == "" {
		return errors.New("instructions is missing: it tells the person what to do")
	}
	params := map[string]any{"instructions": a.Instructions, "until": a.Until, "timeoutMs": int64(a.Timeout),
		"private": a.Private == nil || *a.Private}
	k, err := s.Asks.begin(ctx, s.Endpoint, a.Instructions, params)
	if err != nil {
		return err
	}
	if err = r.await(ctx, k, s.reach(ctx, k)); ctx.Err() != nil && !wait.Closed(k.done) {
		k.withdraw(errWithdrawn) // nobody has its ID
	}
	return err
}

// reached is how a person learns of an ask.
type reached struct {
	key string // of the session on the page; "": not known
	// consent is closed when the person has agreed, in the host. failed is closed if the host cannot ask; nil: the host
	// is not asked at all.
	consent, failed chan struct{}
	ended           chan struct{} // closed when the host is not asked any more; nil: it never was
}

// reach has the host tell the person of an ask, if it can.
func (s *Server) reach(ctx context.Context, k *ask) *reached {
	s.mu.Lock()
	can := s.canElicit
	s.mu.Unlock()
	byURL := jsonrpc.Get(can, "url") != nil
	byForm := can != nil && (jsonrpc.Get(can, "form") != nil || !byURL)
	to := &reached{}
	address, err := "", error(nil)
	if s.View != nil {
		to.key, address, err = s.View(ctx, byURL)
	}
	says := "The agent asks you: " + terminal.Printable(oneLine(k.instructions)) // a host may show it as it is
	var params map[string]any
	switch {
	case byURL && address != "" && err == nil:
		params = map[string]any{"mode": "url", "url": address, "elicitationId": k.id, "message": says}
	case byForm:
		params = map[string]any{"message": says + "\nAccept, and do it in the browser session on the page that this " +
			"command opens: " + to.command() + "\nDecline ends the ask.",
			"requestedSchema": map[string]any{"type": "object", "properties": map[string]any{}}}
	default:
		return to
	}
	to.consent, to.failed, to.ended = make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.work.Go(func() {
		defer close(to.ended)
		switch answer := s.elicit(k, params); answer {
		case "accept":
			close(to.consent)
		case "decline", "cancel":
			k.withdraw(errDeclined)
		case "":
			close(to.failed)
		}
		if byURL {
			select {
			case <-k.done:
				s.out.Write(jsonrpc.Request(nil, "notifications/elicitation/complete",
					jsonrpc.Set(nil, "elicitationId", jsonrpc.Quote(k.id))), false)
			case <-s.life.Done():
			}
		}
	})
	return to
}

// errDeclined is the error of an ask that the person has declined in the host.
var errDeclined = errors.New("the person declined")

// elicit asks the host, and returns what the person does; "": the host cannot ask. What nobody needs any more is not
// asked any more: "ended".
func (s *Server) elicit(k *ask, params any) string {
	raw, _ := json.Marshal(params) // which texts never fail
	id, answer := "ask-"+k.id, make(chan *jsonrpc.Message, 1)
	s.mu.Lock()
	s.elicited[id] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.elicited, id)
		s.mu.Unlock()
	}()
	s.out.Write(jsonrpc.Request(jsonrpc.Quote(id), "elicitation/create", raw), false)
	select {
	case m := <-answer:
		return jsonrpc.GetString(m.Result, "action")
	case <-k.done:
	case <-s.life.Done():
	}
	gone := jsonrpc.Set(jsonrpc.Set(nil, "reason", jsonrpc.Quote("it is answered")), "requestId", jsonrpc.Quote(id))
	s.out.Write(jsonrpc.Request(nil, "notifications/cancelled", gone), false)
	return "ended"
}

// command returns the command that leads a person to the session.
func (to *reached) command() string {
	return strings.TrimSpace("bproxy view --control " + to.key)
}

// await waits for the answer to an ask, for a while, and says what has become of it. Reached is nil for an ask that an
// earlier call has begun.
func (r *reply) await(ctx context.Context, k *ask, to *reached) error {
	s := r.server
	words := to != nil && to.consent == nil // only the agent can tell the person
	limit := time.NewTimer(s.of(askWait))
	defer limit.Stop()
	var consent, failed chan struct{}
	if to != nil {
		consent, failed = to.consent, to.failed
	}
	switch {
	case words:
		limit.Reset(0)
	case r.asTask:
		limit.Stop()
	case consent != nil && s.Stateless: // the host's request is answered by the question
		limit.Reset(consentWait)
	}
	for {
		select {
		case <-k.done:
			if to != nil && to.ended != nil {
				<-to.ended // the host is told so first
			}
			return r.tellAsk(k)
		case <-consent:
			if consent = nil; s.Stateless && !r.asTask {
				limit.Reset(s.of(askWait))
			}
			continue
		case <-failed:
			failed, words = nil, true
			limit.Reset(0)
			continue
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
		}
		break
	}
	r.structured = asked{Outcome: waiting, AskID: k.id}
	if words {
		r.say("This host cannot tell a person. Tell them yourself, in these words: %q. They do it on the page that "+
			"the command `%s` opens. Then wait with ask_id %q.", oneLine(k.instructions), to.command(), k.id)
		return nil
	}
	r.say("A person is asked, and has not answered yet. Wait with ask_id %q. While they have control of the session, "+
		"other calls there fail.", k.id)
	return nil
}

// tellAsk says what has become of an ask.
func (r *reply) tellAsk(k *ask) error {
	if k.err != nil {
		return k.err
	}
	note := ""
	if k.got.Note != "" {
		note = fmt.Sprintf(" The person says: %q", k.got.Note)
	}
	switch k.got.Outcome {
	case done:
		r.structured = k.got
		r.say("The person has done it: %s.%s", oneLine(k.instructions), note)
		return nil
	case declined:
		return fmt.Errorf("%w.%s", errDeclined, note)
	case "timeout":
		return errors.New("nobody has answered in time")
	}
	return fmt.Errorf("it has failed: %s", cmp.Or(k.got.Note, k.got.Outcome))
}
