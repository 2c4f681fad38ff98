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

	"btools/lib/cdp"
	"btools/lib/downloads"
	"btools/lib/jsonrpc"
)

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
	conn  *cdp.Conn
	ready chan struct{} // closed when the browser writes downloads to Dir, or cannot
	done  chan struct{} // closed when the connection has ended
	work  sync.WaitGroup

	mu        sync.Mutex // not held while the connection or a disk is used
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
	w := &Watcher{Options: o, ready: make(chan struct{}), done: make(chan struct{}), downloads: map[string]*download{}}
	var err error
	if w.conn, err = cdp.Dial(ctx, o.URL, w.event); err != nil {
		return nil, err
	}
	w.work.Go(func() {
		<-w.conn.Done()
		w.end()
	})
	w.conn.Begin("", "Browser.setDownloadBehavior", w.behavior(), func(_ json.RawMessage, err error) {
		if err != nil {
			w.fail(fmt.Errorf("the browser does not report downloads: %w", err))
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
	w.conn.Begin("", "Browser.getVersion", nil, func(json.RawMessage, error) {
		w.conn.Begin("", "Browser.setDownloadBehavior", w.behavior(), nil)
	})
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
	w.conn.Close()
	w.work.Wait()
}

// event handles an event of the browser.
func (w *Watcher) event(e cdp.Event) {
	switch e.Method {
	case "Browser.downloadWillBegin":
		w.begin(e.Params)
	case "Browser.downloadProgress":
		w.progress(e.Params)
	}
}

// end notes that the browser, or the connection to it, has ended.
func (w *Watcher) end() {
	w.fail(errors.New("the connection that watches it has ended"))
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
	w.conn.Begin("", "Browser.cancelDownload", map[string]any{"guid": guid}, nil)
	w.conn.Begin("", "Target.getBrowserContexts", nil, func(all json.RawMessage, _ error) {
		for id := range jsonrpc.Elements(jsonrpc.Get(all, "browserContextIds")) {
			w.conn.Begin("", "Browser.cancelDownload", map[string]any{"guid": guid, "browserContextId": id}, nil)
		}
	})
}
