//go:build linux

package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"btools/lib/cmdtest"
)

// Whatever a page does, each call is answered, and the next page is loaded and
// used as if nothing had been.
func TestBuiltinFaults(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	site := cmdtest.FaultySite(t)
	m := w.Builtin()
	for _, f := range []struct {
		name string
		do   func(a agent)
	}{
		{"the page leaves during an action", func(a agent) {
			a.open(site + "/leaves")
			a.call("browser_click", `{"target":"button"}`)
			a.wants(false, `button "Count"`, "browser_wait_for", `{"text":"Count"}`)
		}},
		{"the page leaves during a function", func(a agent) {
			a.open(site + "/opens")
			a.call("browser_evaluate", `{"function":"() => { location = '/'; return new Promise(() => {}) }"}`)
			a.wants(false, "", "browser_wait_for", `{"text":"Count"}`)
		}},
		{"the page closes during an action", func(a agent) {
			a.open(site + "/opens")
			a.wants(false, "", "browser_click", `{"target":"button"}`)
			a.wants(false, "Closes", "browser_tabs", `{"action":"select","index":1}`)
			a.wants(false, "", "browser_click", `{"target":"text=Close soon"}`)
			if x := a.call("browser_click", `{"target":"text=Wait"}`); !x.IsError {
				a.t.Errorf("a click in a page that has closed: %s", x.Text())
			}
			if s := a.wants(false, "Opens", "browser_tabs", `{"action":"list"}`).Text(); strings.Contains(s, "Closes") {
				a.t.Errorf("a tab that has closed is listed: %s", s)
			}
		}},
		{"the page crashes", func(a agent) {
			a.open(site + "/")
			killRenderers(w)
			cmdtest.Until(a.t, "the crash is told", func() bool {
				return strings.Contains(a.call("browser_evaluate", `{"function":"() => 1"}`).Text(), "crashed")
			})
			a.wants(true, "browser_navigate", "browser_snapshot", "{}")
			a.wants(true, "browser_navigate", "browser_click", `{"target":"button"}`)
		}},
		{"a dialog comes late", func(a agent) {
			a.open(site + "/dialogs")
			a.wants(false, "", "browser_click", `{"target":"text=Later"}`)
			cmdtest.Until(a.t, "the dialog is reported", func() bool {
				return strings.Contains(a.call("browser_snapshot", "{}").Text(), "Late?")
			})
			a.wants(false, "", "browser_handle_dialog", `{"accept":true,"promptText":"yes"}`)
			a.wants(false, `"yes"`, "browser_evaluate", `{"function":"() => window.said"}`)
		}},
		{"a dialog follows a dialog", func(a agent) {
			a.open(site + "/dialogs")
			a.wants(false, "one", "browser_click", `{"target":"text=Twice"}`)
			a.wants(true, "browser_handle_dialog", "browser_click", `{"target":"text=Later"}`)
			a.wants(false, "two", "browser_handle_dialog", `{"accept":true}`)
			a.wants(false, "", "browser_handle_dialog", `{"accept":true}`)
			a.wants(false, `"both"`, "browser_evaluate", `{"function":"() => window.said"}`)
			a.wants(true, "dialog", "browser_handle_dialog", `{"accept":true}`)
		}},
		{"the page does not want to be left", func(a agent) {
			a.open(site + "/unsaved")
			a.wants(false, "", "browser_type", `{"target":"input","text":"x","slowly":true}`)
			a.call("browser_navigate", `{"url":%q}`, site+"/")
			a.call("browser_handle_dialog", `{"accept":true}`)
		}},
		{"an unsaved page is closed", func(a agent) {
			a.open(site + "/unsaved")
			a.wants(false, "", "browser_type", `{"target":"input","text":"x","slowly":true}`)
			a.call("browser_close", "{}")
		}},
		{"200,000 nodes", func(a agent) {
			a.open(site + "/many")
			cmdtest.Until(a.t, "a snapshot has links", func() bool { // a busy machine may have no time for the first
				return strings.Contains(a.call("browser_snapshot", "{}").Text(), `link "x"`)
			})
			const count = `{"function":"() => document.querySelectorAll('p, a').length"}`
			a.wants(false, "200000", "browser_evaluate", count)
		}},
		{"endless redirects", func(a agent) {
			a.wants(true, "REDIRECTS", "browser_navigate", `{"url":%q}`, site+"/endless?0")
		}},
		{"a page that replaces itself for ever", func(a agent) {
			a.call("browser_navigate", `{"url":%q}`, site+"/turns")
			a.call("browser_snapshot", "{}")
			x := a.call("browser_navigate", `{"url":%q}`, site+"/") // it can replace even the next page
			if !x.IsError && strings.Contains(x.Text(), "Page URL: "+site+"/turns") {
				a.t.Errorf("a page that is not there was opened: %s", x.Text())
			}
			a.wants(false, "", "browser_close", "{}")
		}},
		{"a picture of 10,000 × 10,000", func(a agent) {
			a.open(site + "/canvas")
			a.call("browser_take_screenshot", `{"scale":"css","fullPage":true}`)
			if cmdtest.IsLong {
				a.call("browser_take_screenshot", `{"scale":"css","element":"canvas","target":"canvas"}`)
			}
		}},
		{"a covered button", func(a agent) {
			a.open(site + "/covered")
			a.wants(true, "veil", "browser_click", `{"target":"button"}`)
			a.wants(false, "", "browser_evaluate", `{"function":"() => veil.remove()"}`)
			a.wants(false, "", "browser_click", `{"target":"button"}`)
		}},
		{"targets that do not fit", func(a agent) {
			a.open(site + "/several")
			a.wants(true, "3 elements", "browser_click", `{"target":"button"}`)
			a.wants(true, "disabled", "browser_click", `{"target":"input"}`)
			a.wants(true, "visible", "browser_click", `{"target":"#hidden"}`)
			a.wants(true, "nothing", "browser_click", `{"target":"#nothing"}`)
			a.wants(true, "snapshot", "browser_click", `{"target":"e99999"}`)
			a.wants(true, "target", "browser_click", `{}`)
			a.wants(true, "text", "browser_type", `{"target":"input"}`)
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			if f.name == "200,000 nodes" {
				cmdtest.Long(t)
			}
			a := agent{t, m}
			f.do(a)
			a.usable(site)
			a.wants(false, "", "browser_tabs", `{"action":"new"}`)
			a.wants(false, "", "browser_tabs", `{"action":"close","index":0}`)
		})
	}
}

// A page whose scripts hang is stopped when the time of a call is over.
func TestBuiltinHangs(t *testing.T) {
	t.Parallel()
	site := cmdtest.FaultySite(t)
	for _, f := range []struct {
		name string
		do   func(a agent)
	}{
		{"a function that does not end", func(a agent) {
			a.open(site + "/")
			const endless = `{"function":"() => { while (true); }"}`
			a.wants(true, "a script of it runs without end", "browser_evaluate", endless)
			a.wants(false, "2", "browser_evaluate", `{"function":"() => 1 + 1"}`)
		}},
		{"a click that freezes the page", func(a agent) {
			a.open(site + "/loop")
			a.call("browser_click", `{"target":"button"}`)
			a.call("browser_snapshot", "{}")
		}},
		{"a page that freezes by itself", func(a agent) {
			a.call("browser_navigate", `{"url":%q}`, site+"/freezes")
		}},
		{"a service worker that hangs", func(a agent) {
			a.open(site + "/registers")
			cmdtest.Until(a.t, "the worker runs", func() bool {
				return strings.Contains(a.call("browser_evaluate", `{"function":"() => document.title"}`).Text(),
					"Registered")
			})
			a.wants(true, "was not loaded within", "browser_navigate", `{"url":%q}`, site+"/hang")
		}},
		{"a promise that is never kept", func(a agent) {
			a.open(site + "/")
			a.wants(true, "did not answer", "browser_evaluate", `{"function":"() => new Promise(() => {})"}`)
			a.wants(false, "### Result\n2", "browser_evaluate", `{"function":"() => 1 + 1"}`)
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(f.name, "a function") || strings.HasPrefix(f.name, "a click") ||
				strings.HasPrefix(f.name, "a page") {
				cmdtest.Long(t) // a core is busy until it is stopped: browse's test has a shorter time for it
			}
			a := agent{t, cmdtest.New(t).Builtin()}
			f.do(a)
			a.usable(site)
		})
	}
}

// usable loads a page and uses it.
func (a agent) usable(site string) {
	a.t.Helper()
	a.open(site + "/")
	a.wants(false, "", "browser_click", `{"target":"button"}`)
	a.wants(false, "### Result\n1", "browser_evaluate", `{"function":"() => window.n"}`)
}

// open loads a page.
func (a agent) open(url string) {
	a.t.Helper()
	a.wants(false, url, "browser_navigate", `{"url":%q}`, url)
}

// killRenderers kills the processes of the pages.
func killRenderers(w *cmdtest.World) {
	browsers := w.Browsers()
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		args, _ := os.ReadFile(p + "/cmdline")
		if !bytes.Contains(args, []byte("--type=renderer")) {
			continue
		}
		for up := filepath.Base(p); up != "" && up != "0" && up != "1"; {
			if slices.Contains(browsers, up) {
				pid, _ := strconv.Atoi(filepath.Base(p))
				syscall.Kill(pid, syscall.SIGKILL)
				break
			}
			stat, _ := os.ReadFile("/proc/" + up + "/stat")
			_, rest, _ := strings.Cut(string(stat), ") ")
			up = ""
			if f := strings.Fields(rest); len(f) > 1 {
				up = f[1]
			}
		}
	}
}
