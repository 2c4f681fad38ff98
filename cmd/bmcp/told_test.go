//go:build linux

package main_test

import (
	"bytes"
	"fmt"
	"image"
	_ "image/jpeg"
	_ "image/png"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// toldSite serves pages of which much can be said: /status/N answers with the status N.
func toldSite(t *testing.T) string {
	t.Helper()
	return cmdtest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		switch _, err := fmt.Sscanf(r.URL.Path, "/status/%d", &status); {
		case err == nil:
			w.WriteHeader(status)
			if status != http.StatusNoContent && status != http.StatusResetContent {
				fmt.Fprintf(w, "<title>With %d</title>", status)
			}
		case r.URL.Path == "/redirected":
			http.Redirect(w, r, "/", http.StatusFound)
		case r.URL.Path == "/asks":
			w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
			if name, password, _ := r.BasicAuth(); name+password != "mesecret" {
				w.WriteHeader(http.StatusUnauthorized)
			}
		case r.URL.Path == "/file":
			w.Header().Set("Content-Disposition", "attachment; filename=report.txt")
			io.WriteString(w, "the report")
		case r.URL.Path == "/editors":
			io.WriteString(w, `<!doctype html><iframe srcdoc="<body contenteditable aria-label='Rich text'><p>hello">
				</iframe><iframe srcdoc="<body title='Old editor'><script>document.designMode = 'on'</script>"></iframe>
				<div aria-label="Drop zone" style="width:99px;height:99px" ondragover="event.preventDefault()"
					ondrop="event.preventDefault(); document.title = event.dataTransfer.getData('text/plain')"></div>`)
		case r.URL.Path == "/tall":
			io.WriteString(w, "<!doctype html><body style='margin:0;height:4000px'>")
		case r.URL.Path == "/opens":
			io.WriteString(w, `<!doctype html><a target=_blank href=/status/200>Tab</a> <a href=/file>File</a>
				<button onclick="showOpenFilePicker().catch((e) => { document.title = e.name })">Picker</button>`)
		default:
			io.WriteString(w, "<!doctype html><title>Fine</title>")
		}
	})
}

// An agent is told what a person would see, and what only the browser knows.
func TestBuiltinTells(t *testing.T) {
	t.Parallel()
	site := toldSite(t)
	w := cmdtest.New(t)
	a := agent{t, w.Builtin()}
	t.Run("the HTTP status of a page, as long as it is open", func(t *testing.T) {
		a := agent{t, a.m}
		a.wants(false, "- HTTP status: 404 Not Found\n", "browser_navigate", `{"url":"%s/status/404"}`, site)
		a.wants(false, "- HTTP status: 404 Not Found\n", "browser_snapshot", `{}`)
		if x := a.wants(false, "Fine", "browser_navigate", `{"url":"%s/redirected"}`, site); strings.Contains(x.Text(),
			"HTTP status") {
			t.Errorf("of a page that has come: %s", x.Text())
		}
		a.wants(false, "- HTTP status: 404 Not Found\n", "browser_navigate_back", `{}`)
	})
	t.Run("an address that has no page", func(t *testing.T) {
		a := agent{t, a.m}
		a.open(site + "/")
		for _, status := range []int{http.StatusNoContent, http.StatusResetContent} {
			x := a.wants(true, fmt.Sprintf("has answered %d %s", status, http.StatusText(status)), "browser_navigate",
				`{"url":"%s/status/%d"}`, site, status)
			if !strings.Contains(x.Text(), "- Page URL: "+site+"/\n") {
				t.Errorf("the page is %s", x.Text())
			}
		}
		a.wants(false, "- "+site+"/file is a file, which is downloaded", "browser_navigate", `{"url":"%s/file"}`, site)
		a.wants(false, "http://NAME:PASSWORD@host/", "browser_navigate", `{"url":"%s/asks"}`, site)
		asked := strings.Replace(site, "//", "//me:secret@", 1) + "/asks"
		x := a.wants(false, "Opened", "browser_navigate", `{"url":%q}`, asked)
		if strings.Contains(x.Text(), "secret") {
			t.Errorf("a password is repeated: %s", x.Text())
		}
	})
	t.Run("what can be edited, and what has only a name", func(t *testing.T) {
		a := agent{t, a.m}
		a.open(site + "/editors")
		seen := a.call("browser_snapshot", `{}`).Text()
		refOf := func(what string) string {
			m := regexp.MustCompile(`- ` + what + ` \[ref=(\w+)\]`).FindStringSubmatch(seen)
			if m == nil {
				t.Fatalf("there is no %s with a ref:\n%s", what, seen)
			}
			return m[1]
		}
		a.wants(false, `Typed into textbox "Rich text"`, "browser_type", `{"target":%q,"text":"new text"}`,
			refOf(`textbox "Rich text"`))
		a.wants(false, `Typed into textbox "Old editor"`, "browser_type", `{"target":%q,"text":"old text"}`,
			refOf(`textbox "Old editor"`))
		a.wants(false, "new text|old text", "browser_evaluate",
			`{"function":"[0, 1].map((i) => frames[i].document.body.innerText.trim()).join('|')"}`)
		a.wants(true, "browser_snapshot shows those in it", "browser_type", `{"target":"iframe >> nth=0","text":"x"}`)
		a.wants(false, "Page Title: dropped", "browser_drop", `{"target":%q,"data":{"text/plain":"dropped"}}`,
			refOf(`generic "Drop zone"`))
	})
	t.Run("a picture that a model can take, and one that only a file has", func(t *testing.T) {
		a := agent{t, a.m}
		a.open(site + "/tall")
		for _, more := range []string{"", `,"scale":"device"`} {
			x := a.wants(false, "scaled down from", "browser_take_screenshot", `{"fullPage":true%s}`, more)
			if w, h := pixels(t, x.Content[1].Data); max(w, h) > 1568 || w*h > 1_150_000 || h < 1500 {
				t.Errorf("it has %d × %d pixels", w, h)
			}
		}
		if w, h := pixels(t, a.call("browser_take_screenshot", `{}`).Content[1].Data); w != 1280 || h != 720 {
			t.Errorf("that of the viewport has %d × %d pixels", w, h)
		}
		x := a.call("browser_take_screenshot", `{"fullPage":true,"filename":"some/pictures/tall.png"}`)
		if len(x.Content) != 1 {
			t.Errorf("one that is saved is sent too: %s", x.Text())
		}
		saved, _ := os.ReadFile(w.Dir + "/files/some/pictures/tall.png")
		if w, h := pixels(t, saved); w < 1200 || h != 4000 {
			t.Errorf("the saved one has %d × %d pixels", w, h)
		}
	})
	t.Run("only files that an agent may read are shown, and why", func(t *testing.T) {
		a := agent{t, a.m}
		cmdtest.WriteFile(t, w.Dir+"/secret.txt", "a secret")
		cmdtest.WriteFile(t, w.Dir+"/files/mine.txt", "my notes")
		cmdtest.WriteFile(t, w.Dir+"/files/in.html", `<title>Mine</title><iframe src="../secret.txt"></iframe>
			<iframe src="mine.txt"></iframe><a href="../secret.txt">out</a>
			<a target=_blank href="../secret.txt">out in a tab</a>`)
		for _, address := range []string{"file://", "view-source:file://", "file://localhost"} {
			a.wants(true, "may not be used: files are to be in", "browser_navigate", `{"url":"%s%s/secret.txt"}`,
				address, w.Dir)
		}
		a.wants(true, "may not be used", "browser_tabs", `{"action":"new","url":"file://%s/files/../secret.txt"}`,
			w.Dir)
		a.wants(false, "", "browser_close", `{}`)
		a.wants(true, "no such file or directory", "browser_snapshot", `{"filename":"../made/x"}`)
		if _, err := os.Stat(w.Dir + "/made"); err == nil {
			t.Error("a directory was made that the agent may not use")
		}
		never := func(x cmdtest.ToolResult) {
			t.Helper()
			if strings.Contains(x.Text(), "a secret") {
				t.Errorf("it is shown: %s", x.Text())
			}
		}
		never(a.wants(false, "my notes", "browser_navigate", `{"url":"file://%s/files/in.html"}`, w.Dir))
		never(a.call("browser_click", `{"target":"text='out'"}`))
		never(a.call("browser_snapshot", `{}`))
		a.wants(false, "my notes", "browser_navigate", `{"url":"file://%s/files/in.html"}`, w.Dir)
		never(a.call("browser_click", `{"target":"text=out in a tab"}`))
		never(a.call("browser_tabs", `{"action":"select","index":1}`))
		never(a.call("browser_snapshot", `{}`))
		a.wants(false, "", "browser_close", `{}`)
		a.wants(true, "### Error\ncannot open chrome: addresses: only web pages are allowed, for these control the "+
			"whole browser", "browser_navigate", `{"url":"chrome://version"}`)
	})
	t.Run("what a click has caused", func(t *testing.T) {
		a := agent{t, a.m}
		a.open(site + "/opens")
		a.wants(false, "- Began to download report.txt\n", "browser_click", `{"target":"text=File"}`)
		a.wants(false, "[File picker of a script]: nothing can handle it", "browser_click", `{"target":"text=Picker"}`)
		if x := a.wants(false, "AbortError", "browser_snapshot", `{}`); strings.Contains(x.Text(), "File picker") {
			t.Errorf("it is told again: %s", x.Text())
		}
		a.wants(false, "- Opened tab 1: browser_tabs selects it\n", "browser_click", `{"target":"text=Tab"}`)
		cmdtest.Until(t, "the tab is loaded", func() bool {
			return strings.Contains(a.call("browser_tabs", `{"action":"list"}`).Text(), "1: [With 200]")
		})
		if x := a.wants(false, "1: [With 200]", "browser_click", `{"target":"text=File"}`); strings.Contains(x.Text(),
			"Opened tab") {
			t.Errorf("another click has opened a tab: %s", x.Text())
		}
	})
}

// pixels are the width and the height of a picture.
func pixels(t *testing.T, picture []byte) (w, h int) {
	t.Helper()
	c, _, err := image.DecodeConfig(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	return c.Width, c.Height
}
