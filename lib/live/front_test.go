package live

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/live/sources"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/state"
	"btools/lib/websocket"
)

// newStore returns a state file of its own. Its directory has a short path, as there are sockets in it.
func newStore(t *testing.T) *state.Store {
	t.Helper()
	dir, err := os.MkdirTemp("", "l")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return state.Open(func(name string) string {
		return map[string]string{"BTOOLS_STATE": dir + "/state.json"}[name]
	})
}

// program is a program with sessions: those of its list. A person's WebSocket gets the request of the person, and then
// what it sends.
type program struct {
	mu       sync.Mutex
	sessions []api.Session
	hangs    bool
	entry    state.Proxy
}

// newProgram lists a program with these sessions.
func newProgram(t *testing.T, store *state.Store, name string, sessions ...api.Session) *program {
	t.Helper()
	path, err := store.Socket(name)
	if err != nil {
		t.Fatal(err)
	}
	l, err := control.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	p := &program{sessions: sessions, entry: state.Proxy{Process: proc.Self(), Control: path, Record: record.New()}}
	p.entry.Record.MustSet("proxy", record.Proxy{PID: os.Getpid(), Isolated: true})
	m := &control.Mux{Program: name}
	control.Handle(m, api.List, func(ctx context.Context, _ api.Of) (any, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.hangs {
			return control.Later(func() (any, error) { <-ctx.Done(); return nil, ctx.Err() }), nil
		}
		all := []*record.Record{}
		for _, s := range p.sessions {
			r := record.New()
			r.MustSet("session", s)
			all = append(all, r)
		}
		return all, nil
	})
	control.Handle(m, api.Attach, func(_ context.Context, r api.AttachRequest) (any, error) {
		return control.Taken{Answer: api.Attached{Lock: true}, Do: func(_ context.Context, c net.Conn) {
			conn := websocket.New(c, false, nil)
			b, _ := json.Marshal(r)
			conn.Write(b)
			websocket.Pass(conn, conn)
		}}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { control.Serve(ctx, l, m.Serve) })
	t.Cleanup(func() {
		cancel()
		l.Close()
		serving.Wait()
	})
	p.list(t, store)
	return p
}

// list writes the program into the state file, beside the others.
func (p *program) list(t *testing.T, store *state.Store) {
	t.Helper()
	if err := store.Update(t.Context(), func(f *state.File) error {
		f.Proxies = append(f.Proxies, p.entry)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// set replaces the sessions of a program.
func (p *program) set(sessions ...api.Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions = sessions
}

// hang has a program answer nothing any more.
func (p *program) hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = true
}

// newFront serves the page of a state file.
func newFront(t *testing.T, store *state.Store) (f *Front, base string) {
	t.Helper()
	return serve(t, &Front{Store: store})
}

// serve serves a page.
func serve(t *testing.T, f *Front) (_ *Front, base string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.Log, f.Unused = slog.New(slog.DiscardHandler), func() {}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { f.Serve(ctx, l) })
	t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	return f, "http://" + l.Addr().String()
}

// page is a WebSocket of the page.
type page struct {
	t    *testing.T
	conn *websocket.Conn
}

// dial opens a WebSocket as the page does, or with other headers.
func dial(t *testing.T, base, path string, headers ...string) (*page, int) {
	t.Helper()
	host := strings.TrimPrefix(base, "http://")
	raw, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	if headers == nil {
		headers = []string{"Host: " + host, "Origin: " + base}
	}
	fmt.Fprintf(raw, "GET %s HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n%s\r\n\r\n", path, strings.Join(headers, "\r\n"))
	in := bufio.NewReader(raw)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return nil, resp.StatusCode
	}
	early, _ := in.Peek(in.Buffered())
	return &page{t, websocket.New(raw, true, early)}, 0
}

// answer is what the page reads first.
type answer struct {
	welcome
	Sessions []sources.Session
}

// greet opens a WebSocket and sends the first message.
func greet(t *testing.T, base, path, token string) (p *page, a answer) {
	t.Helper()
	p, code := dial(t, base, path)
	if code != 0 {
		t.Fatalf("%s is answered with %d", path, code)
	}
	p.send(fmt.Sprintf(`{"token": %q, "who": "anna"}`, token))
	p.next(&a)
	return p, a
}

func (p *page) send(message string) {
	p.t.Helper()
	if err := p.conn.Write([]byte(message)); err != nil {
		p.t.Fatal(err)
	}
}

// next reads a message, and what was told in it.
func (p *page) next(into any) (message string) {
	p.t.Helper()
	m, err := p.conn.Next()
	if err != nil {
		p.t.Fatal(err)
	}
	b, err := m.Bytes()
	if err == nil && into != nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

// ends waits until the front has closed the WebSocket.
func (p *page) ends() {
	p.t.Helper()
	for {
		if _, err := p.conn.Next(); err != nil {
			return
		}
	}
}

// token returns the token of a fragment, and what follows it.
func token(t *testing.T, fragment string) (token, key string) {
	t.Helper()
	token, ok := strings.CutPrefix(fragment, "/#t=")
	if !ok {
		t.Fatalf("the fragment is %q", fragment)
	}
	token, key, _ = strings.Cut(token, "/")
	return token, key
}

// The page is sent with what keeps other pages from it, and by GET alone.
func TestPage(t *testing.T) {
	t.Parallel()
	_, base := newFront(t, newStore(t))
	for _, zip := range []string{"gzip", "identity"} {
		r, _ := http.NewRequest(http.MethodGet, base+"/", nil)
		r.Header.Set("Accept-Encoding", zip)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		h := resp.Header
		if resp.StatusCode != 200 || len(body) == 0 || (h.Get("Content-Encoding") == "gzip") != (zip == "gzip") {
			t.Errorf("%s: %s %v with %d bytes", zip, resp.Status, h, len(body))
		}
		for name, want := range map[string]string{"Content-Security-Policy": "frame-ancestors 'none'",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
			if !strings.Contains(h.Get(name), want) {
				t.Errorf("%s is %q", name, h.Get(name))
			}
		}
		for name := range h {
			if strings.HasPrefix(name, "Access-Control-") || name == "Set-Cookie" {
				t.Errorf("there is %s", name)
			}
		}
	}
	sent := 0
	for path, a := range assets() {
		if path != "/" {
			sent += len(a.zipped)
		}
	}
	if sent > 45_000 {
		t.Errorf("the page has %d bytes", sent)
	}
	for path, want := range map[string]int{"/": 405, "/list": 405, "/session/x": 405} {
		resp, err := http.Post(base+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("POST %s is answered with %d", path, resp.StatusCode)
		}
	}
	for _, path := range []string{"/list", "/session/x", "/none", "/assets/index.html", "/vendor/LICENSE",
		"/../front.go"} {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 404 {
			t.Errorf("GET %s is answered with %d", path, resp.StatusCode)
		}
	}
}

// No other page reaches a WebSocket, whatever it says where it is from.
func TestOtherPages(t *testing.T) {
	t.Parallel()
	_, base := newFront(t, newStore(t))
	host := strings.TrimPrefix(base, "http://")
	_, port, _ := net.SplitHostPort(host)
	for _, headers := range [][]string{
		{"Host: " + host},
		{"Host: " + host, "Origin: null"},
		{"Host: " + host, "Origin: http://evil.example"},
		{"Host: " + host, "Origin: http://127.0.0.1:1"},
		{"Host: " + host, "Origin: http://localhost:" + port},
		{"Host: " + host, "Origin: https://" + host},
		{"Host: " + host, "Origin: " + base, "Sec-Fetch-Site: cross-site"},
		{"Host: evil.example", "Origin: http://evil.example"},
		{"Host: evil.example:" + port, "Origin: " + base},
		{"Host: 127.0.0.1.nip.io:" + port, "Origin: http://127.0.0.1.nip.io:" + port},
		{"Host: [::ffff:127.0.0.1]:" + port, "Origin: http://[::ffff:127.0.0.1]:" + port},
		{"Host: 0.0.0.0:" + port, "Origin: http://0.0.0.0:" + port},
	} {
		for _, path := range []string{"/list", "/session/x"} {
			if _, code := dial(t, base, path, headers...); code != 403 {
				t.Errorf("%s with %q is answered with %d", path, headers, code)
			}
		}
	}
	if c, err := net.Dial("tcp", net.JoinHostPort("::1", port)); err == nil {
		c.Close()
		t.Error("it listens on IPv6")
	}
}

// A browser that a program of btools has launched does not get the page.
func TestBrowserOfAnAgent(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	f, base := newFront(t, store)
	self := proc.Self()
	if err := store.Update(t.Context(), func(f *state.File) error {
		f.Instances = []state.Instance{{ID: "inst_1_aaaaaa", Supervisor: self, Browser: &self}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(base + "/" + strings.TrimPrefix(f.Fragment("", true), "/"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if _, code := dial(t, base, "/list"); resp.StatusCode != 403 || code != 403 {
		t.Errorf("the page is answered with %d, its WebSocket with %d", resp.StatusCode, code)
	}
}

// A token is good once, and then another one is for as long as the page is open.
func TestTokens(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	f, base := serve(t, &Front{Store: store, isOthers: true})
	first, _ := token(t, f.Fragment("", false))
	_, a := greet(t, base, "/list", first)
	if a.Token == "" || a.Token == first || a.Control || a.Error != "" {
		t.Errorf("the first use is answered with %+v", a)
	}
	for range 2 {
		if _, again := greet(t, base, "/list", a.Token); again.Error != "" || again.Token != "" || again.Control {
			t.Errorf("the second token is answered with %+v", again)
		}
	}
	for what, token := range map[string]string{"used twice": first, "wrong": first[1:] + "A", "none": "",
		"a space": " "} {
		p, a := greet(t, base, "/session/x", token)
		if !strings.Contains(a.Error, "bproxy view") || a.Token != "" {
			t.Errorf("%s: %+v", what, a)
		}
		p.ends()
	}
	second, _ := token(t, f.Fragment("", true))
	if _, a := greet(t, base, "/list", second); !a.Control {
		t.Errorf("with control: %+v", a)
	}
	_, ours := newFront(t, store)
	if _, a := greet(t, ours, "/list", ""); a.Error != "" || !a.Control || a.Token != "" {
		t.Errorf("a browser of this user: %+v", a)
	}
	if _, a := greet(t, base, "/list", first); a.Error == "" {
		t.Error("a wrong token is none")
	}
	f.tokens.mu.Lock()
	defer f.tokens.mu.Unlock()
	for sum := range f.tokens.all {
		if bytes.Contains(sum[:], []byte(first)) {
			t.Error("a token is kept")
		}
	}
}

// A token ends after its time.
func TestTokensEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all tokens
		late, good := all.issue(true, true), all.issue(true, true)
		time.Sleep(firstUse)
		_, long, ok := all.use(good)
		if !ok || long == "" {
			t.Error("it is refused after 60 s")
		}
		time.Sleep(time.Second)
		if _, _, ok := all.use(late); ok {
			t.Error("it is good after 61 s")
		}
		time.Sleep(tokenLife - time.Second)
		if _, _, ok := all.use(long); !ok {
			t.Error("the second is refused after 12 h")
		}
		time.Sleep(time.Second)
		if _, _, ok := all.use(long); ok {
			t.Error("the second is good for longer")
		}
		all.issue(true, true)
		if len(all.all) != 1 {
			t.Errorf("%d tokens are kept", len(all.all))
		}
	})
}

// The service ends some time after its last page, and does not while one is open.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Bool
		f := &Front{Unused: func() { ended.Store(true) }, ctx: t.Context()}
		f.enter()
		f.enter()
		f.leave()
		time.Sleep(2 * Idle)
		f.leave()
		time.Sleep(Idle - time.Second)
		f.enter()
		time.Sleep(2 * Idle)
		f.leave()
		time.Sleep(Idle - time.Second)
		if synctest.Wait(); ended.Load() {
			t.Error("it ends before its time")
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); !ended.Load() {
			t.Error("it does not end")
		}
	})
}

// A WebSocket that does not say at once who it is ends, and one that says too much.
func TestFirstMessage(t *testing.T) {
	t.Parallel()
	f, base := newFront(t, newStore(t))
	begun := time.Now()
	silent, _ := dial(t, base, "/list")
	for _, message := range []string{strings.Repeat(" ", maxHello) + "{}", "[]", "no"} {
		p, _ := dial(t, base, "/list")
		p.send(message)
		p.ends()
	}
	var a answer
	if silent.next(&a); a.Error == "" {
		t.Errorf("silence is answered with %+v", a)
	}
	silent.ends()
	if took := time.Since(begun); took < helloTimeout || took > 2*helloTimeout {
		t.Errorf("it ends after %v", took)
	}
	if !f.isUnused() {
		t.Error("they count as pages")
	}
}

// New sessions are told, and those that are gone. A program that hangs holds up nobody.
func TestList(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	newProgram(t, store, "hangs").hang()
	one := newProgram(t, store, "one", api.Session{Name: "a", Stats: api.Stats{TabCount: 2, IdleSeconds: 7}})
	two := newProgram(t, store, "two", api.Session{Name: "a"}, api.Session{Name: api.NameOf("shop")})
	_, base := newFront(t, store)
	begun := time.Now()
	p, a := greet(t, base, "/list", "")
	if a.Error != "" {
		t.Fatal(a.Error)
	}
	keys := func() (keys []string) {
		for _, s := range a.Sessions {
			keys = append(keys, s.Key)
		}
		return keys
	}
	p.next(&a)
	self := fmt.Sprint(os.Getpid())
	if got := fmt.Sprint(keys()); got != "[a~"+self+" a~"+self+"~2 shop]" || time.Since(begun) > 2*time.Second {
		t.Errorf("%s after %v", got, time.Since(begun))
	}
	if s := a.Sessions[0]; s.Tabs != 2 || s.Idle != 7 || s.Program != "bproxy" || s.Kind != sources.Virtual ||
		s.Name != "a" {
		t.Errorf("%+v", s)
	}
	begun = time.Now()
	since := record.Time{Time: time.Unix(1_700_000_000, 0)}
	one.set(api.Session{Name: "new", Stats: api.Stats{Control: &api.Control{By: "anna", Since: since}}})
	p.next(&a)
	if got := fmt.Sprint(keys()); got != "[a new shop]" || time.Since(begun) > 3*time.Second {
		t.Errorf("%s after %v", got, time.Since(begun))
	}
	if c := a.Sessions[1].Control; c == nil || c.By != "anna" || !c.Since.Equal(since.Time) {
		t.Errorf("control is %+v", c)
	}
	one.hang()
	two.set()
	p.next(&a)
	if got := fmt.Sprint(keys()); got != "[new]" {
		t.Errorf("%s, while a program hangs", got)
	}
	if err := store.Update(t.Context(), func(f *state.File) error {
		f.Proxies = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if p.next(&a); len(a.Sessions) != 0 {
		t.Errorf("%s are left", keys())
	}
}

// A session's messages pass as they are, and its program is told what the token allows.
func TestSession(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	name := api.NameOf("log in/shop")
	program := newProgram(t, store, "one", api.Session{Name: name})
	f, base := newFront(t, store)
	for _, control := range []bool{true, false} {
		first, key := token(t, f.Fragment("log in/shop", control))
		if key != "log%20in%2Fshop" {
			t.Errorf("the key is %q", key)
		}
		p, a := greet(t, base, "/session/"+key, first)
		if a.Error != "" || a.Lock == nil || !*a.Lock || a.Control != control || a.Token == "" {
			t.Fatalf("%+v", a)
		}
		var r api.AttachRequest
		if p.next(&r); r != (api.AttachRequest{Session: name, Who: "anna", View: !control}) {
			t.Errorf("the program is asked for %+v", r)
		}
		for _, m := range []string{`{"id":1}`, strings.Repeat("x", 300<<10), "é"} {
			p.send(m)
			if got := p.next(nil); got != m {
				t.Errorf("%d bytes come back as %d", len(m), len(got))
			}
		}
	}
	named, _ := dial(t, base, "/session/log%20in%2Fshop")
	named.send(`{"token": "", "tile": true, "who": " an\u202ena\n\u0007` + strings.Repeat("é", maxWho) + `"}`)
	var r api.AttachRequest
	named.next(nil)
	if named.next(&r); !strings.HasPrefix(r.Who, `an\u202ena \x07é`) || len(r.Who) > maxWho || !r.Tile || r.View {
		t.Errorf("the program is asked for %+v", r)
	}
	program.set(api.Session{Name: name}, api.Session{Name: "new"})
	if _, a := greet(t, base, "/session/new", ""); a.Error != "" {
		t.Errorf("a session that has just begun: %+v", a)
	}
	p, a := greet(t, base, "/session/shp", "")
	if !strings.Contains(a.Error, `"shp"`) {
		t.Errorf("%+v", a)
	}
	p.ends()
}

// A service of another release makes room if no page is open.
func TestOtherRelease(t *testing.T) {
	t.Parallel()
	s := &Service{Store: newStore(t), Release: "1", Log: slog.New(slog.DiscardHandler)}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(t.Context(), func() { close(ready) }) }()
	<-ready
	_, err := Open.Ask(t.Context(), control.Path(s.Store.SocketPath(Socket)), OpenRequest{Release: "2"})
	if err == nil || control.ErrorOf(err).Code != control.Stopping {
		t.Errorf("it answers %v", err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// logged is what a service has logged.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The service is one, is found by the state file, and leaves nothing.
func TestService(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	newProgram(t, store, "one", api.Session{Name: "a"})
	var log logged
	s := &Service{Store: store, Release: "1", Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		Level: slog.LevelDebug}))}
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Run(t.Context(), func() { close(ready) }) }()
	<-ready
	f, err := store.Read()
	if err != nil || len(f.Views) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	at := control.Path(f.Views[0].Control)
	other := &Service{Store: store, Release: "1", Log: slog.New(slog.DiscardHandler)}
	if err := other.Run(t.Context(), func() { t.Error("there are two") }); err == nil {
		t.Error("a second one runs")
	}
	opened, err := Open.Ask(t.Context(), at, OpenRequest{Session: "a", Release: "1"})
	if err != nil {
		t.Fatal(err)
	}
	base, fragment, _ := strings.Cut(opened, "/#")
	first, key := token(t, "/#"+fragment)
	if key != "a" {
		t.Errorf("the address is %s", opened)
	}
	_, a := greet(t, base, "/list", first)
	if a.Token == "" {
		t.Errorf("%+v", a)
	}
	p, a := greet(t, base, "/session/a", a.Token)
	if a.Error != "" || a.Control {
		t.Errorf("%+v", a)
	}
	if _, err := Open.Ask(t.Context(), at, OpenRequest{Session: "b", Release: "1"}); err == nil ||
		control.ErrorOf(err).Code != control.Unavailable {
		t.Errorf("another session: %v", err)
	}
	// A page is open: it is not replaced by one of another release.
	opened, err = Open.Ask(t.Context(), at, OpenRequest{Browse: true, Session: "a", Release: "2"})
	if err != nil || opened != base+"/#/a" {
		t.Errorf("for a browser: %s, %v", opened, err)
	}
	name, err := s.lead("http://x/#t=secret")
	if st, err := os.Stat(name); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(store.Path())
	begun := time.Now()
	if _, err := Stop.Ask(t.Context(), at, struct{}{}); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > time.Second {
		t.Errorf("it ends after %v", took)
	}
	p.ends()
	if c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://")); err == nil {
		c.Close()
		t.Error("the port is open")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if f, err := store.Read(); err != nil || len(f.Views) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := os.Stat(name); err == nil {
		t.Error("the file for the browser is left")
	}
	for _, secret := range []string{first, a.Token} {
		if secret != "" && (strings.Contains(log.String(), secret) || bytes.Contains(b, []byte(secret))) {
			t.Error("a token is logged or listed")
		}
	}
	if !strings.Contains(log.String(), "/session/a") {
		t.Errorf("requests are not logged: %s", log.String())
	}
}
