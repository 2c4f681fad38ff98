package client

import (
	"errors"
	"os"
	"strings"
	"testing"

	"btools/lib/exit"
	"btools/lib/proc"
	"btools/lib/record"
	"btools/lib/state"
)

// Every program finds the same hub: the only one that is running, or the one
// that is named. Nobody listens on the ports below 5, which other tests could on ports for anybody.
func TestFind(t *testing.T) {
	t.Setenv("BTOOLS_STATE", t.TempDir()+"/state.json")
	store := state.Open(os.Getenv)
	list := func(port int, extension bool, process proc.Identity) {
		t.Helper()
		r := record.New()
		r.MustSet("proxy", record.Proxy{Host: "127.0.0.1", Port: port, Extension: extension,
			HTTPURL: "http://hub", PairingFile: "/code"})
		err := store.Update(t.Context(), func(f *state.File) error {
			f.Proxies = append(f.Proxies, state.Proxy{Process: process, Control: "/none/control.sock", Record: r})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	finds := func(name string) {
		t.Helper()
		h, err := Hubs.One(store, " with --hub", name)
		if err != nil || h.HTTPURL != "http://hub" || h.Control != "/none/control.sock" || h.PairingFile != "/code" {
			t.Errorf("%q: %+v, %v", name, h, err)
		}
	}
	fails := func(name string, code int, message string) {
		t.Helper()
		h, err := Hubs.One(store, " with --hub", name)
		var e *exit.Error
		if !errors.As(err, &e) || e.Code != code || !strings.Contains(e.Error()+" "+e.Hint, message) {
			t.Errorf("%q: %+v, %v; want %q", name, h, err, message)
		}
	}
	self := proc.Self()
	list(1, false, self)
	fails("", exit.Unavailable, "no bproxy hub is running")
	list(3, true, self)
	for _, name := range []string{"", "3", "http://127.0.0.1:3", "http://localhost:3/"} {
		finds(name)
	}
	list(4, true, self)
	fails("", exit.Usage, "several proxies are running; name one of these ports with --hub: 3, 4")
	finds("4")
	for _, name := range []string{"1", "2", "http://127.0.0.2:3"} {
		fails(name, exit.Unavailable, "no bproxy hub listens on port "+name)
	}
	for _, name := range []string{"x", "ws://127.0.0.1:3300", "99999", "-1"} {
		fails(name, exit.Usage, "is not a port or an address")
	}
}
