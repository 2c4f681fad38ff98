//go:build linux

package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	. "btools/lib/cmdtest"
)

// skillPage is a page on which the commands of the skill make sense: the elements have the refs that it names.
const skillPage = `<!doctype html><title>Shop</title><h1>Shop</h1><p>Order placed</p>
<a href=#d>none</a> <a href=#a>one</a> <a href=#b>two</a> <a href=#c>three</a> <button>Sign in</button>
<input aria-label=Search>
<select multiple aria-label=Colours><option>red<option>blue</select> <input id=email aria-label=Email>
<button onclick="location='/report'">Buy</button> <p>2 results</p>`

// Every command of the skill works, in their order, as a coding agent runs them.
func TestSkill(t *testing.T) {
	t.Parallel()
	w := New(t)
	w.Env = append(w.Env, "XDG_STATE_HOME="+w.Dir+"/xdg")
	site := Serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/report" {
			rw.Header().Set("Content-Disposition", "attachment; filename=report.csv")
			io.WriteString(rw, "a,b\n")
			return
		}
		rw.Header().Set("Content-Type", "text/html")
		io.WriteString(rw, skillPage)
	})
	defer w.Run("bmcp", "end", "--all")
	text := w.Run("bmcp", "skill").Out
	head, body, _ := strings.Cut(strings.TrimPrefix(text, "---\n"), "\n---\n")
	description := regexp.MustCompile(`\Aname: btools\ndescription: (.*)\z`).FindStringSubmatch(head)
	if description == nil || utf8.RuneCountInString(description[1]) > 1024 {
		t.Errorf("the head of the skill is %q", head)
	}
	if n := strings.Count(body, "\n"); n > 120 {
		t.Errorf("the skill has %d lines", n)
	}
	for _, line := range []string{"  click TARGET  ", "  tabs [list|new|close|select]  "} {
		if !strings.Contains(body, line) {
			t.Errorf("the skill does not list %q", line)
		}
	}
	ran := 0
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(body, -1) {
		for line := range strings.Lines(block[1]) {
			line = strings.ReplaceAll(line, "https://example.com", site)
			r := w.Run("sh", "-c", "cd "+w.Dir+" && "+line)
			if ran++; r.Code != 0 || strings.Contains(r.Err, "hint") {
				t.Errorf("%sexit %d\n%s%s", line, r.Code, r.Out, r.Err)
			}
		}
	}
	if ran < 20 {
		t.Errorf("the skill has %d commands", ran)
	}
	for _, file := range []string{"page.png"} {
		if _, err := os.Stat(w.Dir + "/" + file); err != nil {
			t.Error(err)
		}
	}

	dir := w.Dir + "/skills"
	for range 2 { // a newer one replaces it
		if r := w.Run("bmcp", "skill", "--install", dir); r.Out != dir+"/btools/SKILL.md\n" || r.Code != 0 {
			t.Errorf("exit %d: %s%s", r.Code, r.Out, r.Err)
		}
	}
	if b, err := os.ReadFile(dir + "/btools/SKILL.md"); err != nil || string(b) != text {
		t.Errorf("installed is %q, %v", b, err)
	}
	WriteFile(t, dir+"/btools/SKILL.md", "---\nname: other\n---\n")
	w.Run("bmcp", "skill", "--install", dir).Exits(t, 65, "is another skill, and stays as it is")
	w.Run("bmcp", "skill", "--install", w.Dir+"/page.png").Exits(t, 1, "cannot install the skill")
	w.Run("bmcp", "skill", "more").Exits(t, 64, "more")
}
