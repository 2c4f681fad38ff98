// Package watcher records the downloads of a browser that its clients use as it
// is. It has a connection of its own to that browser, by which the browser
// writes downloads to a directory of ours unless a client wants another one;
// what clients say is not read. The sessions of a shared browser have package
// virtual for that.
package watcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"btools/lib/downloads"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// stall is how long the browser may take no commands until it is given up.
const stall = 10 * time.Second

// Options say what is watched.
type Options struct {
	URL string // the browser's WebSocket
	Dir string // where the browser writes downloads, with their GUIDs as names
	// Owner returns the files of the one who has the browser now. Nil: nobody has
	// it; the download is canceled unless leave is true.
	Owner func() (files *downloads.Files, leave bool)
	Log   *slog.Logger
}

// Watcher watches one browser.
type Watcher struct {
	Options
	conn  *websocket.Conn
	ready chan struct{} // closed when the browser writes downloads to Dir, or cannot
	done  chan struct{} // closed when the connection has ended
	work  sync.WaitGroup

	mu        sync.Mutex // not held while the connection or a disk is used
	last      int        // ID of a command
	waiting   map[int]func(answer []byte)
	downloads map[string]*download
	err       error // why downloads are not recorded
}

// download is one in progress.
type download struct {
	files *downloads.Files // nil: nobody's
	// why is the reason for which it is canceled; "": by the browser, which does not
	// say whether a client has told it to.
	why string
}

// Open connects to a browser. The context bounds that.
func Open(ctx context.Context, o Options) (*Watcher, error) {
	conn, err := websocket.Dial(ctx, o.URL)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the browser: %w", err)
	}
	conn.Stall = stall
	w := &Watcher{Options: o, conn: conn, ready: make(chan struct{}), done: make(chan struct{}),
		waiting: map[int]func([]byte){}, downloads: map[string]*download{}}
	w.work.Go(w.read)
	w.call("Browser.setDownloadBehavior", w.behavior(), func(answer []byte) {
		if why := jsonrpc.GetString(answer, "error", "message"); why != "" {
			w.fail(fmt.Errorf("the browser does not report downloads: %s", why))
		}
		close(w.ready)
	})
	return w, nil
}

// behavior is what a browser without the wish of a client does with downloads.
func (w *Watcher) behavior() map[string]any {
	return map[string]any{"behavior": "allowAndName", "downloadPath": w.Dir, "eventsEnabled": true}
}

// Wait waits until the browser writes downloads to the directory.
func (w *Watcher) Wait(ctx context.Context) error {
	select {
	case <-w.ready:
	case <-w.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return w.Err()
}

// Err returns why downloads are not recorded; nil: they are.
func (w *Watcher) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = cmp.Or(w.err, err)
}

// Reset has the browser write downloads to the directory again: it puts them
// where it likes once a client that has chosen another directory is gone. Call
// it after the last client's connection has closed.
func (w *Watcher) Reset() {
	// The answer shows that the browser has read all connections meanwhile, so
	// that it knows of the end of the client's.
	w.call("Browser.getVersion", nil, func([]byte) { w.send("Browser.setDownloadBehavior", w.behavior()) })
}

// Release cancels the downloads whose owner the browser no longer has. If kept
// is true, clients of that owner stay connected, and their downloads go on that
// are not written to the directory.
func (w *Watcher) Release(files *downloads.Files, kept bool) {
	var over []string
	w.mu.Lock()
	for guid, d := range w.downloads {
		if d.files == files {
			d.why = downloads.Canceled
			over = append(over, guid)
		}
	}
	w.mu.Unlock()
	for _, guid := range over {
		if !kept || files.HasIncoming(guid) {
			w.cancel(guid)
		}
	}
}

// Close ends the connection, and waits until no file is used any more.
func (w *Watcher) Close() {
	w.conn.Close(websocket.Normal, "")
	w.work.Wait()
}

// read handles the browser's messages until the connection ends.
func (w *Watcher) read() {
	defer w.end()
	for {
		m, err := w.conn.Next()
		if err != nil {
			return
		}
		b, err := m.Bytes()
		if err != nil {
			return
		}
		if id, err := strconv.Atoi(string(jsonrpc.Get(b, "id"))); err == nil {
			w.mu.Lock()
			answered := w.waiting[id]
			delete(w.waiting, id)
			w.mu.Unlock()
			if answered != nil {
				answered(b)
			}
			continue
		}
		switch params := jsonrpc.Get(b, "params"); jsonrpc.GetString(b, "method") {
		case "Browser.downloadWillBegin":
			w.begin(params)
		case "Browser.downloadProgress":
			w.progress(params)
		}
	}
}

// end notes that the browser, or the connection to it, has ended.
func (w *Watcher) end() {
	w.fail(errors.New("the connection that watches it has ended"))
	w.conn.Close(websocket.Normal, "")
	w.mu.Lock()
	left := w.downloads
	w.downloads = map[string]*download{}
	w.mu.Unlock()
	for guid, d := range left {
		if d.files != nil {
			d.files.Fail(guid, cmp.Or(d.why, downloads.Interrupted))
		}
	}
	close(w.done)
}

// begin notes a download that begins.
func (w *Watcher) begin(params json.RawMessage) {
	guid := jsonrpc.GetString(params, "guid")
	files, leave := w.Owner()
	d := &download{files: files}
	w.mu.Lock()
	w.downloads[guid] = d
	w.mu.Unlock()
	if files == nil {
		if !leave {
			w.Log.Info("canceled a download: nobody has the browser")
			w.cancel(guid)
		}
		return
	}
	if !files.Begin(guid, jsonrpc.GetString(params, "url"), jsonrpc.GetString(params, "suggestedFilename")) {
		w.cancel(guid)
	}
}

// progress notes how far a download is.
func (w *Watcher) progress(params json.RawMessage) {
	guid, state := jsonrpc.GetString(params, "guid"), jsonrpc.GetString(params, "state")
	w.mu.Lock()
	d := w.downloads[guid]
	why := ""
	if d != nil {
		why = d.why
	}
	if state != "inProgress" {
		delete(w.downloads, guid)
	}
	w.mu.Unlock()
	switch {
	case d == nil:
	case d.files == nil:
		if state == "completed" {
			w.discard(guid)
		}
	case state == "inProgress":
		if !d.files.Progress(guid, number(params, "receivedBytes"), number(params, "totalBytes")) && why == "" {
			w.mu.Lock()
			d.why = downloads.Limit
			w.mu.Unlock()
			w.cancel(guid)
		}
	case state == "completed":
		w.work.Go(func() { w.complete(guid, d, jsonrpc.GetString(params, "filePath")) })
	default:
		d.files.Fail(guid, cmp.Or(why, downloads.Interrupted))
	}
}

// complete keeps a file that the browser has completed, wherever that is.
func (w *Watcher) complete(guid string, d *download, path string) {
	defer w.discard(guid) // if it has not been moved
	var err error
	if d.files.HasIncoming(guid) {
		path, err = d.files.Move(guid)
	} else {
		path, err = d.files.Adopt(guid, path)
	}
	if err == nil {
		err = d.files.Finish(d.files.Ended(), guid, path)
	}
	switch {
	case errors.Is(err, downloads.ErrLimit):
		d.files.Fail(guid, downloads.Limit)
	case errors.Is(err, downloads.ErrEnded), errors.Is(err, downloads.ErrClosed):
	case err != nil:
		w.Log.Warn("cannot keep a download: "+err.Error(), "guid", guid)
		d.files.Fail(guid, downloads.Interrupted)
	}
}

// discard deletes a download that is nobody's.
func (w *Watcher) discard(guid string) {
	if filepath.IsLocal(guid) {
		os.Remove(filepath.Join(w.Dir, filepath.Base(guid)))
	}
}

// number returns a number of an event.
func number(params json.RawMessage, name string) int64 {
	f, err := strconv.ParseFloat(string(jsonrpc.Get(params, name)), 64)
	if err != nil {
		return 0
	}
	return int64(f)
}

// cancel cancels a download. The browser wants to know its context, which no
// event tells.
func (w *Watcher) cancel(guid string) {
	w.send("Browser.cancelDownload", map[string]any{"guid": guid})
	w.call("Target.getBrowserContexts", nil, func(answer []byte) {
		for id := range jsonrpc.Elements(jsonrpc.Get(answer, "result", "browserContextIds")) {
			w.send("Browser.cancelDownload", map[string]any{"guid": guid, "browserContextId": id})
		}
	})
}

func (w *Watcher) send(method string, params any) { w.call(method, params, nil) }

// call sends a command; answered, if not nil, gets its answer and must not wait.
func (w *Watcher) call(method string, params any, answered func(answer []byte)) {
	w.mu.Lock()
	w.last++
	id := w.last
	if answered != nil {
		w.waiting[id] = answered
	}
	w.mu.Unlock()
	message, err := json.Marshal(struct {
		ID     int    `json:"id"`
		Method string `json:"method"`
		Params any    `json:"params,omitempty"`
	}{id, method, params})
	if err != nil {
		panic(err) // of strings, booleans and raw JSON that was read from the browser
	}
	w.conn.Write(message) // if it fails, the connection has ended
}
