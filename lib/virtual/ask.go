package virtual

import (
	"context"
	"encoding/json"
	"time"

	"btools/lib/control/api"
	"btools/lib/jsonrpc"
	"btools/lib/record"
	"btools/lib/virtual/policy"
	"btools/lib/virtual/takeover"
)

// A client asks a person to do something in the session, such as to log in, by Btools.requestHuman, which is answered
// when the person is done. The connection's end withdraws it.

// Outcomes of an ask.
const (
	done     = "done"
	declined = "declined"
	late     = "timeout" // nobody has answered
	failed   = "failed"  // the session has ended
)

// answer is what became of an ask.
type answer struct {
	Outcome string `json:"outcome"`
	Note    string `json:"note"` // of the person
	URL     string `json:"url"`  // of the page that the person looked at; "": not known
}

// Bounds of an ask.
const (
	askTime    = 10 * time.Minute // of one without a time of its own
	maxAskTime = 24 * time.Hour
	maxNote    = 2 << 10 // bytes
)

// requestHuman answers Btools.requestHuman. An ask is private unless it says otherwise.
func requestHuman(r request) {
	var p struct {
		Instructions, Until string
		Private             *bool
		TimeoutMs           int64
	}
	most := askTime
	switch err := json.Unmarshal(r.Params, &p); {
	case err != nil || p.Instructions == "" || len(p.Instructions) > takeover.MaxInstructions:
		r.refuse(jsonrpc.Errorf(jsonrpc.InvalidParams, "instructions is a text of up to %d bytes for a person",
			takeover.MaxInstructions))
		return
	case p.TimeoutMs < 0 || p.TimeoutMs > maxAskTime.Milliseconds():
		r.refuse(jsonrpc.Errorf(jsonrpc.InvalidParams, "timeoutMs is up to %d", maxAskTime.Milliseconds()))
		return
	case p.TimeoutMs > 0:
		most = time.Duration(p.TimeoutMs) * time.Millisecond
	}
	if err := takeover.CheckCondition(p.Until); err != nil {
		r.refuse(jsonrpc.Errorf(jsonrpc.InvalidParams, "until: %v", err))
		return
	}
	ask := takeover.Ask{Instructions: p.Instructions, Until: p.Until, Private: p.Private == nil || *p.Private}
	if r.k.person != nil {
		ask.By = r.k.person.Who
	}
	await, err := r.k.session.lock.ask(ask)
	if err != nil { // which comes before the answer to the client's next command
		r.refuse(err)
		return
	}
	r.k.session.work.Go(func() {
		ctx, cancel := context.WithTimeout(r.k.ctx, most)
		defer cancel()
		result, _ := json.Marshal(await(ctx))
		r.reply(result)
	})
}

// ask returns what asks a person and waits for the answer; the end of its context withdraws the ask.
func (l *personLock) ask(a takeover.Ask) (await func(context.Context) answer, err error) {
	a.Since = time.Now()
	l.asking.Lock()
	defer l.asking.Unlock()
	open, answered, err := l.begin(a)
	if err != nil {
		return nil, err
	}
	l.told("asked", a.Instructions)
	l.s.clients.tellAsk()
	return func(ctx context.Context) answer {
		select {
		case got := <-answered:
			return got
		case <-l.s.Done():
			l.answer(open, answer{Outcome: failed, Note: "the session has ended: " + l.s.Err().Error()})
		case <-ctx.Done():
			l.answer(open, answer{Outcome: late})
		}
		return <-answered
	}, nil
}

// begin opens an ask, and returns it and what gets its answer.
func (l *personLock) begin(a takeover.Ask) (*takeover.Ask, <-chan answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.asks.Begin(a); err != nil {
		return nil, nil, err
	}
	answered := make(chan answer, 1)
	l.answered = answered
	return l.asks.Open, answered, nil
}

// answer ends an ask, unless it has ended.
func (l *personLock) answer(a *takeover.Ask, with answer) {
	l.asking.Lock()
	defer l.asking.Unlock()
	l.mu.Lock()
	was := l.asks.End(a)
	if was {
		l.answered <- with
	}
	l.mu.Unlock()
	if was {
		l.told("answered", with.Outcome)
		l.s.clients.tellAsk()
	}
}

// askOpen returns the ask that is open; nil: none.
func (l *personLock) askOpen() *takeover.Ask {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asks.Open
}

// asking is what persons are told of an ask; all is empty: there is none.
type asking struct {
	Instructions string       `json:"instructions,omitempty"`
	Until        string       `json:"until,omitempty"`
	Private      bool         `json:"private"`
	By           string       `json:"by,omitempty"` // "": the agent
	Since        *record.Time `json:"since,omitempty"`
}

// tellAsk tells persons of the ask that is open, or that none is.
func (c *clientSet) tellAsk() {
	c.tellPersons("Btools.asked", func(*Client) any {
		a := c.s.lock.askOpen()
		if a == nil {
			return asking{}
		}
		return asking{a.Instructions, a.Until, a.Private, a.By, &record.Time{Time: a.Since}}
	})
}

// askStatus returns the ask that is open; nil: none.
func (l *personLock) askStatus() *api.Ask {
	a := l.askOpen()
	if a == nil {
		return nil
	}
	return &api.Ask{Instructions: a.Instructions, By: a.By, Since: record.Time{Time: a.Since}}
}

// give answers Btools.give: the person gives control back, and with it the answer to an ask, or declines that.
func give(r request) {
	var p struct{ Outcome, Note, TargetID string }
	json.Unmarshal(r.Params, &p) // else nothing is said
	lock, k := &r.k.session.lock, r.k
	has, open := lock.isOf(k, false), lock.askOpen()
	declines := p.Outcome == declined && open != nil && k.person != nil && !k.person.Tile && !k.person.View
	switch {
	case !has && !declines:
		r.refuse(jsonrpc.Errorf(policy.ServerError, "you do not have control of this session"))
		return
	case p.Outcome != "" && p.Outcome != done && p.Outcome != declined, len(p.Note) > maxNote:
		r.refuse(jsonrpc.Errorf(jsonrpc.InvalidParams, "outcome is done or declined, note a text of up to %d bytes",
			maxNote))
		return
	}
	if p.Outcome == "" {
		p.Outcome = done
	}
	if has {
		lock.give(k.holder)
	}
	r.reply(emptyObject)
	if open != nil {
		lock.answer(open, answer{p.Outcome, p.Note, k.session.addressOf(p.TargetID)})
	}
}

// addressOf returns the URL of a page of the session; "": there is no such page.
func (s *Session) addressOf(target string) string {
	s.browser.mu.Lock()
	defer s.browser.mu.Unlock()
	if t := s.browser.targets[target]; t != nil && t.session == s {
		return jsonrpc.GetString(t.info, "url")
	}
	return ""
}
