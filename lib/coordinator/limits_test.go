package coordinator

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/jsonrpc"
	"btools/lib/mcp/catalog"
)

// Each limit has a default.
func TestDefaultLimits(t *testing.T) {
	defaults := reflect.ValueOf(DefaultLimits)
	for i := range defaults.NumField() {
		if defaults.Field(i).IsZero() {
			t.Errorf("%s has no default", defaults.Type().Field(i).Name)
		}
	}
	want := DefaultLimits
	want.Awaiting = 1
	if got := (Limits{Awaiting: 1}).orDefault(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// askHost has its child ask the host in each call.
func askHost(child *fakeProgram, m *jsonrpc.Message) (string, *jsonrpc.Error) {
	if m.Method == "tools/call" {
		child.say(`{"jsonrpc":"2.0","id":"q` + string(m.ID) + `","method":"elicitation/create","params":{}}`)
	}
	return "", nil
}

// One request too many that awaits input ends the oldest one.
func TestMaxAwaitingOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, Limits{Awaiting: 2, AwaitInput: time.Minute}, wellBehaved(askHost))
		var keys []string
		for n := range 3 {
			f.ask(statelessCall(fmt.Sprint(n), ""))
			time.Sleep(DefaultLimits.Settle)
			got := f.heard()
			if len(got) != 1 {
				t.Fatalf("%q", got)
			}
			m, _ := jsonrpc.Parse([]byte(got[0]))
			keys = append(keys, jsonrpc.GetString(m.Result, "requestState"))
		}
		f.ask(statelessCall("4", `,"requestState":"`+keys[0]+`"`))
		f.wants("the oldest", "too old")
		f.ask(statelessCall("5", `,"requestState":"`+keys[1]+`"`))
		f.wants("another", "input_required")
		time.Sleep(time.Minute + time.Second)
		f.ask(statelessCall("6", `,"requestState":"`+keys[2]+`"`))
		f.wants("later", "too old")
	})
}

// Hosts beyond the sets of capabilities share the children of a host that can
// be asked nothing.
func TestMaxCapabilitySets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, Limits{CapabilitySets: 2}, wellBehaved(askHost))
		for n, can := range []string{`"elicitation":{}`, `"roots":{}`, `"sampling":{}`, `"roots":{},"sampling":{}`} {
			f.ask(strings.Replace(statelessCall(fmt.Sprint(n), ""), `"elicitation":{}`, can, 1))
		}
		if f.started() != 3 {
			t.Errorf("%d children, want 3", f.started())
		}
	})
}

// A session has so many questions of a child open.
func TestLimitsOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWith(t, Limits{Questions: 2}, wellBehaved(askHost))
		f.shakeHands()
		for n := range 3 {
			f.ask(callEcho(fmt.Sprint(n)))
		}
		f.wants("questions", "elicitation/create", "elicitation/create")
	})
}

// The answer to initialize waits for a child that does not answer, but not for
// long, and then declares whatever the child may have; nor does the list of tools.
func TestTimesOfAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := Limits{Start: 10 * time.Second,
			Catalog: catalog.Limits{Initialize: time.Second, List: 3 * time.Second}}
		f := newFixtureWith(t, limits, func(*fakeProgram, *jsonrpc.Message) (string, *jsonrpc.Error) { return "", nil })
		f.ask(hello)
		f.wants("at once")
		time.Sleep(limits.Catalog.Initialize)
		f.wants("initialize", `"prompts":{"listChanged":true}`)
		f.ask(`{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
		f.wants("at once")
		time.Sleep(limits.Catalog.List)
		f.wants("list", `"id":"list"`)
		time.Sleep(limits.Start)
		f.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"coordinator_status","arguments":{}}}`)
		time.Sleep(limits.Catalog.List)
		f.wants("status", "did not answer within 10s")
	})
}
