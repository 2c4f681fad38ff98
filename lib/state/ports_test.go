package state

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
	"time"

	"btools/lib/record"
)

// The file's own ports are read, in whatever form they are and wherever else
// the file has some.
func TestPortsAreReadInAnyForm(t *testing.T) {
	const one = `{"host":"127.0.0.1","port":7,"until":"2999-01-02T03:04:05.678Z"}`
	until := record.Time{Time: time.Date(2999, 1, 2, 3, 4, 5, 678e6, time.UTC)}
	seven, eight := Port{"127.0.0.1", 7, until}, Port{"127.0.0.1", 8, until}
	const another = `{"host":"127.0.0.1","port":8,"until":"2999-01-02T03:04:05.678Z"}`
	for name, c := range map[string]struct {
		file    string
		want    []Port
		damaged bool
	}{
		"as it is written": {`{"v":1,"ports":[` + one + `,` + another + `],"exits":[]}`, []Port{seven, eight}, false},
		"with spaces":      {`{"v":1, "ports": [ ` + one + ` ]}`, []Port{seven}, false},
		"other members":    {`{"v":1,"ports":[{"new":1,` + one[1:] + `]}`, []Port{seven}, false},
		"another zone": {`{"v":1,"ports":[{"host":"127.0.0.1","port":7,"until":"2999-01-02T04:04:05.678+01:00"}]}`,
			[]Port{seven}, false},
		"an escape": {`{"v":1,"ports":[{"host":"127.0.0.\u0031","port":7,"until":"2999-01-02T03:04:05.678Z"}]}`,
			[]Port{seven}, false},
		"another member's": {`{"v":1,"exits":[],"x":{"a":1,"ports":[` + one + `]},"ports":[]}`, nil, false},
		"another member's, too": {`{"v":1,"x":{"a":1,"ports":[` + one + `]},"ports":[` + another + `]}`,
			[]Port{eight}, false},
		"twice, the last is":    {`{"v":1,"ports":[` + one + `],"ports":[` + another + `]}`, []Port{eight}, false},
		"the mark in its place": {`{"v":1,"x":{"a":1,"ports":[` + one + `]},"ports":"cut"}`, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Store{path: t.TempDir() + "/state.json"}
			if err := os.WriteFile(s.path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := s.load()
			if c.damaged != (err != nil) {
				t.Fatalf("the file is damaged: %v, want %v", err, c.damaged)
			} else if err != nil {
				return
			}
			same := len(f.Ports) == len(c.want)
			for i := range c.want {
				same = same && f.Ports[i].Host == c.want[i].Host && f.Ports[i].Port == c.want[i].Port &&
					f.Ports[i].Until.Equal(c.want[i].Until.Time)
			}
			if !same {
				t.Errorf("the ports are %v, want %v", f.Ports, c.want)
			}
		})
	}
}

// Ports are written as encoding/json writes them.
func TestPortsAreWritten(t *testing.T) {
	at := record.Time{Time: time.Now()}
	for _, ports := range [][]Port{nil, {}, {{"127.0.0.1", 7, at}}, {{"::1", 7, at}, {"localhost", 65535, at}},
		{{`"<\é`, 7, at}, {"::1", 8, at}}} {
		want, _ := json.Marshal(notNil(ports))
		if got := encodePorts(ports); string(got) != string(want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// FuzzCutPorts holds cutPorts against encoding/json: it fails, or reads the same.
func FuzzCutPorts(f *testing.F) {
	f.Add([]byte(`{"host":"127.0.0.1","port":7,"until":"2999-01-02T03:04:05.678Z"}`))
	f.Add([]byte(`{"host":"::1","port":-7,"until":"2999-01-02T03:04:05.678Z"},` +
		`{"host":"","port":0,"until":"0000-02-29T03:04:05.678Z"}`))
	f.Fuzz(func(t *testing.T, list []byte) {
		const head, tail = `{"v":1,"ports":`, `,"exits":[]}`
		whole := "[" + string(list) + "]"
		rest, got, ok := cutPorts([]byte(head + whole + tail))
		if !ok || string(rest) != head+cut+tail {
			return
		}
		var want []Port
		if err := json.Unmarshal([]byte(whole), &want); err != nil {
			t.Fatalf("%s is read as %v; encoding/json: %v", whole, got, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is read as %v, want %v", whole, got, want)
		}
	})
}
