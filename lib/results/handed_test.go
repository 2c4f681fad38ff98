package results

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestChildTellsOfDownloads counts how often a browser is asked for its downloads by a
// host whose child tells when one has begun.
func TestChildTellsOfDownloads(t *testing.T) {
	t.Parallel()
	asked, list := 0, "[]"
	browser := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Write([]byte(list))
	}))
	t.Cleanup(browser.Close)
	var h Handed
	result := func(begun string) json.RawMessage {
		if begun == "" {
			return json.RawMessage(`{"content":[]}`)
		}
		return json.RawMessage(`{"_meta":{"` + MetaBegun + `":"` + begun + `"},"content":[]}`)
	}
	for i, c := range []struct {
		begun string // what the child says; "": nothing
		list  string // of the browser
		ages  bool   // the last list is old
		asked int
		want  string
	}{
		{"1+0", `[]`, false, 1, `{"content":[]}`},
		{"1+0", `[]`, false, 0, `{"content":[]}`},
		{"", `[]`, false, 1, `{"content":[]}`},
		{"1+0", `[]`, false, 1, `{"content":[]}`}, // as nobody knows what was before the last list
		{"1+0", `[]`, true, 1, `{"content":[]}`},
		{"1+1", `[{"guid":"a","state":"in_progress","started_at":"2020-01-01T00:00:00.000Z"}]`, false, 1,
			`{"content":[]}`},
		{"1+1", `[{"guid":"a","state":"complete","name":"f","bytes":1,"path":"/f"}]`, false, 1,
			`{"_meta":{"btools/downloads":[{"guid":"a","name":"f","state":"complete","bytes":1,"sha256":"",` +
				`"started_at":"0001-01-01T00:00:00.000Z","duration_ms":0,"path":"/f"}]},` +
				`"content":[{"type":"text","text":"Downloaded f (1 bytes) to /f"}]}`},
		{"1+1", `[]`, false, 0, `{"content":[]}`},
		{"2+1", `[]`, false, 1, `{"content":[]}`}, // another connection
	} {
		asked, list = 0, c.list
		if c.ages {
			h.quiet[browser.URL] = word{c.begun, time.Now().Add(-childsWord)}
		}
		got := string(h.WithDownloads(t.Context(), result(c.begun), browser.URL))
		if got != c.want || asked != c.asked {
			t.Errorf("call %d: the browser was asked %d times, and the result is\n%s", i, asked, got)
		}
	}
}
