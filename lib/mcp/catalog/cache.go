package catalog

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"btools/lib/mcp/child"
)

// The list of a child's last run is kept, so that tools/list need not wait
// for the child: by the child's command and its program's size and time.

func (c *Catalog) path(child *child.Spec) string {
	if c.Dir == "" || child.Builtin {
		return ""
	}
	return filepath.Join(c.Dir, "child-"+child.Fingerprint()+".json")
}

// read is what is known of a child from its last run.
func (c *Catalog) read(child *child.Spec) *entry {
	if child.Builtin {
		return &entry{Tools: c.Builtin, state: stale}
	}
	e := &entry{}
	b, err := os.ReadFile(c.path(child))
	if err == nil && json.Unmarshal(b, e) == nil && !e.Late {
		e.state = stale
	}
	return e
}

// write keeps a list. That it can't is no fault: the child is asked for it again.
func (c *Catalog) write(child *child.Spec, e *entry) {
	path := c.path(child)
	if path == "" {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // every byte is to stay
	if enc.Encode(e) != nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		f, err := os.CreateTemp(filepath.Dir(path), "child-*.tmp")
		if err == nil {
			_, err = f.Write(b.Bytes())
			if closing := f.Close(); err == nil {
				err = closing
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
