//go:build linux

package cmdtest

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// JoinedBrowser is the record of a browser that has joined by its extension.
type JoinedBrowser struct {
	Instance struct {
		ID, Protocol, Source string
		HTTPURL              string `json:"http_url"`
		WSURL                string `json:"ws_url"`
	}
	Joined struct {
		Port, Tabs int
		UserAgent  string `json:"user_agent"`
	}
}

// Hub starts a bproxy for browsers that join.
func (w *World) Hub(args ...string) *Proxy {
	w.T.Helper()
	p := &Proxy{T: w.T, W: w}
	p.Cmd = w.Cmd("bproxy", append([]string{"--extension", "--listen", "127.0.0.1:0",
		"--pairing-file", w.Dir + "/code"}, args...)...)
	p.Start()
	return p
}

// Extension writes the extension, which knows the hub and its code.
func (p *Proxy) Extension() (dir string) {
	p.T.Helper()
	dir = p.W.Dir + "/extension"
	p.W.Run("bproxy", "extension", "--paired", "--pairing-file", p.W.Dir+"/code", "--hub", p.URL, dir).
		Exits(p.T, 0, "")
	return dir
}

// ChromiumWith starts a Chromium with an extension and returns its debugging
// endpoint, by which a test sees what its user sees.
func ChromiumWith(t *testing.T, dir string) (wsURL string, p *os.Process) {
	t.Helper()
	return chrometest.Start(t, "--disable-extensions", "--load-extension="+dir,
		"--disable-extensions-except="+dir)
}

// Joined lists the browsers that have joined.
func (p *Proxy) Joined() (all []JoinedBrowser) {
	p.T.Helper()
	r := p.W.Run("bproxy", "list", "--output=json")
	r.Exits(p.T, 0, "")
	for d := json.NewDecoder(strings.NewReader(r.Out)); d.More(); {
		var j JoinedBrowser
		if err := d.Decode(&j); err != nil {
			p.T.Fatal(err)
		}
		if j.Instance.ID != "" {
			all = append(all, j)
		}
	}
	return all
}

// AwaitJoined waits until one browser has joined, in which is reports true.
func (p *Proxy) AwaitJoined(what string, is func(JoinedBrowser) bool) (j JoinedBrowser) {
	p.T.Helper()
	Until(p.T, what, func() bool {
		for _, one := range p.Joined() {
			if is(one) {
				j = one
				return true
			}
		}
		return false
	})
	return j
}

// AnyJoined is for AwaitJoined: any browser will do.
func AnyJoined(JoinedBrowser) bool { return true }

// WithJoined starts a hub and a Chromium that joins it.
func (w *World) WithJoined(args ...string) (p *Proxy, chrome string, process *os.Process, j JoinedBrowser) {
	w.T.Helper()
	p = w.Hub(args...)
	chrome, process = ChromiumWith(w.T, p.Extension())
	return p, chrome, process, p.AwaitJoined("the browser joins", AnyJoined)
}

// Tabs are the pages of a Chromium, as its user sees them.
func Tabs(t *testing.T, wsURL string) (urls []string) {
	t.Helper()
	_, body := Get(t, "GET", "http://"+strings.Split(strings.TrimPrefix(wsURL, "ws://"), "/")[0]+"/json/list")
	var all []struct{ Type, URL string }
	if err := json.Unmarshal([]byte(body), &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Type == "page" {
			urls = append(urls, one.URL)
		}
	}
	slices.Sort(urls)
	return urls
}

// JoinedPool starts a bpool with a pool of two browsers that join.
func (w *World) JoinedPool(vars ...string) *Pool {
	w.T.Helper()
	p := &Pool{T: w.T, W: w, Cmd: w.Cmd("bpool", "serve", "--stop-timeout", "5s", "--drain-timeout", "0s")}
	for _, v := range append([]string{"_P_INSTANCES=2", "_P_LAUNCH=extension", "HEALTH_INTERVAL=200ms"}, vars...) {
		p.Cmd.Env = append(p.Cmd.Env, "PW_MCP_PROXY_"+v)
	}
	p.Start()
	return p
}

// States are the states of the instances, sorted.
func (p *Pool) States() string {
	p.T.Helper()
	var all []string
	for _, i := range p.Status().Pools[0].Instances {
		all = append(all, i.Status)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// OwnHub prepares for programs that run a hub themselves. Such tests follow each
// other, also those of other packages, as there is one port for that.
func (w *World) OwnHub() {
	w.T.Helper()
	lock, err := os.OpenFile(Bin+"/hub.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { lock.Close() })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) { // the last one's may be ending
		l, err := net.Listen("tcp", "127.0.0.1:3300")
		if err == nil {
			l.Close()
			break
		}
		if time.Now().After(end) {
			w.T.Skip("another program has the port of the hub")
		}
	}
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
}

// Holder is a "bproxy join" that has a browser.
type Holder struct {
	JoinedBrowser
	Cmd   *exec.Cmd
	Errs  SyncBuffer
	ended chan struct{}
}

// Join runs "bproxy join" until it has printed its record.
func (w *World) Join(args ...string) *Holder {
	w.T.Helper()
	j := &Holder{ended: make(chan struct{})}
	j.Cmd = w.Cmd("bproxy", append([]string{"join", "--timeout=" + Patience.String(), "--output=json"}, args...)...)
	j.Cmd.Stderr = &j.Errs
	out, err := j.Cmd.StdoutPipe()
	if err == nil {
		err = j.Cmd.Start()
	}
	if err != nil {
		w.T.Fatal(err)
	}
	err = json.NewDecoder(out).Decode(&j.JoinedBrowser)
	go func() {
		j.Cmd.Wait()
		close(j.ended)
	}()
	w.T.Cleanup(func() {
		j.Cmd.Process.Signal(syscall.SIGTERM)
		<-j.ended
	})
	if err != nil {
		w.T.Fatalf("bproxy join printed no record: %v\n%s", err, j.Errs.String())
	}
	return j
}

// Code waits until it has ended, and returns its exit code.
func (j *Holder) Code(t *testing.T) int {
	t.Helper()
	select {
	case <-j.ended:
	case <-time.After(Patience):
		t.Fatal("bproxy join still runs")
	}
	return j.Cmd.ProcessState.ExitCode()
}

// NewTab opens a tab at an endpoint.
func NewTab(t *testing.T, url string) {
	t.Helper()
	if code, answer := Get(t, "PUT", url+"/json/new?about:blank"); code != 200 {
		t.Fatalf("no tab was opened: %s", answer)
	}
}

// HubHere starts a hub whose pairing code is in the test's own directory.
func (w *World) HubHere(args ...string) *Proxy {
	w.T.Helper()
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	p := &Proxy{T: w.T, W: w}
	p.Cmd = w.Cmd("bproxy", "extension") // without the flags of a launch
	p.Cmd.Args = append([]string{"bproxy", "--extension", "--no-input", "--listen=127.0.0.1:0",
		"--ports=" + portsOfTest()}, args...)
	p.Start()
	return p
}

// portsOfTest is a range of ports for browsers that join: those of the hubs of
// several tests at once are skipped.
func portsOfTest() string { return "23300-23999" }

// Joiner is the record of a browser that was launched with the extension.
type Joiner struct {
	Record
	Joined struct {
		ID      string
		HTTPURL string `json:"http_url"`
		WSURL   string `json:"ws_url"`
	}
}

// ParseJoiner reads the record of a browser that was launched to join.
func ParseJoiner(t *testing.T, r Result) (j Joiner) {
	t.Helper()
	j.Record = Parse(t, r)
	if err := json.Unmarshal([]byte(r.Out), &j); err != nil || j.Joined.ID == "" {
		t.Fatalf("it has not joined: %s", r.Out)
	}
	return j
}

// JoinedIDs are the browsers at the hubs of this test.
func (w *World) JoinedIDs() []string {
	return strings.Fields(w.Run("bproxy", "list", "-f", "joined.id").Out)
}
