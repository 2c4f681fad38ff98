//go:build linux

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	. "btools/lib/cmdtest"
)

// checkAlone checks that --save and --raw have what the result is, whatever it is, and nothing else.
func checkAlone(t *testing.T, w *World, site, dir string) {
	called(w, "navigate", site+"/a")
	for i, test := range []struct{ call, begins, whole string }{
		{"take_screenshot", "\x89PNG", ""},
		{"pdf_save", "%PDF-", ""},
		{"fetch " + site + "/data", "", string(callData)},
		{"fetch " + site + "/latin", "", "caf\xe9\n"},
		{"get_markdown", "", "# Hello\n\nPress"},
		{"get_dom selector=h1", "", "<h1>Hello</h1>"},
		{"evaluate document.title", "", "Page /a"},
		{"evaluate [document.title]", "", "[\n  \"Page /a\"\n]"},
		{"evaluate '() => {}'", "", "undefined"},
		{"evaluate '\"a\\n\"'", "", "a\n"},
		{"snapshot", "- heading \"Hello\"", ""},
		{"coordinator_status", "{", ""},
	} {
		file := filepath.Join(dir, "saved")
		w.Run("sh", "-c", "bmcp call --save "+file+" "+test.call).Exits(t, 0, "")
		saved, err := os.ReadFile(file)
		os.Remove(file)
		if test.whole != "" && string(saved) != test.whole || !strings.HasPrefix(string(saved), test.begins) ||
			err != nil {
			t.Errorf("%s: the file has %.300q, %v", test.call, saved, err)
		}
		if test.whole == "" && test.begins != "%PDF-" {
			continue
		}
		for _, how := range []string{"--raw ", "--save - "}[:1+i%2] {
			r := w.Run("sh", "-c", "bmcp call "+how+test.call)
			if r.Code != 0 || test.whole != "" && r.Out != test.whole || !strings.HasPrefix(r.Out, test.begins) {
				t.Errorf("%s%s: exit %d, standard output has %.300q\n%s", how, test.call, r.Code, r.Out, r.Err)
			}
		}
	}
	for _, call := range [][]string{{"hover", "h1"}, {"fetch", site + "/empty"}, {"click", "e999999"}} {
		file := filepath.Join(dir, "none")
		r := w.Run("bmcp", append([]string{"call", "--save", file}, call...)...)
		if _, err := os.Stat(file); r.Code != 1 || err == nil || r.Err == "" {
			t.Errorf("%v: exit %d, a file: %v\n%s", call, r.Code, err == nil, r.Err)
		}
	}
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	w.Run("bmcp", "call", "--save", fifo, "evaluate", "1").Exits(t, 75, "nobody reads "+fifo)
	w.Run("sh", "-c", "cat "+fifo+" & sleep 0.1; exec bmcp call --save "+fifo+` evaluate '"x".repeat(1e5)'`).
		Exits(t, 0, "")
	w.Run("bmcp", "call", "--raw", "hover", "h1").Exits(t, 0, "")
	for _, form := range []string{"", "--snapshot "} { // as of a single call
		r := w.Run("sh", "-c", "bmcp call "+form+`execute_bulk commands='[{"tool":"browser_navigate","args":{"url":"`+
			site+`/b"},"return_result":true}]'`)
		if r.Code != 0 || !strings.Contains(r.Out, "Page /b") || strings.Contains(r.Out, "- heading") != (form != "") {
			t.Errorf("%sin bulk: exit %d: %s%s", form, r.Code, r.Out, r.Err)
		}
	}
	for _, words := range []string{"--raw --save x", "--raw --output json", "--raw --max-inline 1k",
		"--raw --snapshot", "--raw --json", "--save=", "-f title"} {
		w.Run("sh", "-c", "bmcp call snapshot "+words).Exits(t, 64, "hint")
	}
}

// checkJSON checks that --json prints what a script can read, of each kind of result.
func checkJSON(t *testing.T, w *World, site string) {
	t.Helper()
	page := `"page":{"url":"` + site + `/a","title":"Page /a","status":200}}` + "\n"
	for _, test := range [][2]string{
		{"navigate " + site + "/a", `{"result":null,` + page},
		{"evaluate '\"5\"'", `{"result":"5",` + page},
		{"evaluate '({a: [1, \"<b>\"]})'", `{"result":{"a":[1,"<b>"]},` + page},
		{"evaluate '() => {}'", `{"result":null,` + page},
		{"get_dom h1", `{"result":"<h1>Hello</h1>",` + page},
		{"fetch " + site + "/data", `{"result":{"data":"H4sIACBhcmNoaXZlIP8=","mime_type":"appl`},
		{"tabs list", `{"result":[{"index":0,"url":"` + site + `/a","title":"Page /a","current":true}]}`},
		{"evaluate 'console.warn(\"w\"); document.cookie = \"c=1\"'", `{"result":null,` + page},
		{"console_messages warning", `{"result":[{"level":"warning","type":"warning","text":"w",`},
		{"cookies", `{"result":[{"name":"c","value":"1",`},
		{"requests static=true", `{"result":[{"index":1,"method":"GET","url":"` + site + `/a","type":"document",` +
			`"status":200,`},
		{"requests filter=none", `{"result":[]}`},
		{"evaluate '() => { throw Error(\"no\") }'", `{"result":null,"error":"The script threw`},
	} {
		call, want := test[0], test[1]
		r := w.Run("sh", "-c", "bmcp call --json "+call)
		if failed := strings.Contains(want, `"error"`); !strings.HasPrefix(r.Out, want) || (r.Code != 0) != failed {
			t.Errorf("%s: exit %d, %s%s, want %s", call, r.Code, r.Out, r.Err, want)
		}
	}
}

// checkTold checks that a result comes first and alone, that the page is told when it is another one, and that a
// snapshot is printed if it is asked for.
func checkTold(t *testing.T, w *World, site string) {
	t.Helper()
	for _, test := range []struct{ call, whole, has, lacks string }{
		{"navigate " + site + "/long", "", "- Page Title: Long\n", "line"},
		{"evaluate 1+1", "2\n", "", ""},
		{"navigate " + site + "/a", "", "- Page Title: Page /a\n", "Snapshot"},
		{"click text=Press", "- Clicked button \"Press\"\n", "", ""},
		{"--snapshot click text=Clicked", "", "button \"Clicked\" [active]", ""},
		{"--raw navigate " + site + "/b", "", "", ""},
		{"evaluate document.title", "", "\"Page /b\"\n- Page URL: " + site + "/b\n", ""},
		{"evaluate \"alert(1)\"", "", "### Modal state", "Snapshot"},
		{"--snapshot handle_dialog true", "", "heading \"Hello\"", ""},
	} {
		r := w.Run("sh", "-c", "bmcp call "+test.call)
		if r.Code != 0 || test.whole != "" && r.Out != test.whole || !strings.Contains(r.Out, test.has) ||
			test.lacks != "" && strings.Contains(r.Out, test.lacks) || len(r.Out) > 500 {
			t.Errorf("%s: exit %d, %d bytes: %.1000s%s", test.call, r.Code, len(r.Out), r.Out, r.Err)
		}
	}
}

// checkCut checks that a pipe gets no more than an agent takes, and the command that prints the rest.
func checkCut(t *testing.T, w *World, site string) {
	const bound = 9 << 10
	first := called(w, "--max-inline", "0", "--snapshot", "navigate", site+"/long")
	if len(first) > bound || !strings.Contains(first, "browser_snapshot shows the whole page") {
		t.Errorf("of a long page %d bytes are printed: %.1000s", len(first), first)
	}
	whole := called(w, "--max-inline", "0", "snapshot")
	if !strings.HasSuffix(whole, "```\n") || len(whole) < 5*bound {
		t.Fatalf("the whole result has %d bytes, and ends with %.100q", len(whole), whole[len(whole)-100:])
	}
	out := called(w, "snapshot")
	command := regexp.MustCompile(`characters, kept until \S+\. The rest, .*: (bmcp call result .*)\]\n$`).
		FindStringSubmatch(out)
	if len(out) > bound || command == nil {
		t.Fatalf("a pipe gets %d bytes: %.300q", len(out), out[max(0, len(out)-300):])
	}
	whole = called(w, "--max-inline", "0", "snapshot")
	part := w.Run("sh", "-c", command[1])
	rest := w.Run("sh", "-c", strings.Replace(command[1], "call ", "call --raw ", 1))
	if len(part.Out) > 3*bound || !strings.Contains(part.Out, "Next: offset") ||
		!strings.HasPrefix(part.Out, rest.Out[:min(500, len(rest.Out))]) {
		t.Errorf("%s prints %d bytes: %.300q", command[1], len(part.Out), part.Out)
	}
	shown := strings.TrimSuffix(out[:strings.Index(out, "[Cut: ")], "```\n")
	if shown+rest.Out != strings.TrimSuffix(whole, "\n") {
		t.Errorf("the parts have %d and %d bytes, the whole %d", len(shown), len(rest.Out), len(whole))
	}
	// Where the result is JSON, data is text too.
	r := w.Pipe("snapshot\nevaluate '\"a\".repeat(50000)'\npdf_save\ntake_screenshot\n", "bmcp", "call", "--batch")
	if r.Code != 0 || len(r.Out) > 4*bound || strings.Count(r.Out, "bmcp call result") != 2 {
		t.Errorf("a batch prints %d bytes: exit %d\n%s", len(r.Out), r.Code, r.Err)
	}
	blob := regexp.MustCompile(`bmcp call get_blob blob://\w+\.pdf`).FindString(r.Out)
	r = w.Run("sh", "-c", blob+" --raw")
	if !strings.HasPrefix(r.Out, "%PDF-") || !strings.HasSuffix(strings.TrimSpace(r.Out), "%%EOF") {
		t.Errorf("%s: exit %d, %d bytes\n%s", blob, r.Code, len(r.Out), r.Err)
	}
}
