// Package recorder records the pages of a browser, or of one session, as another client
// of it: their requests, what they print, a film of each and its last image. It knows
// nothing of the command for whose failure they are evidence.
package recorder

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"btools/lib/cast"
	"btools/lib/cdp"
	"btools/lib/har"
	"btools/lib/jsonrpc"
	"btools/lib/proxy"
	"btools/lib/secrets"
)

// Names of the files of a recording, besides those of its pages.
const (
	Trace   = "trace.jsonl" // what har.Convert could not convert, or not yet
	Archive = "requests.har"
	Console = "console.txt"
	Missing = "missing.txt" // what could not be recorded
)

// FPS is how many frames a second a film has at most.
const FPS = 5

// Recorder records what happens until it is ended.
type Recorder struct {
	dir, url string
	hidden   *secrets.Set // values that are in no file
	conn     *cdp.Conn
	trace    *proxy.Trace
	console  *os.File
	film     string // how the names of films end
	stop     context.CancelFunc
	stopped  context.Context // of the films
	films    sync.WaitGroup

	active atomic.Bool // something has happened since titles were read

	mu       sync.Mutex
	pages    map[string]*page  // by target
	sessions map[string]string // the targets of CDP sessions
	bodies   map[string]bool   // requests whose bodies are fetched once they are there
	numbered int               // pages that were not blank
	missing  []string
	torn     error // of writing the console; nil: all is there
}

// page is a page that there was.
type page struct {
	target, title, url string
	number             int // of those that were not blank; 0: it is
}

// Start begins a recording of the browser, or session, at a WebSocket in a directory of
// its own, which exists. It has none of the values that are hidden.
func Start(ctx context.Context, url, dir string, hidden *secrets.Set) (*Recorder, error) {
	r := &Recorder{dir: dir, url: url, hidden: hidden, film: ".html", pages: map[string]*page{},
		sessions: map[string]string{}, bodies: map[string]bool{}}
	if cast.HasFFmpeg() {
		r.film = ".webm"
	}
	out, err := r.create(Trace)
	if err == nil {
		r.console, err = r.create(Console)
	}
	if err != nil {
		return nil, err
	}
	r.trace = &proxy.Trace{Out: hidden.JSONWriter(out), Log: slog.New(slog.NewTextHandler(notes{r}, nil))}
	write := r.trace.Connection("/devtools/browser")
	r.stopped, r.stop = context.WithCancel(context.Background())
	r.conn, err = cdp.DialTraced(ctx, url, r.event, func(sent bool, message []byte, size int64) {
		write(!sent, message, size)
	})
	if err != nil {
		return nil, err
	}
	r.conn.Begin("", "Browser.getVersion", nil, nil) // for the archive
	r.conn.Begin("", "Target.setDiscoverTargets", map[string]any{"discover": true}, nil)
	if err := r.conn.Call(ctx, "", "Target.setAutoAttach", attach, nil); err != nil {
		return nil, err
	}
	go r.watchTitles()
	return r, nil
}

// titlesEvery is how often the titles of pages are read, of which Chrome does not tell.
const titlesEvery = 2 * time.Second

// watchTitles reads the titles of pages in which something happens: who closes a page
// does not wait for us to read its last one.
func (r *Recorder) watchTitles() {
	for ticks := time.Tick(titlesEvery); ; {
		select {
		case <-r.stopped.Done():
			return
		case <-r.conn.Done():
			return
		case <-ticks:
			if r.active.Swap(false) {
				r.conn.Begin("", "Target.getTargets", nil, func(result json.RawMessage, _ error) { r.titles(result) })
			}
		}
	}
}

// titles notes the titles of an answer to Target.getTargets.
func (r *Recorder) titles(result json.RawMessage) {
	var infos []json.RawMessage
	json.Unmarshal(jsonrpc.Get(result, "targetInfos"), &infos)
	for _, info := range infos {
		r.changed(info)
	}
}

// attach has the browser attach us to each target, which waits for us to have begun.
var attach = map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}

func (r *Recorder) create(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(r.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// notes are what a trace says of its failures.
type notes struct{ *Recorder }

func (n notes) Write(b []byte) (int, error) {
	n.miss("all requests: %s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// miss notes what could not be recorded.
func (r *Recorder) miss(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = append(r.missing, r.hidden.Mask(fmt.Sprintf(format, args...)))
}

// event handles an event of the browser.
func (r *Recorder) event(e cdp.Event) {
	if e.Session != "" {
		r.active.Store(true)
	}
	switch e.Method {
	case "Target.attachedToTarget":
		r.attached(e.Params)
	case "Target.targetInfoChanged":
		r.changed(jsonrpc.Get(e.Params, "targetInfo"))
	case "Target.targetCrashed":
		r.mu.Lock()
		r.print(time.Now(), r.pages[jsonrpc.GetString(e.Params, "targetId")], "crash", "the page has crashed")
		r.mu.Unlock()
	case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
		r.mu.Lock()
		at, kind, text := said(e.Method, e.Params)
		r.print(at, r.pages[r.sessions[e.Session]], kind, text)
		r.mu.Unlock()
	case "Btools.private":
		r.mu.Lock()
		r.print(time.Now(), nil, "private", "a person has control: nothing of the pages until it is given back")
		r.mu.Unlock()
	case "Network.responseReceived", "Network.loadingFinished":
		r.fetch(e)
	}
}

// setUp is how long a page waits for Chrome's answers to what the recorder has asked for.
// One that is opened with its address answers only when it has gone on.
const setUp = time.Second

// attached begins with a target. What a new page has not answered when it goes elsewhere
// holds only once that is there: its first requests would not be told.
func (r *Recorder) attached(params json.RawMessage) {
	session, info := jsonrpc.GetString(params, "sessionId"), jsonrpc.Get(params, "targetInfo")
	target := jsonrpc.GetString(info, "targetId")
	resume := sync.OnceFunc(func() { r.conn.Begin(session, "Runtime.runIfWaitingForDebugger", nil, nil) })
	methods := []string{"Network.enable", "Runtime.enable", "Log.enable"}
	var unanswered atomic.Int32
	unanswered.Store(int32(len(methods)))
	for _, method := range methods {
		r.conn.Begin(session, method, nil, func(json.RawMessage, error) { // a worker has not all of them
			if unanswered.Add(-1) == 0 {
				resume()
			}
		})
	}
	r.conn.Begin(session, "Target.setAutoAttach", attach, nil)
	if jsonrpc.GetString(info, "type") == "page" && jsonrpc.Get(info, "openerId") == nil {
		time.AfterFunc(setUp, resume)
	} else {
		resume()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[session] = target
	if jsonrpc.GetString(info, "type") != "page" || r.pages[target] != nil || r.stopped.Err() != nil {
		return
	}
	p := &page{target: target}
	r.pages[target] = p
	r.changedLocked(p, info)
	name := fmt.Sprintf("page-%d", len(r.pages)) // until the page has a number and a title
	r.films.Go(func() { r.record(p, name) })
}

// changed notes where a page is.
func (r *Recorder) changed(info json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pages[jsonrpc.GetString(info, "targetId")]; p != nil {
		r.changedLocked(p, info)
	}
}

func (r *Recorder) changedLocked(p *page, info json.RawMessage) {
	url := jsonrpc.GetString(info, "url")
	if url == "" || url == "about:blank" || url == ":" {
		return
	}
	p.url, p.title = r.hidden.Mask(url), r.hidden.Mask(jsonrpc.GetString(info, "title"))
	r.numberLocked(p)
}

// numberLocked numbers a page that is not blank, or prints.
func (r *Recorder) numberLocked(p *page) {
	if p.number == 0 {
		r.numbered++
		p.number = r.numbered
	}
}

// maxBody is the longest body that is fetched, in bytes on the network.
const maxBody = 1 << 20

// fetch fetches the bodies of documents and of what scripts have requested, for the trace.
func (r *Recorder) fetch(e cdp.Event) {
	key := e.Session + " " + jsonrpc.GetString(e.Params, "requestId")
	if e.Method == "Network.responseReceived" {
		switch jsonrpc.GetString(e.Params, "type") {
		case "Document", "XHR", "Fetch":
			r.bodies[key] = true
		}
		return
	}
	var length float64
	json.Unmarshal(jsonrpc.Get(e.Params, "encodedDataLength"), &length)
	if r.bodies[key] && length <= maxBody {
		r.conn.Begin(e.Session, "Network.getResponseBody",
			map[string]string{"requestId": jsonrpc.GetString(e.Params, "requestId")}, nil)
	}
	delete(r.bodies, key)
}

// latest is a film that keeps its last image, also when it cannot be written any more.
type latest struct {
	cast.Output
	image []byte
	err   error
}

func (l *latest) Write(f cast.Frame) error {
	l.image = f.JPEG
	if l.err == nil {
		l.err = l.Output.Write(f)
	}
	return nil
}

// record makes the film of a page, until it is closed or the recording ends.
func (r *Recorder) record(p *page, name string) {
	path := filepath.Join(r.dir, name+r.film)
	out, err := cast.Create(path, FPS)
	if err != nil {
		r.miss("a film of a page: %v", err)
		return
	}
	film := &latest{Output: out}
	frames, err := cast.Record(r.stopped, r.url, p.target, FPS, 0, film)
	if errors.Is(err, cast.ErrClosed) || errors.Is(err, cast.ErrLost) {
		err = nil
	}
	if closeErr := out.Close(); film.err == nil {
		film.err = closeErr
	}
	r.mu.Lock()
	final, url, blank := p.name(), p.url, p.number == 0
	r.mu.Unlock()
	switch {
	case blank:
		os.Remove(path)
		return
	case frames == 0:
		os.Remove(path)
		if err == nil {
			err = errors.New("it has not shown anything")
		}
		r.miss("a film and an image of page %s (%s): %v", final, url, err)
		return
	}
	if err := errors.Join(err, film.err); err != nil {
		r.miss("all of the film %s (%s): %v", final+r.film, url, err)
	}
	if err := os.Rename(path, filepath.Join(r.dir, final+r.film)); err != nil && !os.IsNotExist(err) {
		r.miss("the film of page %s (%s) has the name %s: %v", final, url, name+r.film, err)
	}
	image := filepath.Join(r.dir, final+".jpg")
	if err := os.WriteFile(image, film.image, 0o600); err != nil {
		os.Remove(image)
		r.miss("the last image of page %s (%s): %v", final, url, err)
	}
}

// Keep ends the recording and finishes its files. It returns what could not be recorded. The
// recording of a browser that nobody has used is deleted.
func (r *Recorder) Keep(of har.Options) (missing []string) {
	r.end()
	if err := cmp.Or(r.torn, r.console.Close()); err != nil {
		r.miss("all of %s: %v", Console, err)
	}
	if err := r.convert(of); errors.Is(err, har.ErrNoNetwork) {
		if r.isEmpty() {
			r.Drop()
			return nil
		}
		r.miss("requests: there were none")
	} else if err != nil {
		r.miss("%s: %v; bproxy har converts %s", Archive, err, Trace)
	}
	if len(r.missing) > 0 {
		text := []byte(strings.Join(r.missing, "\n") + "\n")
		if err := os.WriteFile(filepath.Join(r.dir, Missing), text, 0o600); err != nil {
			r.miss("%s: %v", Missing, err)
		}
	}
	return r.missing
}

// isEmpty reports whether nothing has been recorded, and nothing is missing.
func (r *Recorder) isEmpty() bool {
	files, err := os.ReadDir(r.dir)
	if err != nil || len(files) != 1 || len(r.missing) > 0 {
		return false
	}
	console, err := files[0].Info()
	return err == nil && console.Size() == 0
}

// Drop deletes the recording. The caller exits then, which ends it.
func (r *Recorder) Drop() error {
	r.mu.Lock()
	r.stop() // there are no more films
	r.mu.Unlock()
	var err error
	for range 5 { // one may have begun just now
		if err = os.RemoveAll(r.dir); err == nil {
			break
		}
	}
	return err
}

// end ends the films, with the pages as they are now, and the trace.
func (r *Recorder) end() {
	ctx, cancel := context.WithTimeout(context.Background(), titlesEvery)
	defer cancel()
	var last json.RawMessage
	if r.conn.Call(ctx, "", "Target.getTargets", nil, &last) == nil {
		r.titles(last)
	}
	r.mu.Lock()
	r.stop()
	r.mu.Unlock()
	r.films.Wait()
	r.conn.Close()
	r.trace.Close()
}

// convert makes the archive of the trace, in whose place it is then.
func (r *Recorder) convert(of har.Options) error {
	path := filepath.Join(r.dir, Archive)
	in, err := os.Open(filepath.Join(r.dir, Trace))
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := r.create(Archive)
	if err != nil {
		return err
	}
	_, err = har.Convert([]har.Trace{{ReaderAt: in, Size: info.Size()}}, of, out)
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		os.Remove(path)
	}
	if err == nil || errors.Is(err, har.ErrNoNetwork) {
		os.Remove(in.Name())
	}
	return err
}
