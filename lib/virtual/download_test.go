package virtual

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"btools/lib/downloads"
	"btools/lib/jsonrpc"
	"btools/lib/settings"
)

// fileSite serves /NAME as a file with this name, /slow as one that never ends,
// /broken as one that ends too early, at a request for /break, and pages.
func fileSite(t *testing.T) string {
	t.Helper()
	breaks := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("name")
		switch r.URL.Path {
		case "/file":
			w.Header().Set("Content-Disposition", "attachment; filename=\""+name+"\"")
			io.WriteString(w, "holds "+name)
		case "/slow", "/broken":
			w.Header().Set("Content-Disposition", "attachment; filename=big.bin")
			w.Header().Set("Content-Length", "100000000")
			io.WriteString(w, strings.Repeat("x", 1<<20))
			w.(http.Flusher).Flush()
			end := breaks
			if r.URL.Path == "/slow" {
				end = nil
			}
			select {
			case <-end:
			case <-r.Context().Done():
			}
		case "/break":
			close(breaks)
		default:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<title>page</title><input type=file>")
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	return s.URL
}

// kept are the downloads of a session in a test, and what it has told of them.
type kept struct {
	*downloads.Files
	mu   sync.Mutex
	told []string
}

func keep(t *testing.T, o downloads.Options) *kept {
	t.Helper()
	k := &kept{}
	o.Dir = filepath.Join(t.TempDir(), "session")
	o.Tell = func(event string, f downloads.File) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.told = append(k.told, strings.TrimSpace(event+" "+f.Name+" "+f.Why))
	}
	var err error
	if k.Files, err = downloads.New(o); err != nil {
		t.Fatal(err)
	}
	return k
}

// awaitEvent waits for an event: downloads that run together end in any order.
func (k *kept) awaitEvent(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		k.mu.Lock()
		told := k.told
		k.mu.Unlock()
		if slices.Contains(told, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no event %q, but %q", want, told)
		}
	}
}

// open opens a page of a context and returns its CDP session.
func (p *peer) open(url, context string) string {
	p.t.Helper()
	params := map[string]any{"url": url}
	if context != "" {
		params["browserContextId"] = context
	}
	id := jsonrpc.GetString(p.must("", "Target.createTarget", params), "targetId")
	return jsonrpc.GetString(p.must("", "Target.attachToTarget", map[string]any{"targetId": id, "flatten": true}),
		"sessionId")
}

// download has a page download an address.
func (p *peer) download(session, url string) {
	p.t.Helper()
	p.must(session, "Runtime.evaluate", map[string]any{
		"expression": "a = document.createElement('a'); a.href = '" + url + "'; a.click()"})
}

// A session's downloads lie in its own directory, wherever clients want them,
// and there as well, before they are told that they are complete.
func TestDownloads(t *testing.T) {
	t.Parallel()
	site := fileSite(t)
	b := sharedChrome(t)
	mine, others := keep(t, downloads.Options{}), keep(t, downloads.Options{})
	s, other := newSession(t, b, Options{Files: mine.Files}), newSession(t, b, Options{Files: others.Files})
	p, q := connect(t, s, ""), connect(t, other, "")

	q.download(q.open(site, ""), site+"/file?name=other.txt") // nobody has asked for events
	others.awaitEvent(t, "downloaded other.txt")

	context := jsonrpc.GetString(p.must("", "Target.createBrowserContext", nil), "browserContextId")
	for n, c := range []string{"", context} {
		page := p.open(site, c)
		p.download(page, site+"/file?name=..%2Fplain.txt")
		mine.awaitEvent(t, "downloaded "+[]string{"_plain.txt", "_plain (1).txt"}[n]) // the next link would cancel it
		for _, behavior := range []string{"allow", "allowAndName"} {
			dir := filepath.Join(t.TempDir(), "made")
			params := map[string]any{"behavior": behavior, "downloadPath": dir, "eventsEnabled": true}
			if c != "" {
				params["browserContextId"] = c
			}
			p.must("", "Browser.setDownloadBehavior", params)
			name := fmt.Sprint(behavior, n, ".txt")
			p.download(page, site+"/file?name="+name)
			want := p.event("Browser.downloadWillBegin", name)
			guid := jsonrpc.GetString(want, "params", "guid")
			done := p.event("Browser.downloadProgress", guid)
			for jsonrpc.GetString(done, "params", "state") == "inProgress" {
				done = p.event("Browser.downloadProgress", guid)
			}
			file := filepath.Join(dir, name)
			if behavior == "allowAndName" {
				file = filepath.Join(dir, guid)
			}
			if got, err := os.ReadFile(file); string(got) != "holds "+name ||
				jsonrpc.GetString(done, "params", "filePath") != file {
				t.Errorf("%s of context %d: the file holds %q: %v; %s", behavior, n, got, err, done)
			}
			mine.awaitEvent(t, "downloaded "+name)
		}
	}
	page := p.open(site, "")
	p.must(page, "Page.setDownloadBehavior", map[string]any{"behavior": "allow", "downloadPath": t.TempDir()})
	p.download(page, site+"/file?name=page.txt")
	mine.awaitEvent(t, "downloaded page.txt")
	p.must("", "Browser.setDownloadBehavior", map[string]any{"behavior": "deny"})
	p.download(page, site+"/file?name=denied.txt")
	mine.awaitEvent(t, "download_failed denied.txt canceled")

	var names []string
	for _, f := range mine.List() {
		names = append(names, f.Name+" "+f.State)
		if f.State == downloads.Complete && filepath.Dir(f.Path) != mine.Dir() {
			t.Errorf("%s is not in the directory", f.Path)
		}
	}
	if got, want := strings.Join(names, ", "), "_plain.txt complete, allow0.txt complete, allowAndName0.txt complete, "+
		"_plain (1).txt complete, allow1.txt complete, allowAndName1.txt complete, page.txt complete, "+
		"denied.txt failed"; got != want {
		t.Errorf("the downloads are %s, want %s", got, want)
	}
	if n := len(others.List()); n != 1 {
		t.Errorf("the other session has %d downloads", n)
	}
}

// No name leads out of the session's directory, and every name is possible.
func TestDownloadNames(t *testing.T) {
	t.Parallel()
	names := []string{ // as servers send them
		`filename="../../etc/passwd"`, `filename*=UTF-8''..%2F..%2Fup.txt`, `filename*=UTF-8''%2Fetc%2Fhosts`,
		`filename*=UTF-8''nul%00.txt`, "filename=\"\xff\xfe.txt\"", `filename*=UTF-8''%FF%FE.txt`,
		`filename="` + strings.Repeat("x", 300) + `.txt"`, `filename*=UTF-8''` + strings.Repeat("%C3%BC", 300) + `.txt`,
		`filename=".."`, `filename=".hidden"`, `filename="CON.txt"`, `filename="a\b.txt"`, `filename=""`,
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/file/")); err == nil {
			w.Header().Set("Content-Disposition", "attachment; "+names[n])
			fmt.Fprint(w, "holds ", n)
			return
		}
		w.Header().Set("Content-Type", "text/html")
	}))
	defer site.Close()
	files := keep(t, downloads.Options{})
	s := newSession(t, sharedBrowser(t), Options{Files: files.Files})
	p := connect(t, s, "")
	for n := range names {
		p.download(p.open(site.URL, ""), fmt.Sprint(site.URL, "/file/", n))
		all, err := files.Wait(t.Context())
		for err == nil && len(all) <= n {
			time.Sleep(5 * time.Millisecond) // until it has begun
			all, err = files.Wait(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		f := all[n]
		b, err := os.ReadFile(f.Path)
		if string(b) != fmt.Sprint("holds ", n) || filepath.Dir(f.Path) != files.Dir() ||
			filepath.Base(f.Path) != f.Name || !utf8.ValidString(f.Name) || strings.HasPrefix(f.Name, ".") {
			t.Errorf("%.60q: %+v holds %q: %v", names[n], f, b, err)
		}
	}
}

// What fails says why, and leaves nothing.
func TestFailedDownloads(t *testing.T) {
	t.Parallel()
	site := fileSite(t)
	b := sharedBrowser(t)
	files := keep(t, downloads.Options{Limit: 2 << 20})
	s := newSession(t, b, Options{Files: files.Files})
	p := connect(t, s, "")
	p.must("", "Browser.setDownloadBehavior", map[string]any{"behavior": "default", "eventsEnabled": true})
	page := p.open(site, "")

	p.download(page, site+"/slow")
	p.event("Browser.downloadProgress", `"canceled"`)
	files.awaitEvent(t, "download_failed big.bin limit") // its length says so
	files.Close()

	files = keep(t, downloads.Options{})
	s2 := newSession(t, b, Options{Files: files.Files})
	p = connect(t, s2, "")
	p.must("", "Browser.setDownloadBehavior", map[string]any{"behavior": "default", "eventsEnabled": true})
	page = p.open(site, "")
	p.download(page, site+"/broken")
	p.event("Browser.downloadWillBegin", "/broken") // a response that ends before is not made a download
	if r, err := http.Get(site + "/break"); err != nil {
		t.Fatal(err)
	} else {
		r.Body.Close()
	}
	files.awaitEvent(t, "download_failed big.bin interrupted")

	p.download(page, site+"/slow")
	begun := p.event("Browser.downloadWillBegin", "/slow")
	p.must("", "Browser.cancelDownload", map[string]any{"guid": jsonrpc.GetString(begun, "params", "guid")})
	files.awaitEvent(t, "download_failed big.bin canceled")

	p.download(page, site+"/slow")
	for received := int64(0); received == 0; {
		received = number(jsonrpc.Get(p.event("Browser.downloadProgress", "inProgress"), "params"), "receivedBytes")
	}
	if err := s2.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	states := files.List()
	if last := states[len(states)-1]; last.State != downloads.Failed || last.Why != downloads.Canceled {
		t.Errorf("after the end of its session the download is %+v", last)
	}
	if err := files.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(files.Incoming()); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
}

// Forms get files of the session's directories only, wherever links lead.
func TestUploads(t *testing.T) {
	t.Parallel()
	site := fileSite(t)
	root, outside := t.TempDir(), t.TempDir()
	for _, name := range []string{root + "/a.txt", outside + "/b.txt"} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{root + "/out": outside, root + "/in": root + "/a.txt"} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	files := keep(t, downloads.Options{})
	s := newSession(t, sharedBrowser(t), Options{Files: files.Files,
		Settings: settings.Settings{UploadRoots: []string{root}}})
	own := files.Dir() + "/own.txt"
	if err := os.WriteFile(own, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := connect(t, s, "")
	page := p.open(site, "")
	var input string
	for input == "" || input == "null" { // the page may still load
		got := p.must(page, "Runtime.evaluate", map[string]any{"expression": "document.querySelector('input')"})
		input = jsonrpc.GetString(got, "result", "objectId")
	}
	for name, ok := range map[string]bool{
		root + "/a.txt": true, root + "/in": true, own: true, root + "/../" + filepath.Base(root) + "/a.txt": true,
		outside + "/b.txt": false, root + "/out/b.txt": false, root + "/none": false, root: false, "a.txt": false,
		root + "/../" + filepath.Base(outside) + "/b.txt": false, "/etc/passwd": false, "": false,
	} {
		answer := p.call(page, "DOM.setFileInputFiles", map[string]any{"files": []string{name}, "objectId": input})
		if refused := jsonrpc.Get(answer, "error") != nil; refused == ok {
			t.Errorf("%q: %s", name, answer)
		}
	}
}
