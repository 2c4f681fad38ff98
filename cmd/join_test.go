//go:build linux

package cmd_test

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// holder is a "bproxy join" that has a browser.
type holder struct {
	joinedBrowser
	cmd   *exec.Cmd
	errs  syncBuffer
	ended chan struct{}
}

// join runs "bproxy join" until it has printed its record.
func (w *world) join(args ...string) *holder {
	w.t.Helper()
	j := &holder{ended: make(chan struct{})}
	j.cmd = w.cmd("bproxy", append([]string{"join", "--timeout=" + patience.String(), "--output=json"}, args...)...)
	j.cmd.Stderr = &j.errs
	out, err := j.cmd.StdoutPipe()
	if err == nil {
		err = j.cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	err = json.NewDecoder(out).Decode(&j.joinedBrowser)
	go func() {
		j.cmd.Wait()
		close(j.ended)
	}()
	w.t.Cleanup(func() {
		j.cmd.Process.Signal(syscall.SIGTERM)
		<-j.ended
	})
	if err != nil {
		w.t.Fatalf("bproxy join printed no record: %v\n%s", err, j.errs.String())
	}
	return j
}

// code waits until it has ended, and returns its exit code.
func (j *holder) code(t *testing.T) int {
	t.Helper()
	select {
	case <-j.ended:
	case <-time.After(patience):
		t.Fatal("bproxy join still runs")
	}
	return j.cmd.ProcessState.ExitCode()
}

// newTab opens a tab at an endpoint.
func newTab(t *testing.T, url string) {
	t.Helper()
	if code, answer := get(t, "PUT", url+"/json/new?about:blank"); code != 200 {
		t.Fatalf("no tab was opened: %s", answer)
	}
}

// A browser has one holder at a time. The holder learns that it has left; who
// lets it go leaves it to the next one, without the tabs of its session.
func TestJoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("bproxy", "join").wants(t, 69, "no bproxy --extension is running")
	p, chrome, process, _ := w.withJoined()
	before := tabs(t, chrome)
	first := w.join("--session")
	i := first.Instance
	if i.Source != "extension" || !strings.HasPrefix(i.HTTPURL, p.url+"/session/"+i.ID+"/session/") ||
		i.WSURL != strings.Replace(i.HTTPURL, "http", "ws", 1)+"/devtools/browser" {
		t.Errorf("the record has %+v, want a session below %s", i, p.url)
	}
	if got := tabs(t, chrome); !slices.Equal(got, before) {
		t.Errorf("a holder without a client has opened the tabs %v", got)
	}
	newTab(t, i.HTTPURL)
	if got := tabs(t, chrome); len(got) <= len(before) {
		t.Errorf("the session has opened none of the tabs %v", got)
	}
	name := i.HTTPURL[strings.LastIndex(i.HTTPURL, "/")+1:]
	port := p.url[strings.LastIndex(p.url, ":")+1:]
	if got := w.run("bproxy", "session", "list", "--port="+port).out; !strings.Contains(got, `"name":"`+name+`"`) {
		t.Errorf("the sessions of the hub are %s", got)
	}
	w.run("bproxy", "join", "--timeout=200ms").wants(t, 75, "no browser that is free has joined in time")

	first.cmd.Process.Signal(syscall.SIGTERM)
	if code := first.code(t); code != 0 {
		t.Errorf("it was told to end, and ended with %d: %s", code, first.errs.String())
	}
	until(t, "the tabs of the first holder are closed", func() bool { return slices.Equal(tabs(t, chrome), before) })
	second := w.join(i.ID)
	if second.Instance.ID != i.ID || second.Instance.HTTPURL != p.url+"/session/"+i.ID {
		t.Errorf("the record has %+v, want the browser %s", second.Instance, i.ID)
	}
	w.run("bproxy", "join", "--timeout=200ms", i.ID).wants(t, 75, "no browser that is free has joined in time")
	process.Signal(syscall.SIGKILL)
	if code := second.code(t); code != 69 || !strings.Contains(second.errs.String(), "the browser has left") {
		t.Errorf("the browser left, and it ended with %d: %s", code, second.errs.String())
	}
	p.stop()
}

// Who waits for a browser gets the one that joins, and learns of the hub's end.
func TestJoinLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.hub()
	chromiumWith(t, p.extension())
	j := w.join()
	p.stop()
	if code := j.code(t); code != 69 {
		t.Errorf("the hub has ended, and it ended with %d: %s", code, j.errs.String())
	}
}
