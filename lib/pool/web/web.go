// Package web leases browsers to clients on other machines by HTTP: requests for leases, WebSockets that are a lease,
// and the addresses of leases. Whose a lease is and what a token may lease is the pool's to say.
package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/logins"
	"btools/lib/pool"
	"btools/lib/record"
	"btools/lib/settings"
	"btools/lib/tokens"
)

// Server answers the requests of clients. Set its fields before use.
type Server struct {
	Pools *pool.Service
	// Lent has leases on other hosts; nil: there are none.
	Lent Lent
	// Admit returns how long a token's request for a lease of a pool waits by default, or why it may not lease there;
	// nil: as the pools say.
	Admit func(t *tokens.Token, pool string) (time.Duration, error)
	// Lease answers hold, with a state that the request itself has, if not nil.
	Lease func(ctx context.Context, r api.HoldRequest, inline *logins.State) (any, error)
	// Call answers the other methods.
	Call control.Handler
	// Elsewhere returns the lease of an ID, or all leases of the caller, that other processes of this service
	// have; one with a secret if it is the lease's.
	Elsewhere func(ctx context.Context, lease, secret string) []Distant
	// HoldElsewhere has leases that this process does not know go on, and waits for their news. Those are
	// gone that no other process of this service has.
	HoldElsewhere func(ctx context.Context, p pool.Holding) pool.Held
	// Boot is the ID of this process.
	Boot string
	// Public is the address of the server as clients know it; nil: that at which they ask.
	Public *url.URL

	lines    lines
	relaying atomic.Int64
}

// Lent is the leases on other hosts.
type Lent interface {
	Has(id string) bool
	Confirm(id string) error
	RemoteOf(id string) (pool.Remote, error)
	Leases(who *control.Peer) []*record.Record
}

// has reports whether a lease is one on another host.
func (s *Server) has(id string) bool { return s.Lent != nil && s.Lent.Has(id) }

// RemoteOf returns the address of a token's lease.
func (s *Server) RemoteOf(id string) (pool.Remote, error) {
	if s.has(id) {
		return s.Lent.RemoteOf(id)
	}
	return s.Pools.RemoteOf(id)
}

// LeasesOf returns the records of somebody's leases of this process.
func (s *Server) LeasesOf(who *control.Peer) []*record.Record {
	all := s.Pools.For(who).Leases()
	if s.Lent != nil {
		all = append(all, s.Lent.Leases(who)...)
	}
	return all
}

// Relaying returns how many requests are being answered by the browsers of leases of this process.
func (s *Server) Relaying() int {
	if s == nil {
		return 0
	}
	return int(s.relaying.Load())
}

// Distant is a lease of another process of this service.
type Distant struct {
	Remote pool.Remote    `json:"remote"`
	Record *record.Record `json:"record"`
}

const (
	// maxBody bounds the body of a request, in bytes: a state may be in it.
	maxBody = 1 << 20
	// MaxSession bounds the body of a request for a lease, which may have a session.
	MaxSession = 32 << 20
	// writeBound is how long a client may take to read an answer.
	writeBound = 30 * time.Second
)

// Routes returns those of the server, for a front whose guard asks for tokens.
func (s *Server) Routes() []front.Route {
	byPath := func(*http.Request) *guard.Guard { return &guard.Guard{NoPages: true, AnyHost: true} }
	return []front.Route{
		{Path: "/lease", Answer: s.post(s.lease)},
		{Path: "/renew", Answer: s.post(s.renew)},
		{Path: "/release", Answer: s.post(s.release)},
		{Path: "/hold", Answer: s.post(s.holdOn)},
		{Path: "/freeze", Answer: s.post(s.freeze)},
		{Path: "/rest", Answer: s.post(s.rest)},
		{Path: "/state", Answer: s.post(s.state)},
		{Path: "/leases", Get: true, Answer: s.leases},
		{Path: "/connect", Get: true, Answer: s.connect},
		{Path: pool.RemotePrefix, Guard: byPath, Secret: true, Answer: s.browser},
	}
}

// Count counts a lease that another process of this service has among those that a token may have. Call left when it
// has ended.
func (s *Server) Count(token string) (left func()) { return s.lines.count(token) }

// post returns an answer to POST requests with a body of JSON, whose context is that of the client.
func (s *Server) post(answer func(*front.Response, *http.Request, *tokens.Token) error,
) func(*front.Response, *http.Request) error {
	return func(w *front.Response, r *http.Request) error {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", "POST")
			return guard.Refuse(http.StatusMethodNotAllowed, control.BadRequest,
				"%s must be requested with POST, not %s",
				r.URL.Path, r.Method)
		}
		_, t := guard.TokenOf(r)
		return answer(w, r.WithContext(control.WithPeer(r.Context(), control.ByToken(t))), t)
	}
}

// read reads the body of a request, a JSON object with known members.
func read(r *http.Request, into any) error {
	b, err := readBytes(r, maxBody)
	if err != nil {
		return err
	}
	return decode(b, into)
}

// readBytes reads a body of at most so many bytes.
func readBytes(r *http.Request, most int64) ([]byte, error) {
	b, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, most))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, errLong(most)
	case err != nil:
		return nil, control.Errorf(control.BadRequest, "cannot read the body: %v", err)
	}
	return b, nil
}

func errLong(most int64) error {
	return guard.Refuse(http.StatusRequestEntityTooLarge, control.BadRequest, "the body has more than %d bytes", most)
}

func decode(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return control.Errorf(control.BadRequest, "the body is not a JSON object as it should be: %v", err)
	}
	if d.More() {
		return control.Errorf(control.BadRequest, "after the body's JSON object comes more")
	}
	return nil
}

// duration is one as on the command line, such as 30s.
type duration struct{ *time.Duration }

// UnmarshalJSON reads it.
func (d *duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return errors.New(`a duration is a string such as "30s"`)
	}
	return d.parse(text)
}

func (d *duration) parse(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil || v < 0 || v > settings.MaxDuration {
		return fmt.Errorf(`%q is no duration such as "30s", up to %v`, text, settings.MaxDuration)
	}
	d.Duration = &v
	return nil
}

// ms returns the milliseconds, nil for none.
func (d duration) ms() *int64 {
	if d.Duration == nil {
		return nil
	}
	return new(d.Milliseconds())
}

// ask is a request for a lease: the body of /lease, or the query of /connect.
type ask struct {
	Pool     string          `json:"pool"`
	Instance string          `json:"instance"`
	Timeout  duration        `json:"timeout"`
	TTL      duration        `json:"ttl"`
	State    json.RawMessage `json:"state"` // the name of one, or a state
	Holder   string          `json:"holder"`
	Offer    string          `json:"offer"`   // that was made on NATS
	Keep     string          `json:"keep"`    // the next lease that says the same gets what this one leaves
	Session  json.RawMessage `json:"session"` // that another host has saved
	Here     bool            `json:"here"`    // only an instance of this host will do
}

// hold leases an instance for a token, whose line it waits in first. The context is that of the client.
func (s *Server) hold(ctx context.Context, t *tokens.Token, a ask, r api.HoldRequest) (*record.Record, error) {
	if a.Pool == "" {
		a.Pool = pool.PoolOf(t)
	}
	r.Pool, r.Instance, r.Holder, r.Offer, r.Saved = a.Pool, a.Instance, a.Holder, a.Offer, a.Session
	r.Keep, r.Here = a.Keep, a.Here
	if ms := a.TTL.ms(); ms != nil {
		r.TTL = *ms
	}
	var inline *logins.State
	var name string
	switch {
	case len(a.State) == 0 || json.Unmarshal(a.State, &name) == nil && name != "":
	default:
		state, dropped, err := logins.Parse(a.State)
		if err == nil && len(dropped) > 0 {
			err = fmt.Errorf("it has %s, which cannot be restored", strings.Join(dropped, ", "))
		}
		if err != nil {
			return nil, control.Errorf(control.BadRequest, "cannot use the state: %v", err)
		}
		inline = state
	}
	if name != "" {
		b, _ := json.Marshal(map[string]string{"state": name})
		if err := json.Unmarshal(b, &r.Settings); err != nil {
			return nil, control.Errorf(control.BadRequest, "%v", err)
		}
	}
	admit := s.Admit
	if admit == nil {
		admit = func(t *tokens.Token, pool string) (time.Duration, error) {
			return s.Pools.For(control.ByToken(t)).Admit(pool)
		}
	}
	most, err := admit(t, a.Pool)
	if err != nil {
		return nil, err
	}
	if a.Timeout.Duration != nil {
		most = *a.Timeout.Duration
	}
	began := time.Now()
	leave, err := s.lines.enter(ctx, t, most)
	if err != nil {
		s.Pools.LogRefusal(pool.Request{Pool: r.Pool, Instance: r.Instance, Holder: r.Holder, By: control.ByToken(t)},
			began, err)
		return nil, err
	}
	r.Timeout = new(max(0, most-time.Since(began)).Milliseconds())
	got, err := control.Finish(s.Lease(ctx, r, inline))
	if err != nil {
		s.Pools.Offers.Return(a.Offer) // if it has not lapsed
		leave()
		if name != "" && control.ErrorOf(err).Code == control.Unavailable {
			return nil, guard.Refuse(http.StatusNotFound, control.Unavailable, "the service has no state %q", name)
		}
		return nil, err
	}
	rec := got.(*record.Record)
	var l record.Lease
	rec.Get("lease", &l)
	at, err := s.RemoteOf(l.ID)
	if err != nil { // it has ended already
		leave()
		return nil, err
	}
	go func() {
		<-at.Ended
		leave()
	}()
	return rec, nil
}

// lease answers /lease. A lease of which its client cannot be told is released.
func (s *Server) lease(w *front.Response, r *http.Request, t *tokens.Token) error {
	var a ask
	b, err := readBytes(r, MaxSession)
	if err == nil {
		err = decode(b, &a)
	}
	if err == nil && len(b)-len(a.Session) > maxBody {
		err = errLong(maxBody)
	}
	if err != nil {
		return err
	}
	conn := http.NewResponseController(w)
	conn.SetReadDeadline(time.Time{}) // its turn may take long; the end of the connection is noticed
	conn.SetWriteDeadline(time.Time{})
	ctx, done := context.WithCancel(context.WithoutCancel(r.Context()))
	defer done()
	leave := context.AfterFunc(r.Context(), done)
	rec, err := s.hold(ctx, t, a, api.HoldRequest{Confirm: true})
	if err != nil {
		return err
	}
	leave() // who has read the answer may disconnect before the lease is confirmed
	var l record.Lease
	rec.Get("lease", &l)
	s.readdress(r, rec)
	conn.SetWriteDeadline(time.Now().Add(writeBound))
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	line := rec.Line()
	w.Header().Set("Content-Length", strconv.Itoa(len(line))) // so that nothing is to be written after the flush
	if _, err = w.Write(line); err == nil {
		err = conn.Flush()
	}
	if err == nil {
		if s.has(l.ID) {
			s.Lent.Confirm(l.ID)
		} else {
			s.Pools.Confirm(l.ID) // unless it has ended
		}
	}
	return nil // the lease ends with done unless it is confirmed
}

// call calls a method of the control socket.
func (s *Server) call(ctx context.Context, method string, params any) (any, error) {
	b, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	return control.Finish(s.Call(ctx, method, b))
}

// callAs is call for an answer that may come from another process.
func callAs[A, P any](ctx context.Context, s *Server, method control.Method[P, A], params P) (a A, err error) {
	got, err := s.call(ctx, string(method), params)
	if err != nil {
		return a, err
	}
	if raw, ok := got.(json.RawMessage); ok {
		return a, json.Unmarshal(raw, &a)
	}
	return got.(A), nil
}

// renew answers /renew.
func (s *Server) renew(w *front.Response, r *http.Request, _ *tokens.Token) error {
	var p struct {
		Lease string   `json:"lease"`
		TTL   duration `json:"ttl"`
	}
	if err := read(r, &p); err != nil {
		return err
	}
	q := api.RenewRequest{Of: api.Of{Lease: p.Lease}}
	if ms := p.TTL.ms(); ms != nil {
		q.TTL = *ms
	}
	got, err := s.call(r.Context(), string(api.Renew), q)
	if err != nil {
		return err
	}
	rec, ok := got.(*record.Record)
	if !ok { // it is relayed
		if rec, err = record.Parse(got.(json.RawMessage)); err != nil {
			return err
		}
	}
	s.readdress(r, rec)
	return answer(w, rec)
}

// release answers /release.
func (s *Server) release(w *front.Response, r *http.Request, _ *tokens.Token) error {
	var p struct {
		Lease string `json:"lease"`
		All   bool   `json:"all"`
		Moved bool   `json:"moved"` // it goes on at another host
	}
	if err := read(r, &p); err != nil {
		return err
	}
	got, err := s.call(r.Context(), string(api.Release), api.ReleaseRequest{Of: api.Of{Lease: p.Lease, All: p.All},
		Moved: p.Moved})
	if err != nil {
		return err
	}
	return answer(w, got)
}

// rest answers /rest.
func (s *Server) rest(w *front.Response, r *http.Request, _ *tokens.Token) error {
	var p ofLease
	if err := read(r, &p); err != nil {
		return err
	}
	got, err := s.call(r.Context(), string(api.Rest), api.Of{Lease: p.Lease})
	if err != nil {
		return err
	}
	return answer(w, got)
}

// ofLease is the body of a request about a lease.
type ofLease struct {
	Lease string `json:"lease"`
}

// state answers /state with the state of a lease's session.
func (s *Server) state(w *front.Response, r *http.Request, _ *tokens.Token) error {
	var p ofLease
	if err := read(r, &p); err != nil {
		return err
	}
	got, err := callAs(r.Context(), s, api.LeaseState, api.Of{Lease: p.Lease})
	if err != nil {
		return err
	}
	return answer(w, State{State: got.Data, Lost: got.Lost})
}

// State answers /state.
type State struct {
	State json.RawMessage `json:"state"` // as Playwright has it
	Lost  []string        `json:"lost,omitempty"`
}

// leases answers /leases.
func (s *Server) leases(w *front.Response, r *http.Request) error {
	_, t := guard.TokenOf(r)
	all := s.LeasesOf(control.ByToken(t))
	for _, d := range s.Elsewhere(control.WithPeer(r.Context(), control.ByToken(t)), "", "") {
		all = append(all, d.Record)
	}
	for _, rec := range all {
		s.readdress(r, rec)
	}
	return answer(w, all)
}

func answer(w http.ResponseWriter, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Write(append(b, '\n'))
	return nil
}
