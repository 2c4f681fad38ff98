package control

import "context"

// Peer is the process at the other end of a connection: there is one Peer for each
// connection.
type Peer struct {
	// UID is the user that opened the connection; -1 on Windows, where the directory
	// of the socket lets in no other user.
	UID int
	// PID is the process that opened it, as this one sees processes; 0: it is not known.
	PID int
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
