package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// permissions is the directory with the permission files.
const permissions = "../../../scripts/nats"

// startServer starts a server of NATS, which ends with the test, and returns its URL.
func startServer(t *testing.T, env []string, config string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	host, port, _ := net.SplitHostPort(addr)
	l.Close()
	program := os.Getenv("BTOOLS_NATS_SERVER")
	if program == "" {
		program = "nats-server"
	}
	c := exec.Command(program, "-a", host, "-p", port, "-c", config)
	c.Env = append(os.Environ(), env...)
	if err := c.Start(); err != nil {
		t.Fatalf("%v: make deps installs it", err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
	})
	for range 500 {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return "nats://" + addr
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the server of NATS does not listen")
	return ""
}

// withPasswords starts a server with users.conf, and returns what connects as a user.
func withPasswords(t *testing.T) (url string, as func(user string) nats.Option) {
	url = startServer(t, []string{"BTOOLS_VM1_PASSWORD=of-vm1", "BTOOLS_CI_PASSWORD=of-ci",
		"BTOOLS_OPS_PASSWORD=of-ops"}, permissions+"/users.conf")
	return url, func(user string) nats.Option { return nats.UserInfo(user, "of-"+user) }
}

// withNKeys does so with nkeys.conf.
func withNKeys(t *testing.T) (url string, as func(user string) nats.Option) {
	var env []string
	dir := t.TempDir()
	for _, user := range []string{"vm1", "ci", "ops"} {
		pair, _ := nkeys.CreateUser()
		public, _ := pair.PublicKey()
		seed, _ := pair.Seed()
		if err := os.WriteFile(filepath.Join(dir, user), seed, 0o600); err != nil {
			t.Fatal(err)
		}
		env = append(env, fmt.Sprintf("BTOOLS_%s_NKEY=%s", strings.ToUpper(user), public))
	}
	return startServer(t, env, permissions+"/nkeys.conf"), func(user string) nats.Option {
		o, err := nats.NkeyOptionFromSeed(filepath.Join(dir, user))
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
}

// withJWT does so with what the program of the permission files makes.
func withJWT(t *testing.T) (url string, as func(user string) nats.Option) {
	dir := t.TempDir()
	for user, role := range map[string]string{"vm1": "host", "ci": "gateway", "ops": "admin"} {
		c := exec.Command("go", "run", "./jwt", dir, role, user)
		c.Dir = permissions
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return startServer(t, nil, dir+"/server.conf"), func(user string) nats.Option {
		return nats.UserCredentials(filepath.Join(dir, user+".creds"))
	}
}

// right is what a user may do, or may not.
type right struct {
	user, subject string
	queue         string // "": none
}

// The users of the permission files may do what hosts, gateways and admins do, and nothing else: neither in the name
// of another one, nor read what is for another one.
func TestPermissions(t *testing.T) {
	t.Parallel()
	publish := map[bool][]right{
		true: {
			{user: "vm1", subject: LoadSubject("eu", "vm1")},
			{user: "vm1", subject: OfferSubject("eu", "ci", "g", "vm1")},
			{user: "vm1", subject: OpenSubject("eu", "A", "vm1")},
			{user: "vm1", subject: "$SRV.STATS.bpool"},
			{user: "ci", subject: FreeSubject("eu", "a.b", Any, "ci", "g")},
			{user: "ci", subject: WantSubject("eu", "A", "ci", "g")},
			{user: "ci", subject: HostSubject("eu", "vm1", "want", "ci", "g")},
			{user: "ci", subject: HostSubject("eu", "vm1", "cancel", "ci", "g")},
			{user: "ci", subject: "$SRV.STATS.bpool"},
			{user: "ops", subject: FreeSubject("eu", "A", "r1", "ops", "g")},
			{user: "ops", subject: HostSubject("eu", "vm1", "drain", "ops", "g")},
		},
		false: {
			// A host in the place of another one, or as a gateway.
			{user: "vm1", subject: LoadSubject("eu", "vm2")},
			{user: "vm1", subject: OfferSubject("eu", "ci", "g", "vm2")},
			{user: "vm1", subject: OpenSubject("eu", "A", "vm2")},
			{user: "vm1", subject: FreeSubject("eu", "A", Any, "vm1", "g")},
			{user: "vm1", subject: WantSubject("eu", "A", "ci", "g")},
			{user: "vm1", subject: HostSubject("eu", "vm2", "want", "vm1", "g")},
			{user: "vm1", subject: HostSubject("eu", "vm2", "cancel", "ci", "g")},
			{user: "vm1", subject: HostSubject("eu", "vm2", "drain", "vm1", "g")},
			{user: "vm1", subject: "_INBOX.ci.x"}, // an answer to nothing
			// A gateway in the place of another one, as a host, or as an admin.
			{user: "ci", subject: FreeSubject("eu", "A", Any, "ops", "g")},
			{user: "ci", subject: WantSubject("eu", "A", "ops", "g")},
			{user: "ci", subject: HostSubject("eu", "vm1", "want", "ops", "g")},
			{user: "ci", subject: HostSubject("eu", "vm1", "cancel", "ops", "g")},
			{user: "ci", subject: HostSubject("eu", "vm1", "drain", "ci", "g")},
			{user: "ci", subject: HostSubject("eu", "vm1", "drain", "ops", "g")},
			{user: "ci", subject: OfferSubject("eu", "ops", "g", "vm1")},
			{user: "ci", subject: OpenSubject("eu", "A", "vm1")},
			{user: "ci", subject: LoadSubject("eu", "vm1")},
			{user: "ci", subject: "_INBOX.ops.x"},
			{user: "ci", subject: "any"},
			// An admin is a gateway.
			{user: "ops", subject: FreeSubject("eu", "A", Any, "ci", "g")},
			{user: "ops", subject: HostSubject("eu", "vm1", "drain", "ci", "g")},
			{user: "ops", subject: LoadSubject("eu", "vm1")},
		},
	}
	subscribe := map[bool][]right{
		true: {
			{"vm1", HostSubjects("eu", "vm1"), ""},
			{"vm1", FreeSubject("eu", "A", All, All, All), FreeGroup},
			{"vm1", WantSubject("eu", "A", All, All), WantGroup},
			{"vm1", LoadSubject("eu", "vm1"), ""},
			{"vm1", "$SRV.STATS.bpool", ""},
			{"vm1", "_INBOX.vm1.x.*", ""},
			{"ci", OfferSubject(All, "ci", "g", All), ""},
			{"ci", OpenSubject("eu", "A", All), WaitingGroup},
			{"ci", LoadSubject("eu", All), ""},
			{"ci", "_INBOX.ci.x.*", ""},
			{"ops", "_INBOX.ops.x.*", ""},
		},
		false: {
			{"vm1", FreeSubject("eu", "A", All, All, All), ""}, // to overhear asks
			{"vm1", FreeSubject("eu", "A", All, All, All), "mine"},
			{"vm1", WantSubject("eu", "A", All, All), ""},
			{"vm1", HostSubjects("eu", "vm2"), ""},
			{"vm1", OfferSubject(All, "ci", All, All), ""},
			{"vm1", OpenSubject("eu", "A", All), WaitingGroup},
			{"vm1", LoadSubject("eu", All), ""},
			{"vm1", "_INBOX.ci.>", ""},
			{"vm1", ">", ""},
			{"ci", FreeSubject("eu", "A", All, All, All), FreeGroup}, // to be a host
			{"ci", WantSubject("eu", "A", All, All), WantGroup},
			{"ci", HostSubjects("eu", "vm1"), ""},
			{"ci", OpenSubject("eu", "A", All), ""},
			{"ci", OpenSubject("eu", "A", All), "mine"},
			{"ci", OfferSubject(All, "ops", All, All), ""},
			{"ci", OfferSubject(All, All, All, All), ""},
			{"ci", "$SRV.STATS.bpool", ""},
			{"ci", "_INBOX.vm1.>", ""},
			{"ci", "_INBOX.>", ""},
			{"ci", ">", ""},
			{"ops", OfferSubject(All, "ci", All, All), ""},
			{"ops", HostSubjects("eu", "vm1"), ""},
			{"ops", ">", ""},
		},
	}
	for name, start := range map[string]func(*testing.T) (string, func(string) nats.Option){
		"passwords": withPasswords, "nkeys": withNKeys, "JWT": withJWT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, as := start(t)
			try := func(r right, may bool, what string, do func(*nats.Conn) error) {
				quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
				c, err := nats.Connect(url, as(r.user), nats.Timeout(10*time.Second), quiet)
				if err == nil {
					defer c.Close()
					if err = do(c); err == nil {
						err = c.Flush()
					}
				}
				if err != nil {
					t.Fatalf("%+v: %v", r, err)
				}
				err = c.LastError()
				if (err == nil) != may || err != nil && !errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("%s may %s %s %s: %v (%v)", r.user, what, r.subject, r.queue, !may, err)
				}
			}
			for may, all := range publish {
				for _, r := range all {
					try(r, may, "publish", func(c *nats.Conn) error { return c.Publish(r.subject, nil) })
				}
			}
			for may, all := range subscribe {
				for _, r := range all {
					try(r, may, "subscribe", func(c *nats.Conn) (err error) {
						if r.queue == "" {
							_, err = c.SubscribeSync(r.subject)
						} else {
							_, err = c.QueueSubscribeSync(r.subject, r.queue)
						}
						return err
					})
				}
			}
		})
	}
}

// passwordFile writes a password.
func passwordFile(t *testing.T, password string) (path string) {
	path = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A request without the right to send it, or to read its answer, fails at once, and so does the same one again; the
// error names the subject and the settings, and is logged once.
func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	url, _ := withPasswords(t)
	var log lockedBuffer
	named := regexp.MustCompile(`"(btools\.v1\.eu|_INBOX\.other)\..*NATS_USER ci and NATS_PASSWORD_FILE`)
	for name, subject := range map[string]string{"ci": HostSubject("eu", "vm1", "drain", "ci", "g"),
		"other": FreeSubject("eu", "A", Any, "ci", "g")} {
		n, err := Connect(Keys{Servers: []string{url}, Name: name, User: "ci", PasswordFile: passwordFile(t, "of-ci")},
			slog.New(slog.NewTextHandler(&log, nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := n.Await(ctx, time.Minute); err != nil { // on a busy machine
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				err := n.Request(ctx, subject, Drain{}, &Drained{})
				if !errors.Is(err, ErrRefused) || !named.MatchString(err.Error()) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		all.Wait()
		if ctx.Err() != nil {
			t.Error("it waited for its time to be over")
		}
	}
	if log := log.String(); strings.Count(log, "level=ERROR") > 2 { // a subject and an inbox
		t.Errorf("the log is %s", log)
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write appends to the buffer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A connection to a server that answers is up at once, so that nobody waits as after a death of the server.
func TestUpAtOnce(t *testing.T) {
	t.Parallel()
	url, _ := withPasswords(t)
	password := passwordFile(t, "of-ci")
	var told atomic.Int64
	n, err := Connect(Keys{Servers: []string{url}, Name: "ci", User: "ci", PasswordFile: password},
		slog.New(slog.DiscardHandler), func(bool) { told.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if !n.conn.IsConnected() {
		t.Skip("the machine is too busy")
	}
	if since, _ := n.Down(); !since.IsZero() {
		t.Error("it is down")
	}
	if err := n.conn.Flush(); err != nil || told.Load() != 0 {
		t.Error(err, told.Load(), "changes")
	}
}
