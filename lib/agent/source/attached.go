package source

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"btools/lib/cdp"
	"btools/lib/client"
	"btools/lib/devtools"
	"btools/lib/exit"
	"btools/lib/launch/options"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/sockets"
	"btools/lib/state"
)

// Endpoint is the debugging endpoint of a browser that runs, and goes on without its agents.
type Endpoint struct {
	URL     string // or the path of a file DevToolsActivePort
	BiDi    bool   // it speaks WebDriver BiDi, and not CDP
	Session bool   // it is a session, and cannot have others
}

// In returns the endpoint, as a session if a state file lists it as a bproxy share, which gives each client one.
func (e Endpoint) In(store *state.Store) Endpoint {
	if u, err := url.Parse(e.URL); err == nil && u.Host != "" && !e.Session {
		p, err := client.Any.One(store, "", "http://"+u.Host)
		e.Session = err == nil && p.Isolated
	}
	return e
}

// ParseEndpoint reads a port, HOST:PORT, a URL or the path of a file DevToolsActivePort.
func ParseEndpoint(text string) (e Endpoint, err error) {
	e.URL = text
	if filepath.Base(text) == devtools.ActivePort {
		e.URL, err = filepath.Abs(text)
		return e, err
	}
	if _, err := strconv.ParseUint(text, 10, 16); err == nil {
		e.URL = "http://127.0.0.1:" + text
	} else if !strings.Contains(text, "://") {
		e.URL = "http://" + text
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "ws" || u.Hostname() == "" {
		return e, fmt.Errorf("it is PORT, http://HOST:PORT, ws://HOST:PORT/PATH or the file %s, not %q",
			devtools.ActivePort, text)
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
		return e, fmt.Errorf("%q has no port, which is a number up to 65535", text)
	}
	e.BiDi = u.Scheme == "ws" && u.Path == "/session"
	e.Session = e.BiDi || strings.HasPrefix(u.Path, "/session/")
	return e, nil
}

// attached is a browser that another program launches and stops, behind a bproxy.
type attached struct {
	*bproxy
	at Endpoint

	mu     sync.Mutex
	id     string          // of the browser; "": none has answered yet
	opened map[string]bool // the tabs that are open here
}

// Attached returns the source of the browser at an endpoint, which hosts share so. A bproxy with these flags is started
// when it is needed, unless the endpoint is a session.
func Attached(store *state.Store, log io.Writer, flags []string, how Sharing, at Endpoint) *Source {
	if at.Session {
		return directly(at)
	}
	flags = append(slices.Clone(flags), "--target="+at.URL)
	if filepath.Base(at.URL) == devtools.ActivePort {
		flags = append(flags, "--one-connection") // its user is asked to allow each
	}
	s := &attached{bproxy: newBproxy(store, log, flags, how), at: at, opened: map[string]bool{}}
	s.src.provider, s.src.Kind, s.src.Guest = s, s.src.ofGuest(), s.listOpened
	return s.src
}

// listOpened lists the tabs that are open here in the state file, for the case that this program is killed. With
// --isolated the browser closes them itself.
func (s *attached) listOpened(tab string, open bool) {
	if s.src.HasSessions() {
		return
	}
	s.mu.Lock()
	if s.opened[tab] = open; !open {
		delete(s.opened, tab)
	}
	s.mu.Unlock()
	s.do(func() {
		s.store.UpdateWithin(askBound, func(f *state.File) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			tabs := slices.Collect(maps.Keys(s.opened))
			f.SetOpened(state.Opened{Process: proc.Self(), Browser: s.id, Tabs: tabs})
			return nil
		})
	})
}

// closeLeft closes, once, the tabs that killed programs have left open in a browser.
func (s *attached) closeLeft(ctx context.Context, id, wsURL string) {
	s.mu.Lock()
	known := s.id == id
	if !known { // another browser has taken the place of the one before
		s.id = id
		clear(s.opened)
	}
	s.mu.Unlock()
	var left []string
	if known || s.src.HasSessions() ||
		s.store.Update(ctx, func(f *state.File) error { left = f.TakeOpened(id); return nil }) != nil || left == nil {
		return
	}
	conn, err := cdp.Dial(ctx, wsURL, func(cdp.Event) {})
	if err != nil {
		return
	}
	defer conn.Close()
	for _, tab := range left {
		conn.Call(ctx, "", "Target.closeTarget", map[string]string{"targetId": tab}, nil) // its user may have closed it
	}
}

// up returns nil: whether the browser runs is known when it has been asked.
func (s *attached) up(string, string) *Lease { return nil }

func (s *attached) acquire(ctx context.Context, _, _ string) (*Lease, error) {
	id, err := s.at.ask(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.own.Get(ctx); err != nil {
		return nil, err
	}
	s.src.mu.Lock()
	b := s.browserLocked()
	s.src.mu.Unlock()
	s.closeLeft(ctx, strings.Replace(id, "//localhost:", "//127.0.0.1:", 1), b.WSURL)
	b.ID = id
	return &Lease{Browser: b, Release: func() {},
		replaced: "the browser had ended, and another one is at its endpoint now"}, nil
}

func (s *attached) control(context.Context, string, options.Options) (*record.Record, error) {
	return nil, s.at.notOurs()
}

func (e Endpoint) notOurs() error {
	return exit.Errorf(exit.Usage, "the browser at %s is not launched and stopped from here", e.URL)
}

// askBound is how long an endpoint may take to answer.
const askBound = 10 * time.Second

// ask returns the URL of the browser's WebSocket, by which one browser is told from the next at the endpoint. The error
// says what listens there.
func (e Endpoint) ask(ctx context.Context) (id string, err error) {
	at := e.URL
	if filepath.Base(at) == devtools.ActivePort {
		if at, err = devtools.ReadActivePort(at); err != nil {
			return "", &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("cannot find the browser: %w", err),
				Hint: "Chrome writes the file once remote debugging is allowed in chrome://inspect/#remote-debugging"}
		}
	}
	u, err := url.Parse(at)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	if strings.Trim(u.Path, "/") == "" {
		v, err := devtools.GetVersion(ctx, u.Host)
		if err == nil && v.WSURL == "" {
			err = fmt.Errorf("it does not tell the address of a browser's WebSocket")
		}
		if err != nil {
			return "", e.unanswered(u.Host, err)
		}
		return v.WSURL, nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return "", e.unanswered(u.Host, err)
	}
	conn.Close()
	return at, nil
}

// unanswered returns the error that no browser answers at an address, and what does.
func (e Endpoint) unanswered(addr string, why error) error {
	const hint = "a Chromium listens with --remote-debugging-port=PORT, a Firefox at ws://HOST:PORT/session"
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("no browser is at %s: nothing listens there (%w)",
			e.URL, err), Hint: hint}
	}
	defer conn.Close()
	return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("no browser is at %s: %s listens there, and does not "+
		"answer as a debugging endpoint does (%w)", e.URL, listener(conn), why), Hint: hint}
}

// listener returns the name of the process at the other end of a connection.
func listener(conn net.Conn) string {
	addr := func(a net.Addr) netip.AddrPort {
		p, _ := netip.ParseAddrPort(a.String())
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	pid, err := 0, error(nil)
	for end := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) { // until it has accepted
		pid, err = sockets.Holder(addr(conn.RemoteAddr()), addr(conn.LocalAddr()))
		if err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		return "another program"
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	return fmt.Sprintf("%s (process %d)", strings.TrimSpace(string(name)), pid)
}

// directly returns the source of a browser that its clients connect to themselves: a Firefox, which has one session at
// a time, or a session.
func directly(at Endpoint) *Source {
	b := Browser{BiDi: at.URL, Type: record.Firefox}
	if !at.BiDi {
		base, _, _ := strings.Cut("http"+strings.TrimPrefix(strings.TrimPrefix(at.URL, "http"), "ws"), "/devtools/")
		b = Browser{HTTPURL: strings.TrimSuffix(base, "/"), WSURL: at.URL}
		if strings.HasPrefix(at.URL, "http") {
			b.WSURL = "ws" + strings.TrimPrefix(b.HTTPURL, "http") + "/devtools/browser"
		}
	}
	s := &Source{Guest: func(string, bool) {}}
	asks := func(ctx context.Context) error {
		_, err := at.ask(ctx)
		return err
	}
	s.init(SharedProfile.ofGuest(), &fixed{browser: b, asks: asks, notOurs: at.notOurs()}, Sharing{})
	return s
}
