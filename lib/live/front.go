// Package live is the service behind bproxy view: a page on which a person sees the sessions of all programs of this
// user, and takes one over. It checks who asks, lists sessions and relays CDP; it understands none of it. What a person
// may do is decided by the program that has the session.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os/user"
	"reflect"
	"strings"
	"sync"
	"time"

	"btools/lib/control/api"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/live/sources"
	"btools/lib/state"
	"btools/lib/terminal"
	"btools/lib/wait"
	"btools/lib/websocket"
)

const (
	helloTimeout = 2 * time.Second // until the first message of a WebSocket
	maxHello     = 4 << 10         // bytes of it
	maxWho       = 64              // bytes of the name of a person
	stall        = 15 * time.Second
	look         = time.Second // between two looks for sessions
	maxConns     = 256
	// Idle is how long the service runs after its last page.
	Idle = 10 * time.Minute
)

// Front answers the requests of pages. Set its fields before use.
type Front struct {
	Store *state.Store
	Log   *slog.Logger
	// Unused is called when no page has been open for Idle.
	Unused func()

	isOthers bool // tests: the programs of this user are another's
	tokens   tokens
	http     front.Front
	ctx      context.Context // of the WebSockets
	end      context.CancelFunc
	open     sync.WaitGroup // WebSockets

	mu    sync.Mutex
	pages int // that are open
	timer wait.Timer

	looking sync.Mutex
	looked  time.Time // when the last look began
	all     []sources.Session
	news    wait.Broadcast // of the next look
}

// Serve answers requests at a listener until the context ends. It then ends all WebSockets, and returns.
func (f *Front) Serve(ctx context.Context, l net.Listener) error {
	f.ctx, f.end = context.WithCancel(context.Background())
	f.http = front.Front{
		Guard: guard.Guard{Page: true, Browsers: guard.NewBrowsers(f.Store)},
		Routes: []front.Route{
			{Path: "/list", Get: true, Answer: f.serveList},
			{Path: "/session/", Get: true, Answer: f.serveSession},
			{Path: "", Get: true, Answer: serveAsset},
		},
		Limit: front.Limit{Max: maxConns}, Log: f.Log,
	}
	f.mu.Lock()
	f.timer.Start(Idle, f.unused)
	f.mu.Unlock()
	return f.http.Serve(ctx, func(*http.Server) {
		f.end()
		f.open.Wait()
		f.mu.Lock()
		f.timer.Stop()
		f.mu.Unlock()
	}, l)
}

// Fragment returns the end of the address of the page, or of a session with a key, with a new token that is used once.
func (f *Front) Fragment(key string, control bool) string {
	if key != "" {
		key = "/" + url.PathEscape(key)
	}
	return "/#t=" + f.tokens.issue(control, true) + key
}

// hello is the first message of a page.
type hello struct {
	Token string // "": the user of the page's browser decides
	Tile  bool
	Wake  bool // a hibernated session comes back
	Who   string
}

// welcome is the answer to it.
type welcome struct {
	Error   string `json:"error,omitempty"`   // why there is nothing else, and what to do
	Expired bool   `json:"expired,omitempty"` // the token is the reason
	Token   string `json:"token,omitempty"`   // in the place of one that is used up
	Control bool   `json:"control"`           // the page may take control
	Lock    *bool  `json:"lock,omitempty"`    // the session can be taken over
	Why     string `json:"why,omitempty"`     // if not
}

// person is who has opened a WebSocket.
type person struct {
	hello
	conn    *websocket.Conn
	welcome welcome
}

// answer tells the page how its WebSocket goes on.
func (p *person) answer(w welcome) error {
	b, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return p.conn.Write(b)
}

// refuse tells the page why there is nothing for it.
func (p *person) refuse(why string) {
	p.answer(welcome{Error: why})
	p.conn.Close(websocket.PolicyViolation, "")
}

// accept opens the WebSocket of a request for a person, and serves it. Nobody gets anything before the first message
// has a token, or comes from a browser of this user.
func (f *Front) accept(w *front.Response, r *http.Request, serve func(context.Context, *person)) error {
	if !front.IsUpgrade(r) {
		return front.NoPath(r)
	}
	conn, err := websocket.Accept(w, r)
	if err != nil {
		return nil // it is answered
	}
	conn.Stall = stall
	f.open.Add(1)
	defer f.open.Done()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close(websocket.GoingAway, "bproxy view has ended") })()
	defer conn.Close(websocket.Normal, "")
	p := &person{conn: conn}
	if !p.read() {
		return nil
	}
	var ok bool
	switch {
	case p.Token == "":
		ok, p.welcome.Control = guard.IsOurs(r) && !f.isOthers, true
	default:
		p.welcome.Control, p.welcome.Token, ok = f.tokens.use(p.Token)
	}
	if !ok {
		p.answer(welcome{Error: "this address does not open the page any more: run bproxy view",
			Expired: p.Token != ""})
		conn.Close(websocket.PolicyViolation, "")
		return nil
	}
	f.enter()
	defer f.leave()
	serve(ctx, p)
	return nil
}

// UserName returns the name of this user, or "a person".
var UserName = sync.OnceValue(func() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "a person"
})

// read reads the first message.
func (p *person) read() bool {
	late := time.AfterFunc(helloTimeout, func() { p.refuse("the first message was late") })
	defer late.Stop()
	m, err := p.conn.Next()
	if err == nil {
		err = m.Bound(maxHello)
	}
	var b []byte
	if err == nil {
		b, err = m.Bytes()
	}
	if err != nil {
		return false
	}
	if json.Unmarshal(b, &p.hello) != nil {
		p.refuse("the first message is not the one of the page: load it again")
		return false
	}
	p.Who = terminal.Printable(strings.Join(strings.Fields(p.Who), " "))
	p.Who = strings.ToValidUTF8(p.Who[:min(len(p.Who), maxWho)], "")
	if p.Who == "" {
		p.Who = UserName()
	}
	return late.Stop()
}

// enter counts a page.
func (f *Front) enter() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pages++
	f.timer.Stop()
}

// leave counts a page no more.
func (f *Front) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pages--; f.pages == 0 && f.ctx.Err() == nil {
		f.timer.Start(Idle, f.unused)
	}
}

// sessions returns the sessions as they were at a time or later.
func (f *Front) sessions(ctx context.Context, at time.Time) ([]sources.Session, error) {
	f.looking.Lock()
	defer f.looking.Unlock()
	now := time.Now()
	if !f.looked.Before(at) {
		return f.all, nil
	}
	all, err := sources.All(ctx, f.Store, f.all)
	if err == nil {
		f.all, f.looked = all, now
		f.news.Wake()
	}
	return all, err
}

// next returns what is closed at the next look.
func (f *Front) next() <-chan struct{} {
	f.looking.Lock()
	defer f.looking.Unlock()
	return f.news.Next()
}

// recently returns the time at which the list of sessions is to be from.
func recently() time.Time { return time.Now().Add(-look * 9 / 10) }

// find returns the session with a key as it was at a time or later.
func (f *Front) find(ctx context.Context, key string, at time.Time) (*sources.Session, error) {
	all, err := f.sessions(ctx, at)
	if err != nil {
		return nil, err
	}
	return sources.Find(all, key)
}

// serveList sends the sessions, and what changes of them.
func (f *Front) serveList(w *front.Response, r *http.Request) error {
	return f.accept(w, r, func(ctx context.Context, p *person) {
		if p.answer(p.welcome) != nil {
			return
		}
		gone := make(chan struct{})
		go func() { // a page has nothing more to say
			defer close(gone)
			for {
				if _, err := p.conn.Next(); err != nil {
					return
				}
			}
		}()
		tick := time.NewTicker(look)
		defer tick.Stop()
		var last []sources.Session
		for first := true; ; first = false {
			news := f.next()
			all, err := f.sessions(ctx, recently())
			if err != nil {
				p.refuse(err.Error())
				return
			}
			if first || !isSame(last, all) {
				b, err := json.Marshal(map[string]any{"sessions": all})
				if err != nil || p.conn.Write(b) != nil {
					return
				}
			}
			last = all
			select {
			case <-tick.C:
			case <-news:
				tick.Reset(look)
			case <-gone:
				return
			}
		}
	})
}

// isSame reports whether nothing has changed in a list but the time since the last use, which has gone on.
func isSame(was, now []sources.Session) bool {
	if len(was) != len(now) {
		return false
	}
	for i := range was {
		a, b := was[i], now[i]
		if b.Idle < a.Idle {
			return false
		}
		a.Idle = b.Idle
		if !reflect.DeepEqual(a, b) {
			return false
		}
	}
	return true
}

// serveSession relays between a page and the program that has a session.
func (f *Front) serveSession(w *front.Response, r *http.Request) error {
	key, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/session/"))
	if err != nil {
		return front.NoPath(r)
	}
	return f.accept(w, r, func(ctx context.Context, p *person) {
		s, err := f.find(ctx, key, recently())
		if err != nil || s.Why != "" { // it may have begun since
			s, err = f.find(ctx, key, time.Now())
		}
		if err == nil && s.Why != "" {
			err = errors.New(s.Why)
		}
		if err != nil {
			p.refuse(err.Error())
			return
		}
		program, at, err := s.Attach(ctx, api.AttachRequest{Who: p.Who, Tile: p.Tile, View: !p.welcome.Control,
			Wake: p.Wake && p.welcome.Control})
		if err != nil {
			p.refuse(err.Error())
			return
		}
		defer program.Close(websocket.GoingAway, "")
		program.Stall = stall
		p.welcome.Lock, p.welcome.Why = &at.Lock, at.Why
		if p.answer(p.welcome) == nil {
			websocket.Join(p.conn, program)
		}
	})
}

// isUnused reports whether no page is open.
func (f *Front) isUnused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pages == 0
}

// unused ends a service that no page has used for a while.
func (f *Front) unused() {
	if f.isUnused() {
		f.Unused()
	}
}
