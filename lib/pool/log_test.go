package pool

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"btools/lib/pool/config"
)

// Messages about a browser name its leases, and one that is about a lease itself names it once.
func TestMessagesNameLeases(t *testing.T) {
	var out bytes.Buffer
	held := &leaseIDs{}
	log := slog.New(heldHandler{slog.NewTextHandler(&out, nil), held}).With("pool", "A")
	for _, c := range []struct {
		change func()
		args   []any
		want   string
	}{
		{func() {}, nil, "msg=m pool=A"},
		{func() { held.add("l1") }, nil, "msg=m pool=A lease=l1"},
		{func() { held.add("l2") }, nil, `msg=m pool=A leases="[l1 l2]"`},
		{func() {}, []any{"lease", "l2"}, "msg=m pool=A lease=l2"},
		{func() { held.remove("l1") }, nil, "msg=m pool=A lease=l2"},
		{func() { held.remove("l2") }, nil, "msg=m pool=A"},
	} {
		out.Reset()
		c.change()
		log.Warn("m", c.args...)
		if got := strings.TrimSpace(out.String()); !strings.HasSuffix(got, " "+c.want) {
			t.Errorf("%s, not %s", got, c.want)
		}
	}
}

// A lease on another host that moves goes on: only its end is logged as one.
func TestMovesAreNoEnds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg, err := config.Load("", []string{"PW_MCP_PROXY_LAUNCH=false"})
	if err != nil {
		t.Fatal(err)
	}
	v := New(cfg, slog.New(slog.NewTextHandler(&out, nil)))
	for _, event := range []string{"leased", "moved", "released"} {
		v.NoteElsewhere(Event{Event: event, Pool: "A", Lease: "l1", Host: "h2"}, 0)
	}
	v.unlogged.flush(v.logLease)
	got := out.String()
	if n := strings.Count(got, "a lease has ended"); n != 1 || !strings.Contains(got, "why=released") {
		t.Errorf("%d ends are logged: %s", n, got)
	}
}
