package proxy

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/coder/websocket"

	"btools/lib/launcher"
)

// session is what one client's connection to a BiDi browser reveals of its
// session. Firefox has one session at a time, and keeps it when its client's
// connection drops: nobody else gets one until somebody ends it.
type session struct {
	frames frames
	id     string // "" until it is known
}

// newSession watches a connection to this path: /session, or /session/ID of
// one that is there already.
func newSession(path string) *session {
	s := &session{}
	s.id, _ = strings.CutPrefix(path, "/session/")
	if s.id == path {
		s.id = ""
	}
	s.frames.message = func(_ bool, payload []byte, _ int64) {
		if s.id != "" {
			return
		}
		// The answer to session.new is the only one with a sessionId.
		var m struct {
			Type   string `json:"type"`
			Result struct {
				SessionID string `json:"sessionId"`
			} `json:"result"`
		}
		if json.Unmarshal(payload, &m) == nil && m.Type == "success" {
			s.id = m.Result.SessionID
		}
	}
	return s
}

// Write takes what the browser sends.
func (s *session) Write(b []byte) (int, error) { return s.frames.Write(b) }

// endBound is how long a session may take to end.
const endBound = 5 * time.Second

// endSession ends the session of a client that has left without doing so.
func (p *Proxy) endSession(g *generation, u *upgraded) {
	if u.session == nil || u.session.id == "" {
		return
	}
	g.ending.Lock()
	defer g.ending.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), endBound)
	defer cancel()
	go func() {
		select {
		case <-g.end:
			cancel()
		case <-ctx.Done():
		}
	}()
	c, _, err := websocket.Dial(ctx, "ws://"+launcher.Addr(g.browser.Instance)+"/session/"+u.session.id, nil)
	if err != nil {
		p.Log.Debug("session is ended already", "session", u.session.id, "answer", err)
		return
	}
	defer c.CloseNow()
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":1,"method":"session.end","params":{}}`)); err == nil {
		_, _, err = c.Read(ctx)
	}
	if err != nil {
		p.Log.Warn("cannot end the session that a client has left", "session", u.session.id, "why", err)
	}
}
