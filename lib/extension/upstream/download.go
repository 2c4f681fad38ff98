package upstream

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"btools/lib/jsonrpc"
)

// downloads matches what the page says of downloads, which has the GUID, with
// what chrome.downloads says, which has the file.
type downloads struct {
	items map[string][]int64   // the IDs of chrome.downloads that no page has told of, by URL
	known map[string]*download // by GUID
}

// download is a download of a tab.
type download struct {
	guid, url string
	tab       *tab
	id        int64 // of chrome.downloads; 0: unknown
	dir       string
	canceled  bool
}

// maxItems bounds the downloads that wait for their page to tell of them: most
// are the user's own.
const maxItems = 64

// startedLocked notes a download of the browser.
func (d *downloads) startedLocked(args json.RawMessage) {
	if d.items == nil {
		d.items, d.known = map[string][]int64{}, map[string]*download{}
	}
	id := number(args, "id")
	for _, name := range []string{"url", "finalUrl"} {
		url := jsonrpc.GetString(args, name)
		for _, f := range d.known {
			if f.id == 0 && f.url == url {
				f.id = id
				return
			}
		}
	}
	if len(d.items) >= maxItems {
		clear(d.items)
	}
	url := jsonrpc.GetString(args, "url")
	d.items[url] = append(d.items[url], id)
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
	if b.files.items == nil {
		b.files.items, b.files.known = map[string][]int64{}, map[string]*download{}
	}
	f := &download{guid: jsonrpc.GetString(params, "guid"), url: jsonrpc.GetString(params, "url"), tab: t}
	if x := b.contexts[t.context]; x != nil && x.behavior == "allowAndName" {
		f.dir = x.path
	} else if x != nil && x.behavior == "deny" {
		f.canceled = true
	}
	if ids := b.files.items[f.url]; len(ids) > 0 {
		f.id = ids[0]
		b.files.items[f.url] = ids[1:]
	}
	b.files.known[f.guid] = f
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
	type answer struct {
		result json.RawMessage
		err    error
	}
	got := make(chan answer, 1)
	b.link.Begin("downloads", map[string]int64{"id": f.id}, false, func(r json.RawMessage, err error) {
		got <- answer{r, err}
	})
	a := <-got
	if a.err != nil {
		return "", a.err
	}
	from := ""
	for item := range jsonrpc.Elements(jsonrpc.Get(a.result, "items")) {
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

func copyFile(from, to string) error {
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
