//go:build linux

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// Traces from files, directories and standard input become one archive, or one of the
// pages that are named.
func TestHAR(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	trace := func(id, url string) string {
		return fmt.Sprintf(`{"time":"2026-01-02T03:04:05.678Z","connection":1,"direction":"to_client","message":`+
			`{"method":"Network.requestWillBeSent","params":{"requestId":%q,"loaderId":%[1]q,"frameId":"F%[1]s",`+
			`"type":"Document","timestamp":1,"wallTime":1,"request":{"url":%q,"method":"GET","headers":{}}}}}`+"\n",
			id, url)
	}
	cmdtest.WriteFile(t, w.Dir+"/traces/one.jsonl", trace("A", "http://a/"))
	cmdtest.WriteFile(t, w.Dir+"/traces/deep/two.jsonl", trace("B", "http://b/")+`{"cut`)
	cmdtest.WriteFile(t, w.Dir+"/traces/notes.txt", "not a trace")
	cmdtest.WriteFile(t, w.Dir+"/three", trace("C", "http://c/"))
	wants := func(r cmdtest.Result, want ...string) {
		t.Helper()
		var a struct {
			Log struct {
				Entries []struct{ Request struct{ URL string } }
			}
		}
		if err := json.Unmarshal([]byte(r.Out), &a); err != nil || r.Code != 0 {
			t.Fatalf("exit %d, %v: %s%s", r.Code, err, r.Out, r.Err)
		}
		var got []string
		for _, e := range a.Log.Entries {
			got = append(got, e.Request.URL)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
	r := w.Run("bproxy", "har", w.Dir+"/traces", w.Dir+"/three")
	if wants(r, "http://a/", "http://b/", "http://c/"); !strings.Contains(r.Err, "damaged or cut off: 1 line\n") {
		t.Errorf("of a line that is cut off: %s", r.Err)
	}
	wants(w.Run("bproxy", "har", "--page", "//b", w.Dir+"/traces"), "http://b/")
	wants(w.Pipe(trace("D", "http://d/"), "bproxy", "har"), "http://d/")
	wants(w.Pipe(trace("D", "http://d/"), "bproxy", "har", w.Dir+"/three", "-"), "http://c/", "http://d/")
	wants(w.Run("bash", "-c", `bproxy har <"$0"; true`, w.Dir+"/three"), "http://c/")
	wants(w.Run("bash", "-c", `bproxy har <(cat "$0")`, w.Dir+"/three"), "http://c/")
	w.Run("bproxy", "har", "--page", "none", w.Dir+"/traces").Exits(t, 65, "there are: http://b/, http://a/")
	w.Run("bproxy", "har", w.Dir+"/none").Exits(t, 65, "no such file")
	w.Pipe("{}\n", "bproxy", "har").Exits(t, 65, "cannot convert standard input: no trace has Network events")
	os.RemoveAll(w.Dir + "/traces/one.jsonl")
	os.RemoveAll(w.Dir + "/traces/deep")
	w.Run("bproxy", "har", w.Dir+"/traces").Exits(t, 65, "there are no traces in")
	if left, _ := os.ReadDir(w.Dir); slices.ContainsFunc(left, func(e os.DirEntry) bool {
		return strings.HasPrefix(e.Name(), "btools-")
	}) {
		t.Errorf("a copy of standard input is left: %v", left)
	}
}
