package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"btools/lib/jsonrpc"
)

// downloads matches what the page says of downloads, which has the GUID, with
// what chrome.downloads says, which has the file.
type downloads struct {
	items []item               // that no page has told of, the oldest first
	known map[string]*download // by GUID
}

// item is a download of chrome.downloads.
type item struct {
	id            int64
	url, finalURL string
	at            time.Time // when the extension told of it
}

// download is a download of a tab.
type download struct {
	guid, url string
	begun     time.Time
	id        int64 // of chrome.downloads; 0: unknown
	dir       string
	canceled  bool
}

// maxItems bounds the downloads that wait for their page to tell of them: most
// are the user's own.
const maxItems = 64

// maxApart is how long after each other the page and chrome.downloads may tell
// of one download. An older item with its URL is another one, such as the
// user's, whose file must stay.
const maxApart = 10 * time.Second

// startedLocked notes a download of the browser.
func (d *downloads) startedLocked(args json.RawMessage, now time.Time) {
	i := item{number(args, "id"), jsonrpc.GetString(args, "url"), jsonrpc.GetString(args, "finalUrl"), now}
	for _, f := range d.known {
		if f.id == 0 && i.is(f.url) && now.Sub(f.begun) < maxApart {
			f.id = i.id
			return
		}
	}
	if len(d.items) >= maxItems {
		d.items = slices.Delete(d.items, 0, 1)
	}
	d.items = append(d.items, i)
}

func (i item) is(url string) bool { return i.url == url || i.finalURL == url }

// begunLocked notes a download of a page.
func (d *downloads) begunLocked(f *download) {
	if d.known == nil {
		d.known = map[string]*download{}
	}
	d.known[f.guid] = f
	d.items = slices.DeleteFunc(d.items, func(i item) bool { return f.begun.Sub(i.at) >= maxApart })
	if n := slices.IndexFunc(d.items, func(i item) bool { return i.is(f.url) }); n >= 0 {
		f.id = d.items[n].id
		d.items = slices.Delete(d.items, n, n+1)
	}
}

// downloadBehaviorLocked executes Browser.setDownloadBehavior.
func (b *Browser) downloadBehaviorLocked(c *conn, k command) {
	c.downloads = string(jsonrpc.Get(k.params, "eventsEnabled")) == "true"
	if x := b.contexts[jsonrpc.GetString(k.params, "browserContextId")]; x != nil {
		x.behavior = jsonrpc.GetString(k.params, "behavior")
		x.path = jsonrpc.GetString(k.params, "downloadPath")
	}
	c.reply(k, nil, nil)
}

// downloadBegunLocked tells about a download that a tab has begun.
func (b *Browser) downloadBegunLocked(t *tab, params json.RawMessage) {
	f := &download{guid: jsonrpc.GetString(params, "guid"), url: jsonrpc.GetString(params, "url"), begun: time.Now()}
	if x := b.contexts[t.context]; x != nil && x.behavior == "allowAndName" {
		f.dir = x.path
	} else if x != nil && x.behavior == "deny" {
		f.canceled = true
	}
	b.files.begunLocked(f)
	b.tellDownloadLocked("Browser.downloadWillBegin", params)
}

// downloadProgressLocked tells about the progress of a download. A complete one
// is moved first to where the client wants it.
func (b *Browser) downloadProgressLocked(params json.RawMessage) {
	f := b.files.known[jsonrpc.GetString(params, "guid")]
	if f == nil {
		return
	}
	state := jsonrpc.GetString(params, "state")
	if f.canceled && f.id != 0 && state == "inProgress" {
		b.send("cancelDownload", map[string]int64{"id": f.id})
	}
	if state == "inProgress" {
		b.tellDownloadLocked("Browser.downloadProgress", params)
		return
	}
	delete(b.files.known, f.guid)
	if state != "completed" || f.dir == "" || f.id == 0 {
		b.tellDownloadLocked("Browser.downloadProgress", params)
		return
	}
	b.work.Go(func() {
		path, err := b.move(f)
		if err != nil {
			b.log.Warn("a download stays where the browser has put it", "url", f.url, "why", err)
			params = jsonrpc.Set(params, "state", quote("canceled"))
		} else {
			params = jsonrpc.Set(params, "filePath", quote(path))
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.tellDownloadLocked("Browser.downloadProgress", params)
	})
}

// move moves the file of a download into the directory for its GUIDs.
func (b *Browser) move(f *download) (path string, err error) {
	got, err := b.link.Call(context.Background(), "downloads", map[string]int64{"id": f.id})
	if err != nil {
		return "", err
	}
	from := ""
	for item := range jsonrpc.Elements(jsonrpc.Get(got, "items")) {
		from = jsonrpc.GetString(item, "filename")
	}
	if from == "" {
		return "", fmt.Errorf("the browser does not know its file")
	}
	path = filepath.Join(f.dir, filepath.Base(f.guid))
	if err := copyFile(from, path); err != nil {
		return "", err
	}
	b.send("eraseDownload", map[string]int64{"id": f.id})
	return path, nil
}

// copyFile copies a file. What is not one, such as a named pipe, could be read
// without an end.
func copyFile(from, to string) error {
	if st, err := os.Lstat(from); err != nil {
		return err
	} else if !st.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", from)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(to)
	}
	return err
}

func (b *Browser) tellDownloadLocked(event string, params json.RawMessage) {
	for c := range b.conns {
		if c.downloads {
			c.event("", event, params)
		}
	}
}

// cancelDownloadLocked executes Browser.cancelDownload.
func (b *Browser) cancelDownloadLocked(c *conn, k command) {
	f := b.files.known[jsonrpc.GetString(k.params, "guid")]
	if f == nil || f.id == 0 {
		c.reply(k, nil, &jsonrpc.Error{Code: jsonrpc.InvalidParams,
			Message: "No download item found for the given GUID"})
		return
	}
	f.canceled = true
	b.link.Begin("cancelDownload", map[string]int64{"id": f.id}, false, func(_ json.RawMessage, err error) {
		c.reply(k, nil, err)
	})
}
