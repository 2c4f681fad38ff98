package remote

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/logins"
)

// user returns a connection of a user to a server.
func user(t *testing.T, s *Server, uid int) *LocalConn {
	ctx, end := context.WithCancel(control.WithPeer(t.Context(), &control.Peer{UID: uid}))
	t.Cleanup(end)
	return connect(s, ctx, end)
}

// with is a storageState with an item of this value.
func with(value string) string {
	return `{"cookies":[],"origins":[{"origin":"https://a.test","localStorage":[{"name":"n","value":"` +
		value + `"}]}]}`
}

func imports(t *testing.T, c control.Caller, name, value string) {
	t.Helper()
	if _, err := Import(t.Context(), c, name, strings.NewReader(with(value))); err != nil {
		t.Fatal(err)
	}
}

func exported(t *testing.T, c control.Caller, name string) string {
	t.Helper()
	var b bytes.Buffer
	if err := Export(t.Context(), c, name, &b); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// listed returns the names of the states that a connection has.
func listed(t *testing.T, c control.Caller) string {
	t.Helper()
	answer, err := api.StateList.Ask(t.Context(), c, api.StateRequest{})
	if err != nil || len(answer.Bad) > 0 {
		t.Fatal(err, answer.Bad)
	}
	var names []string
	for _, r := range answer.States {
		var i logins.Info
		r.Get("state", &i)
		names = append(names, i.Name)
	}
	return strings.Join(names, " ")
}

// fails asserts the code of an error on the control socket, and a part of its message.
func fails(t *testing.T, err error, code, message string) {
	t.Helper()
	if err == nil || control.ErrorOf(err).Code != code || !strings.Contains(err.Error(), message) {
		t.Errorf("%v, want %s with %q", err, code, message)
	}
}

// Each user has their own names; root and the program's own user have the same.
func TestUsers(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir() + "/states"
	s := NewServer(&logins.Store{Dir: dir}, nil)
	own, root, ann, bob := user(t, s, os.Geteuid()), user(t, s, 0), user(t, s, 70001), user(t, s, 70002)
	imports(t, root, "shop", "of the program")
	imports(t, ann, "shop", "of ann")
	if got := listed(t, bob); got != "" {
		t.Errorf("another user has %q", got)
	}
	_, err := api.StateGet.Ask(ctx, bob, api.StateRequest{Name: "shop"})
	fails(t, err, control.Unavailable, `there is no state "shop"`)
	fails(t, Export(ctx, bob, "shop", &bytes.Buffer{}), control.Unavailable, "there is no state")
	_, err = api.StateDelete.Ask(ctx, bob, api.StateRequest{Name: "shop"})
	fails(t, err, control.Unavailable, "there is no state")
	for _, name := range []string{"../shop", "uid-70001/shop", ""} {
		_, err := api.StateGet.Ask(ctx, own, api.StateRequest{Name: name})
		fails(t, err, control.BadRequest, "not the name of a state")
	}
	if got := exported(t, own, "shop"); got != with("of the program") {
		t.Errorf("the program's own user has %s", got)
	}
	if got := exported(t, ann, "shop"); got != with("of ann") {
		t.Errorf("the user has %s", got)
	}
	if info, err := os.Stat(dir + "/uid-70001"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of a user: %v, %v", info, err)
	}
	if _, err := api.StateDelete.Ask(ctx, ann, api.StateRequest{Name: "shop"}); err != nil {
		t.Error(err)
	}
	if got := listed(t, ann) + "," + listed(t, own); got != ",shop" {
		t.Errorf("after one is deleted there are %q", got)
	}
	list := func(ctx context.Context, s *Server) error {
		m := &control.Mux{}
		s.Register(m)
		_, err := m.Serve(ctx, "state_list", nil)
		return err
	}
	err = list(ctx, NewServer(s.store, nil))
	fails(t, err, control.Failed, "not known whose")
	err = list(own.ctx, NewServer(nil, exit.Errorf(exit.Config, "no place")))
	fails(t, err, control.BadConfig, "no place")
}

// serve serves states on a control socket.
func serve(t *testing.T, s *Server) (path string) {
	path = t.TempDir() + "/s"
	l, err := control.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan struct{})
	var methods control.Mux
	s.Register(&methods)
	go func() {
		control.Serve(ctx, l, methods.Serve)
		close(served)
	}()
	t.Cleanup(func() {
		l.Close()
		end()
		<-served
	})
	return path
}

func dial(t *testing.T, path string) *control.Client {
	c, err := control.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// inMemory waits until the server holds so many bytes of imports and exports.
func (s *Server) inMemory(t *testing.T, want int) {
	t.Helper()
	for {
		s.mu.Lock()
		held := s.held
		s.mu.Unlock()
		if held == want {
			return
		}
		if t.Context().Err() != nil {
			t.Fatalf("%d bytes are held, want %d", held, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// A state of many parts arrives whole, or not at all.
func TestParts(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir() + "/states"
	s := NewServer(&logins.Store{Dir: dir}, nil)
	path := serve(t, s)
	c := dial(t, path)
	large := strings.Repeat("x", 5*partSize/2)
	imports(t, c, "large", large)
	if got := exported(t, c, "large"); got != with(large) {
		t.Errorf("a state of %d bytes comes back with %d", len(large), len(got))
	}
	s.inMemory(t, 0)

	// One import that ends with its connection, one with that of another state, and
	// one after an export that was given up.
	first := api.StateRequest{Name: "half", Data: []byte(with(large)[:partSize]), More: true}
	gone := dial(t, path)
	for _, c := range []*control.Client{gone, c} {
		if err := c.Call(ctx, "state_put", first, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.inMemory(t, 2*partSize)
	gone.Close()
	s.inMemory(t, partSize)
	imports(t, c, "small", "1")
	if err := c.Call(ctx, "state_get", api.StateRequest{Name: "large", Export: true}, nil); err != nil {
		t.Fatal(err)
	}
	imports(t, c, "small", "2")
	if got := listed(t, c) + exported(t, c, "small"); got != "large small"+with("2") {
		t.Errorf("there are %s", got)
	}
	fails(t, c.Call(ctx, "state_get", api.StateRequest{Name: "large", Next: true}, nil), control.BadRequest,
		"no export of")
	s.inMemory(t, 0)
	if files, err := os.ReadDir(dir); err != nil || len(files) != 3 { // with the lock
		t.Errorf("the directory has %v, %v", files, err)
	}
}

// What is not a state leaves the one that there is, and its error says so.
func TestBadStates(t *testing.T) {
	dir := t.TempDir() + "/states"
	c := dial(t, serve(t, NewServer(&logins.Store{Dir: dir}, nil)))
	imports(t, c, "a", "good")
	for _, text := range []string{"", `{"cookies":["s3cret"`, `{"cookies":[{"name":"a","value":"s3cret"}]}`} {
		_, err := Import(t.Context(), c, "a", strings.NewReader(text))
		fails(t, err, control.BadData, `cannot import the state "a": `)
		var coded *exit.Error
		if !errors.As(err, &coded) || coded.Code != exit.Data {
			t.Errorf("%q ends with %v", text, err)
		}
	}
	unread, write := net.Pipe()
	write.Close()
	unread.Close()
	var read *ReadError
	if _, err := Import(t.Context(), c, "a", unread); !errors.As(err, &read) {
		t.Errorf("what cannot be read: %v", err)
	}
	if got := exported(t, c, "a"); got != with("good") {
		t.Errorf("the state is %s", got)
	}
	os.WriteFile(dir+"/a.json", []byte(`{"version":1,"st`), 0o600)
	_, err := api.StateGet.Ask(t.Context(), c, api.StateRequest{Name: "a"})
	fails(t, err, control.BadData, "is damaged")
	fails(t, Export(t.Context(), c, "a", &bytes.Buffer{}), control.BadData, "is damaged")
	if answer, err := api.StateList.Ask(t.Context(), c, api.StateRequest{}); err != nil || len(answer.Bad) != 1 {
		t.Errorf("the list is %+v, %v", answer, err)
	}
	if _, err := api.StateDelete.Ask(t.Context(), c, api.StateRequest{Name: "a"}); err != nil || listed(t, c) != "" {
		t.Errorf("a damaged one cannot be deleted: %v", err)
	}
}

// All imports and exports together have a bound.
func TestBound(t *testing.T) {
	s := NewServer(&logins.Store{Dir: t.TempDir() + "/states"}, nil)
	s.bound = 1000
	ann, bob := user(t, s, 70001), user(t, s, 70002)
	first := api.StateRequest{Name: "a", Data: bytes.Repeat([]byte(" "), 900), More: true}
	if err := ann.Call(t.Context(), "state_put", first, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	_, err := Import(t.Context(), bob, "b", strings.NewReader(with(strings.Repeat("x", 100))))
	fails(t, err, control.TryAgain, "other states are being imported")
	fails(t, ann.Call(t.Context(), "state_put", first, &struct{}{}), control.BadData, "more than")
	imports(t, bob, "b", "1")
	s.inMemory(t, 0)
}

// A save replaces a state only if it may.
func TestSave(t *testing.T) {
	s := NewServer(&logins.Store{Dir: t.TempDir() + "/states"}, nil)
	c := user(t, s, 70001)
	save := func(value string, create bool) error {
		state, _, err := logins.Parse([]byte(with(value)))
		if err != nil {
			t.Fatal(err)
		}
		later, err := s.Save(c.ctx, api.StateRequest{Name: "a", Create: create},
			func() (*logins.State, []string, error) { return state, nil, nil })
		if err == nil {
			_, err = later.(control.Later)()
		}
		return err
	}
	if err := save("1", true); err != nil {
		t.Fatal(err)
	}
	fails(t, save("2", true), control.StateExists, `there is a state "a" already`)
	if got := exported(t, c, "a"); got != with("1") {
		t.Errorf("the state is %s", got)
	}
	if err := save("2", false); err != nil || exported(t, c, "a") != with("2") {
		t.Errorf("it is not replaced: %v", err)
	}
}
