package guard

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"btools/lib/control"
	"btools/lib/private"
	"btools/lib/sockets"
)

// peer is the other end of a connection.
type peer struct {
	socket  func() (sockets.Socket, error) // there is an error if it is not known whose it is
	once    sync.Once
	browser bool
}

type peerKey struct{}

// ConnContext adds the connection to the context of its requests, for Check. It is an
// http.Server's.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &peer{socket: sync.OnceValues(func() (sockets.Socket, error) {
		if !sockets.IsHere(c) {
			return sockets.Socket{}, errors.New("it comes from another machine")
		}
		return sockets.Of(c)
	})})
}

// CheckUser returns a refusal for a request of a program of another user of this machine
// than the one with this uid, this program's own user and root. If the system does not tell
// whose connections are, only what belongs to these two can be used.
func CheckUser(r *http.Request, uid int) *Refusal {
	s, err := sockets.Socket{}, errors.New("the connection is not known")
	if p, ok := r.Context().Value(peerKey{}).(*peer); ok {
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
