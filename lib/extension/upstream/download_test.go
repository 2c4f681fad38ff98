package upstream

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A page downloads what its user has downloaded before: the user's file is not
// taken for that of the page.
func TestDownloadOfUser(t *testing.T) {
	now := time.Now()
	started := func(d *downloads, id int, at time.Time) {
		d.startedLocked(json.RawMessage(fmt.Sprintf(`{"id":%d,"url":"http://a/go","finalUrl":"http://a/f"}`, id)), at)
	}
	for name, c := range map[string]struct {
		before []time.Duration // when downloads with the IDs 1, 2 … were told of
		after  time.Duration   // when the next one was, counted from the page's; 0: none is
		want   int64
	}{
		"told before the page":         {[]time.Duration{-time.Second}, 0, 1},
		"told after the page":          {nil, time.Second, 1},
		"the user's a minute before":   {[]time.Duration{-time.Minute}, 0, 0},
		"the user's, then the page's":  {[]time.Duration{-time.Minute, -time.Second}, 0, 2},
		"the user's, and then another": {[]time.Duration{-time.Minute}, time.Second, 2},
		"the user's a minute after":    {nil, time.Minute, 0},
	} {
		var d downloads
		for n, at := range c.before {
			started(&d, n+1, now.Add(at))
		}
		f := &download{guid: "g", url: "http://a/f", begun: now}
		d.begunLocked(f)
		if c.after != 0 {
			started(&d, len(c.before)+1, now.Add(c.after))
		}
		if f.id != c.want {
			t.Errorf("%s: the page's download is taken for %d, want %d", name, f.id, c.want)
		}
	}
	var d downloads
	for id := range 10 * maxItems {
		started(&d, id, now)
	}
	if len(d.items) > maxItems {
		t.Errorf("%d downloads are kept", len(d.items))
	}
}

// A browser names something that is not a file.
func TestCopyNoFile(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(os.DevNull, link); err != nil {
		t.Skip(err)
	}
	for _, from := range []string{link, os.DevNull, dir} {
		if err := copyFile(from, filepath.Join(dir, "to")); err == nil {
			t.Errorf("%s was copied", from)
		}
	}
}
