package bus

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"btools/lib/control"
)

// Keys are how a program connects. Paths are of files that are read at each connection, so that they can be replaced.
type Keys struct {
	Servers      []string
	Name         string // of the host or user, which the server's permissions have, too
	Credentials  string // file with a JWT and its seed
	Seed         string // file with the seed of an nkey
	User         string
	PasswordFile string
	CA           string // file; "": the system's
	Cert, Key    string // files of a certificate of this program
}

// NATS is a connection to a cluster of servers, which comes back by itself after it was lost.
type NATS struct {
	conn *nats.Conn
	log  *slog.Logger
	keys Keys

	mu      sync.Mutex
	down    time.Time // since when; zero: it is up
	last    error
	changed func(up bool)
}

// Connect returns a connection, even if no server can be reached now. Changed is called when it comes up or goes
// down. An error is one of the keys.
func Connect(keys Keys, log *slog.Logger, changed func(up bool)) (*NATS, error) {
	n := &NATS{log: log, keys: keys, changed: changed, down: time.Now()}
	options := []nats.Option{
		nats.Name("bpool " + keys.Name),
		nats.CustomInboxPrefix("_INBOX." + Token(keys.Name)),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(100*time.Millisecond, time.Second),
		nats.ReconnectBufSize(-1), // a message that is late is worth nothing
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
		nats.Timeout(2 * time.Second), nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(func(*nats.Conn) { n.set(true, nil) }),
		nats.ReconnectHandler(func(*nats.Conn) { n.set(true, nil) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { n.set(false, err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { n.note(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) { n.failed(s, err) }),
	}
	authorization, err := keys.options()
	if err != nil {
		return nil, err
	}
	n.conn, err = nats.Connect(strings.Join(keys.Servers, ","), append(options, authorization...)...)
	return n, err
}

func (k *Keys) options() (all []nats.Option, err error) {
	switch {
	case k.Credentials != "":
		if _, err := os.Stat(k.Credentials); err != nil {
			return nil, err
		}
		all = append(all, nats.UserCredentials(k.Credentials))
	case k.Seed != "":
		o, err := nats.NkeyOptionFromSeed(k.Seed)
		if err != nil {
			return nil, fmt.Errorf("cannot use the seed in %s: %w", k.Seed, err)
		}
		all = append(all, o)
	case k.User != "":
		if _, err := os.ReadFile(k.PasswordFile); err != nil {
			return nil, err
		}
		all = append(all, nats.UserInfoHandler(func() (string, string) {
			b, _ := os.ReadFile(k.PasswordFile)
			return k.User, strings.TrimSpace(string(b))
		}))
	}
	if k.CA != "" {
		if _, err := os.ReadFile(k.CA); err != nil {
			return nil, err
		}
		all = append(all, nats.RootCAs(k.CA))
	}
	if k.Cert != "" {
		if _, err := tls.LoadX509KeyPair(k.Cert, k.Key); err != nil {
			return nil, err
		}
		all = append(all, nats.ClientCert(k.Cert, k.Key))
	}
	return all, nil
}

// set notes that the connection is up or down.
func (n *NATS) set(up bool, err error) {
	n.mu.Lock()
	if up {
		n.down, n.last = time.Time{}, nil
	} else if n.down.IsZero() {
		n.down = time.Now()
	}
	if err != nil {
		n.last = err
	}
	n.mu.Unlock()
	if n.changed != nil {
		n.changed(up)
	}
}

// note notes why a server could not be reached.
func (n *NATS) note(err error) {
	n.mu.Lock()
	n.last = err
	n.mu.Unlock()
}

// failed logs an error of the server, which names the subject if it is one of permissions.
func (n *NATS) failed(s *nats.Subscription, err error) {
	key := n.keys.Name
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		n.log.Error(fmt.Sprintf("NATS refuses the user %s: %v", key, err))
	case errors.Is(err, nats.ErrSlowConsumer) && s != nil:
		n.log.Warn("too many messages came at once; some are lost: " + s.Subject)
	default:
		n.log.Warn(fmt.Sprintf("NATS: %v", err))
	}
	n.note(err)
}

// Down returns since when there has been no connection, and the last error; the zero time: there is one.
func (n *NATS) Down() (since time.Time, last error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down, n.last
}

// Close ends the connection.
func (n *NATS) Close() { n.conn.Close() }

// Request implements Bus.
func (n *NATS) Request(ctx context.Context, subject string, body, answer any) error {
	b, err := encode(body)
	if err != nil {
		return err
	}
	if !n.conn.IsConnected() {
		return ErrDown
	}
	m, err := n.conn.RequestWithContext(ctx, subject, b)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return ErrNobody
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return ErrLate
	case err != nil:
		return err
	}
	return (&Message{Subject: m.Subject, Data: m.Data}).Read(answer)
}

// Publish implements Bus.
func (n *NATS) Publish(subject string, body any) error {
	b, err := encode(body)
	if err != nil {
		return err
	}
	if !n.conn.IsConnected() {
		return ErrDown
	}
	return n.conn.Publish(subject, b)
}

// Subscribe implements Bus.
func (n *NATS) Subscribe(subject, group string, serve func(*Message)) (stop func(), err error) {
	handle := func(m *nats.Msg) { serve(n.message(m.Subject, m.Data, m.Respond)) }
	var s *nats.Subscription
	if group == "" {
		s, err = n.conn.Subscribe(subject, handle)
	} else {
		s, err = n.conn.QueueSubscribe(subject, group, handle)
	}
	if err != nil {
		return nil, err
	}
	s.SetPendingLimits(65_536, 8<<20)
	return func() { s.Unsubscribe() }, nil
}

func (n *NATS) message(subject string, data []byte, respond func([]byte) error) *Message {
	return &Message{Subject: subject, Data: data, Answer: func(body any) {
		if b, err := encode(body); err == nil {
			respond(b)
		}
	}}
}

func encode(body any) ([]byte, error) {
	b, err := json.Marshal(body)
	if err == nil && len(b) > MaxSize {
		err = fmt.Errorf("a message of %d bytes is too long", len(b))
	}
	return b, err
}

// Await waits until a server is connected, for at most some time.
func (n *NATS) Await(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for changed := n.conn.StatusChanged(nats.CONNECTED); !n.conn.IsConnected(); {
		select {
		case <-changed:
		case <-ctx.Done():
			_, last := n.Down()
			return control.Errorf(control.NoNATS, "no NATS server has answered within %v: %v", most, last)
		}
	}
	return nil
}
