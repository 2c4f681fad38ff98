package guard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"btools/lib/control"
	"btools/lib/private"
	"btools/lib/sockets"
	"btools/lib/tokens"
)

// peer is the other end of a connection.
type peer struct {
	conn    net.Conn
	socket  func() (sockets.Socket, error) // there is an error if it is not known whose it is
	once    sync.Once
	browser bool
	token   atomic.Pointer[tokens.Token] // of its last request; nil: it had none
}

type peerKey struct{}

// ConnContext adds the connection to the context of its requests, for Check. It is an
// http.Server's.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &peer{conn: c, socket: sync.OnceValues(func() (sockets.Socket, error) {
		if !sockets.IsHere(c) {
			return sockets.Socket{}, errors.New("it comes from another machine")
		}
		return sockets.Of(c)
	})})
}

// peerOf returns the other end of a request's connection; nil: it is not known.
func peerOf(r *http.Request) *peer {
	p, _ := r.Context().Value(peerKey{}).(*peer)
	return p
}

// TokenOf returns the token of a request that has been allowed, and its connection; nil: none is needed.
func TokenOf(r *http.Request) (net.Conn, *tokens.Token) {
	if p := peerOf(r); p != nil {
		return p.conn, p.token.Load()
	}
	return nil, nil
}

// CheckUser returns a refusal for a request of a program of another user of this machine
// than the one with this uid, this program's own user and root. If the system does not tell
// whose connections are, only what belongs to these two can be used.
func CheckUser(r *http.Request, uid int) *Refusal {
	s, err := sockets.Socket{}, errors.New("the connection is not known")
	if p := peerOf(r); p != nil {
		s, err = p.socket()
	}
	switch {
	case err == nil && (int(s.UID) == uid || private.IsOwn(int(s.UID))):
		return nil
	case err == nil:
		return Refuse(http.StatusForbidden, control.NotAllowed, "user %d has no lease with this endpoint", s.UID)
	case private.IsOwn(uid) && !errors.Is(err, sockets.ErrUnheld):
		return nil
	}
	return Refuse(http.StatusForbidden, control.NotAllowed,
		"this endpoint is for user %d, and it is not known who connects: %v", uid, err)
}
