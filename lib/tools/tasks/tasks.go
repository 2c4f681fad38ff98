// Package tasks is a suite of tasks that an agent solves in a browser, for
// tests and benchmarks of servers of browser tools. It starts neither servers
// nor browsers.
//
// A task is a file in suite/: what is to be done, then its pages, and in the
// section "calls" the calls of tools, one a line, with arguments in JSON. A
// call ends where an unindented line begins. In the arguments,
//
//	<button "Send">   is the ref of the first such element in the snapshot
//	{site} {other}    are the task's address, and the same on another site
//	{files}           is a directory with the task's files
//
// An indented line after a call says what its result must be; a call without
// one of these must not fail:
//
//	has TEXT          the text of the result has TEXT; an image in it counts
//	                  as [image/png WIDTH × HEIGHT]
//	lacks TEXT        it does not have it
//	fails TEXT        the call fails, and its text has TEXT
//	is JSON           the value in the section "Result" is this one
//	take NAME REGEXP  the text matches, and its first group replaces {NAME}
//	                  in later calls
package tasks

import (
	"embed"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

//go:embed suite
var suite embed.FS

// Task is one task.
type Task struct {
	Name  string
	About string // a sentence
	files map[string]string
	calls []call
}

// call is a call of a tool, and what its result must be.
type call struct {
	tool, args string
	wants      []want
}

type want struct{ verb, text string }

// All are the tasks, by name.
func All() []Task {
	entries, err := suite.ReadDir("suite")
	if err != nil {
		panic(err)
	}
	var all []Task
	for _, e := range entries {
		b, err := suite.ReadFile("suite/" + e.Name())
		if err != nil {
			panic(err)
		}
		t, err := parse(strings.TrimSuffix(e.Name(), ".txt"), string(b))
		if err != nil {
			panic(err)
		}
		all = append(all, t)
	}
	return all
}

var section = regexp.MustCompile(`(?m)^-- (\S+) --\n`)

func parse(name, text string) (Task, error) {
	t := Task{Name: name, files: map[string]string{}}
	at := section.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 {
		return t, fmt.Errorf("task %s has no sections", name)
	}
	t.About = strings.TrimSpace(text[:at[0][0]])
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		t.files[text[m[2]:m[3]]] = text[m[1]:end]
	}
	calls := t.files["calls"]
	delete(t.files, "calls")
	for line := range strings.Lines(calls) {
		rest, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "\t")
		verb, arg, _ := strings.Cut(rest, " ")
		if !indented {
			t.calls = append(t.calls, call{tool: verb, args: arg})
			continue
		}
		if len(t.calls) == 0 {
			return t, fmt.Errorf("task %s begins with %q", name, line)
		}
		last := &t.calls[len(t.calls)-1]
		switch verb {
		case "has", "lacks", "fails", "is", "take":
			last.wants = append(last.wants, want{verb, arg})
		default:
			last.args += " " + strings.TrimSpace(rest)
		}
	}
	if len(t.calls) == 0 {
		return t, fmt.Errorf("task %s has no calls", name)
	}
	return t, nil
}

// Site serves the pages of all tasks on 127.0.0.1, which is another site than
// localhost, where they are as well.
type Site struct{ server *httptest.Server }

// Serve starts a site. Close ends it.
func Serve() *Site {
	mux := http.NewServeMux()
	for _, t := range All() {
		mux.Handle("/"+t.Name+"/", t)
	}
	return &Site{httptest.NewServer(mux)}
}

// Close ends the site.
func (s *Site) Close() { s.server.Close() }

// addresses are the replacements for addresses in pages and calls.
func addresses(host, task string) map[string]string {
	_, port, _ := strings.Cut(host, ":")
	return map[string]string{"site": "http://127.0.0.1:" + port + "/" + task,
		"other": "http://localhost:" + port + "/" + task}
}

// replace replaces each {NAME}.
func replace(text string, by map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(by)) {
		text = strings.ReplaceAll(text, "{"+name+"}", by[name])
	}
	return text
}

// ServeHTTP serves a file of the task. With ?delay=MS it comes late; ?to=URL
// leads elsewhere.
func (t Task) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if ms, err := time.ParseDuration(q.Get("delay") + "ms"); err == nil {
		select {
		case <-time.After(ms):
		case <-r.Context().Done():
			return
		}
	}
	if to := q.Get("to"); to != "" {
		http.Redirect(w, r, to, http.StatusFound)
		return
	}
	text, ok := t.files[path.Base(r.URL.Path)]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(r.URL.Path)))
	w.Write([]byte(replace(text, addresses(r.Host, t.Name))))
}
