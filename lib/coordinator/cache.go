package coordinator

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"btools/lib/tools"
)

// The list of a child's last run is kept, so that tools/list need not wait
// for the child: by the child's command and its program's size and time.

func (c *Coordinator) cachePath(child *Child) string {
	if c.CacheDir == "" || child.Builtin {
		return ""
	}
	return filepath.Join(c.CacheDir, "child-"+child.fingerprint()+".json")
}

func (c *Coordinator) readCache(child *Child) *childCatalog {
	l := &childCatalog{}
	if child.Builtin {
		l.Tools, l.known = tools.List(c.Tools), true
		return l
	}
	b, err := os.ReadFile(c.cachePath(child))
	if err == nil && json.Unmarshal(b, l) == nil {
		l.known = !l.Late
	}
	return l
}

// writeCache keeps a list. That it can't is no fault: it is asked for again.
func (c *Coordinator) writeCache(child *Child, l *childCatalog) {
	path := c.cachePath(child)
	if path == "" {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // every byte is to stay
	if enc.Encode(l) != nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		f, err := os.CreateTemp(filepath.Dir(path), "child-*.tmp")
		if err == nil {
			_, err = f.Write(b.Bytes())
			if e := f.Close(); err == nil {
				err = e
			}
			if err == nil {
				err = os.Rename(f.Name(), path)
			}
			if err != nil {
				os.Remove(f.Name())
			}
		}
		if err != nil {
			c.Log.Debug("cannot keep the tools of child " + child.Name + ": " + err.Error())
		}
	}
}
