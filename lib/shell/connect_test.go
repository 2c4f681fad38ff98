package shell

import (
	"context"
	"encoding/json"
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"btools/lib/control"
	"btools/lib/state"
)

// A call that waits to be accepted when the service ends is made again, with the next one.
func TestCallThatWasNotRead(t *testing.T) {
	t.Parallel()
	store := state.Open(func(string) string { return filepath.Join(t.TempDir(), "state.json") })
	path, err := store.Socket("calls-x")
	if err != nil {
		t.Fatal(err)
	}
	first, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	late := func() (*exec.Cmd, error) { return exec.Command("sh", "-c", "exit 75"), nil }
	c := &Client{Store: store, Own: path, Start: late}
	if c.conn, err = c.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	second, err := control.Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	go control.Serve(t.Context(), second, func(context.Context, string, json.RawMessage) (any, error) { return 7, nil })
	defer second.Close()
	var got int
	if err := c.Do(t.Context(), "call", nil, &got); err != nil || got != 7 {
		t.Errorf("%d, %v", got, err)
	}
}
