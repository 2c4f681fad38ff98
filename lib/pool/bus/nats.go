package bus

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
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
	slow atomic.Uint64 // times that messages were lost

	mu      sync.Mutex
	down    time.Time // since when; zero: it is up
	last    error
	refused map[string]error // by the subject for which this connection has no right
	flights map[*flight]bool // requests without an answer
	barred  time.Time        // when it was logged that the server does not let the user in
	changed func(up bool)
}

// flight is a request without an answer.
type flight struct {
	subject string
	end     context.CancelFunc
}

// Connect returns a connection, even if no server can be reached now. Changed is called when it comes up or goes
// down. An error is one of the keys.
func Connect(keys Keys, log *slog.Logger, changed func(up bool)) (*NATS, error) {
	n := &NATS{log: log, keys: keys, changed: changed, down: time.Now(),
		flights: map[*flight]bool{}}
	options := []nats.Option{
		nats.Name("bpool " + keys.Name),
		nats.CustomInboxPrefix(inboxes(&keys)),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(pause),
		nats.ReconnectBufSize(-1), // a message that is late is worth nothing
		nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2),
		nats.Timeout(2 * time.Second), nats.IgnoreAuthErrorAbort(),
		nats.ConnectHandler(n.connected), nats.ReconnectHandler(n.connected),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { n.set(false, err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { n.note(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) { n.failed(s, err) }),
	}
	authorization, err := keys.options()
	if err != nil {
		return nil, err
	}
	n.conn, err = nats.Connect(strings.Join(keys.Servers, ","), append(options, authorization...)...)
	if err == nil && n.conn.IsConnected() { // the handler is called some time later
		n.mu.Lock()
		n.down = time.Time{}
		n.mu.Unlock()
	}
	return n, err
}

// pause returns the time until the next attempt, after some with all servers: up to 100 ms, and then twice as long up
// to 2 s.
func pause(attempts int) time.Duration {
	most := min(100*time.Millisecond<<min(attempts-1, 5), 2*time.Second)
	return most/2 + rand.N(most/2)
}

// inboxes is the start of the subjects of answers.
func inboxes(k *Keys) string { return "_INBOX." + Token(k.Name) }

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
	case k.User != "" && k.PasswordFile == "":
		return nil, errors.New("NATS_USER needs NATS_PASSWORD_FILE")
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
	if (k.Cert == "") != (k.Key == "") {
		return nil, errors.New("NATS_CERT and NATS_KEY belong together")
	}
	if k.Cert != "" {
		if _, err := tls.LoadX509KeyPair(k.Cert, k.Key); err != nil {
			return nil, err
		}
		all = append(all, nats.ClientCert(k.Cert, k.Key))
	}
	return all, nil
}

// setting names the settings that say who the user is.
func (k *Keys) setting() string {
	switch {
	case k.Credentials != "":
		return "NATS_CREDS " + k.Credentials
	case k.Seed != "":
		return "NATS_NKEY " + k.Seed
	case k.User != "":
		return "NATS_USER " + k.User + " and NATS_PASSWORD_FILE " + k.PasswordFile
	}
	return "NATS_CREDS, NATS_NKEY or NATS_USER, of which none is set"
}

// connected notes that a server is connected.
func (n *NATS) connected(c *nats.Conn) {
	if most := c.MaxPayload(); most < MaxSize {
		n.log.Error(fmt.Sprintf("NATS takes messages of %d bytes only: max_payload must be %d or more", most, MaxSize))
	}
	n.set(true, nil)
}

// set notes that the connection is up or down.
func (n *NATS) set(up bool, err error) {
	n.mu.Lock()
	if up && n.down.IsZero() {
		n.mu.Unlock()
		return
	}
	if up {
		n.down, n.last, n.refused = time.Time{}, nil, nil
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

// barring finds that the server does not let a user in, of which not all errors are those of the client's package.
var barring = regexp.MustCompile(`(?i)authorization violation|authentication (expired|revoked)`)

// note notes an error of the connection. That a server does not let the user in is logged at once.
func (n *NATS) note(err error) (bars bool) {
	bars = barring.MatchString(err.Error())
	if bars {
		err = fmt.Errorf("NATS refuses the user %s: %w: look at %s", n.keys.Name, err, n.keys.setting())
	}
	if errors.Is(err, nats.ErrSecureConnWanted) {
		err = errors.New("the server has no encryption, for which tls:// asks")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = err
	if bars && time.Since(n.barred) > time.Minute { // it is tried again all the time
		n.barred = time.Now()
		n.log.Error(err.Error())
	}
	return bars
}

// ofSubject finds the subject in an error of permissions.
var ofSubject = regexp.MustCompile(`"([^"]+)"`)

// failed logs an error of the connection. One of permissions names the subject, and is logged once.
func (n *NATS) failed(s *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		subject := ofSubject.FindStringSubmatch(err.Error())
		drains := subject != nil && isDrain(subject[1])
		hint := "NATS_NAME must be the name in the permissions of " + n.keys.setting()
		if drains {
			hint = "only admins may drain hosts: look at " + n.keys.setting()
		}
		err = fmt.Errorf("NATS refuses the user %s: %w: %s", n.keys.Name, err, hint)
		n.mu.Lock()
		defer n.mu.Unlock()
		if subject != nil && n.refused[subject[1]] == nil {
			if n.refused == nil {
				n.refused = map[string]error{}
			}
			n.refused[subject[1]] = err
			if !drains { // else its sender says so
				n.log.Error(err.Error())
			}
			for f := range n.flights {
				if n.refusalLocked(f.subject) != nil {
					f.end()
				}
			}
		}
	case errors.Is(err, nats.ErrSlowConsumer) && s != nil:
		n.slow.Add(1)
		n.log.Warn("too many messages came at once; some are lost: " + s.Subject)
	case !n.note(err):
		n.log.Warn(fmt.Sprintf("NATS: %v", err))
	}
}

// refusalLocked returns an error if the user may not send a request, or not read its answer.
func (n *NATS) refusalLocked(subject string) error {
	for of, err := range n.refused {
		if of == subject || strings.HasPrefix(of, inboxes(&n.keys)) {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return nil
}

// Down returns since when there has been no connection, and the last error; the zero time: there is one.
func (n *NATS) Down() (since time.Time, last error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down, n.last
}

// Connected reports whether a server is connected.
func (n *NATS) Connected() bool { return n.conn.IsConnected() }

// Counts returns how often the connection has come back, and how often messages were lost because too many came.
func (n *NATS) Counts() (reconnects, slow uint64) { return n.conn.Stats().Reconnects, n.slow.Load() }

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
	ctx, end := context.WithCancel(ctx)
	defer end()
	f := &flight{subject, end}
	n.mu.Lock()
	n.flights[f] = true
	refused := n.refusalLocked(subject) // it was refused before
	n.mu.Unlock()
	if refused != nil {
		end()
	}
	m, err := n.conn.RequestWithContext(ctx, subject, b)
	n.mu.Lock()
	delete(n.flights, f)
	refused = n.refusalLocked(subject)
	n.mu.Unlock()
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return ErrNobody
	case err != nil && refused != nil:
		return refused
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
	return func() {
		if s.Drain() != nil { // which serves messages that are on their way
			s.Unsubscribe()
		}
	}, nil
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
