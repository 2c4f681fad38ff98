package client

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/proc"
	"btools/lib/state"
)

// serve starts a service in the store's directory and lists it.
func serve(t *testing.T, store *state.Store, name string, process proc.Identity, private bool) string {
	t.Helper()
	path, err := store.Socket(name)
	if err != nil {
		t.Fatal(err)
	}
	l, err := control.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		control.Serve(t.Context(), l, func(context.Context, string, json.RawMessage) (any, error) { return name, nil })
	}()
	t.Cleanup(func() {
		l.Close()
		<-served
	})
	list(t, store, state.PoolService{Process: process, Control: path, Private: private})
	return path
}

func list(t *testing.T, store *state.Store, p state.PoolService) {
	t.Helper()
	err := store.Update(t.Context(), func(f *state.File) error { f.Pools = append(f.Pools, p); return nil })
	if err != nil {
		t.Fatal(err)
	}
}

// Every program finds the same service: the only shared one that is running,
// whatever else is listed.
func TestRunningPools(t *testing.T) {
	dir, err := os.MkdirTemp("", "b")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("BTOOLS_STATE", dir+"/state.json")
	store := state.Open(os.Getenv)
	self := proc.Self()
	found := func(named string) (who string, code int) {
		t.Helper()
		c, err := Pool{Store: store, Socket: named}.Dial(t.Context())
		var e *exit.Error
		if errors.As(err, &e) {
			return e.Hint, e.Code
		}
		if err == nil {
			err = c.Call(t.Context(), "who", nil, &who)
			c.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return who, 0
	}
	if _, code := found(""); code != exit.Unavailable {
		t.Errorf("none runs: %d", code)
	}
	private := serve(t, store, "private", self, true)
	if hint, code := found(""); code != exit.Unavailable ||
		!strings.HasSuffix(hint, "belongs to the program that runs it; use --socket "+private+" to connect to it") {
		t.Errorf("only a private one runs: %d, %s", code, hint)
	}
	if who, _ := found(private); who != "private" {
		t.Errorf("by its name: %q", who)
	}
	one := serve(t, store, "one", self, false)
	list(t, store, state.PoolService{Process: self, Control: one}) // listed twice, but the same service
	dead := self
	dead.Start++
	list(t, store, state.PoolService{Process: dead, Control: dir + "/dead.sock"})
	if who, code := found(""); who != "one" {
		t.Errorf("one runs: %q, %d", who, code)
	}
	two := serve(t, store, "two", self, false)
	if _, code := found(""); code != exit.Usage {
		t.Errorf("two run: %d", code)
	}
	if who, _ := found(two); who != "two" {
		t.Errorf("by its name: %q", who)
	}
	if hint, code := found(dir + "/none.sock"); code != exit.Unavailable || !strings.Contains(hint, "bpool serve") {
		t.Errorf("none is there: %d, %s", code, hint)
	}
	systemSocket = dir + "/system.sock"
	if hint, code := found(systemSocket); code != exit.Unavailable ||
		!strings.Contains(hint, "systemctl start bpool.socket") || !strings.Contains(hint, "group "+systemGroup) ||
		strings.Contains(hint, "--user") {
		t.Errorf("the system's is not there: %d, %s", code, hint)
	}
	// Where systemd listens for a service that it has not started yet, that one
	// is used.
	store.Update(t.Context(), func(f *state.File) error { f.Pools = nil; return nil })
	system, err := net.Listen("unix", systemSocket)
	if err != nil {
		t.Fatal(err)
	}
	defer system.Close()
	if hint, code := found(""); code != exit.Unavailable ||
		!strings.Contains(hint, "BTOOLS_POOL_SOCKET="+systemSocket) {
		t.Errorf("the system's alone is there: %d, %s", code, hint)
	}
	l, err := net.Listen("unix", store.SocketPath("bpool"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err := (Pool{Store: store}).Dial(t.Context()); err != nil {
		t.Errorf("systemd listens: %v", err)
	} else {
		c.Close()
	}
}
