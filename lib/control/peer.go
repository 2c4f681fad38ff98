package control

import (
	"context"
	"strconv"

	"btools/lib/private"
	"btools/lib/tokens"
)

// Peer is the process at the other end of a connection: there is one Peer for each
// connection.
type Peer struct {
	// UID is the user that opened the connection; -1 on Windows, where the directory
	// of the socket lets in no other user.
	UID int
	// PID is the process that opened it, as this one sees processes; 0: it is not known.
	PID int
	// Token is that of a client by HTTP, which is no user; nil: the peer is a user.
	Token *tokens.Token
}

// Stranger is the uid of nobody, to whom nothing belongs.
const Stranger = -2

// ByToken returns the peer that a client with a token is.
func ByToken(t *tokens.Token) *Peer { return &Peer{UID: Stranger, Token: t} }

// String returns who the peer is, as "uid:1000" or "token:ci".
func (p *Peer) String() string {
	if p.Token != nil {
		return "token:" + p.Token.Name
	}
	return "uid:" + strconv.Itoa(p.UID)
}

// IsOperator reports whether the peer may do all that the service can: root, the user who runs it, and tokens with
// admin.
func (p *Peer) IsOperator() bool {
	if p.Token != nil {
		return p.Token.Admin
	}
	return private.IsOwn(p.UID)
}

type peerKey struct{}

// PeerOf returns the peer whose request has this context, nil without one.
func PeerOf(ctx context.Context) *Peer {
	p, _ := ctx.Value(peerKey{}).(*Peer)
	return p
}

// WithPeer returns a context of the requests of a peer.
func WithPeer(ctx context.Context, p *Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}
