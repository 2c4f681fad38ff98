package tools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"btools/lib/virtual/chrometest"
)

// fieldPages are pages with fields that cannot be used, or that use what is typed in their own way.
var fieldPages = map[string]string{
	"/modal": inertFields + `<script>d.showModal()</script>`,
	"/inert": inertFields + `<script>d.show(); for (const el of document.querySelectorAll('body > :not(dialog)'))
		el.inert = true</script>`,
	"/marked": `<main id=all inert><input id=n aria-label=Name value=old></main>`,
	"/nested": `<dialog id=a aria-label=First><button>One</button><dialog id=b aria-label=Second><button>Two</button>
		</dialog></dialog><script>a.showModal(); b.showModal()</script>`,
	"/shadowed": `<input id=n aria-label=Name value=old><div id=host><b>Slotted</b></div><script>
		const root = host.attachShadow({ mode: 'open' })
		root.innerHTML = '<dialog aria-label=Inner><slot></slot><input aria-label=Field></dialog>'
		root.querySelector('dialog').showModal()</script>`,
	"/around": `<iframe src="http://localhost/field"></iframe><iframe src=/field></iframe>
		<dialog id=d aria-label=Notice><button>OK</button></dialog><script>d.showModal()</script>`,
	"/field": `<button>Go</button><input id=n aria-label=Name value=old>`,
}

const inertFields = `<label>Name <input id=n value=old></label><button id=b>Save</button><p draggable=true>Text
	<select id=s aria-label=Choice><option>a<option>b</select><label><input type=checkbox id=c>Box</label>
	<input type=date id=day aria-label=Day value="2026-01-01">
	<dialog id=d style="position:fixed;top:400px"><p>Cookie notice<button>OK</button></dialog>`

// fieldCall is a call on such a page.
type fieldCall struct {
	page, tool, args string
	isError          bool
	want             string // in the result
	after            string // what the fields have then, if something
}

// fieldState returns what is in the fields of a page, of its shadow roots and of its frames.
const fieldState = `() => {
	const all = (root) => [...root.querySelectorAll('*')].flatMap((el) => [
		...el.isContentEditable && !el.parentElement.isContentEditable ? [el.innerText] :
			'value' in el && el.type !== 'checkbox' && !['button', 'option'].includes(el.localName) ? [el.value] :
			el.type === 'checkbox' ? [el.checked] : [],
		...el.shadowRoot ? all(el.shadowRoot) : [], ...el.contentDocument ? all(el.contentDocument) : []])
	return all(document).join('|')
}`

// fieldSite serves the pages.
func fieldSite(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, port, _ := strings.Cut(r.Host, ":")
		fmt.Fprintf(w, "<!doctype html><title>%s</title>%s", r.URL.Path,
			strings.ReplaceAll(fieldPages[r.URL.Path], "//localhost/", "//localhost:"+port+"/"))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// run makes a call on its page.
func (c fieldCall) run(h *host, site string) {
	h.t.Helper()
	h.wants(false, c.page, "browser_navigate", `{"url":`+quoted(site+c.page)+`}`)
	began := time.Now()
	said := h.wants(c.isError, c.want, c.tool, c.args)
	if took := time.Since(began); c.isError && took > actionTime {
		h.t.Errorf("%s: %s %s took %v: %.200s", c.page, c.tool, c.args, took, said)
	}
	if c.after != "" {
		h.wants(false, quoted(c.after), "browser_evaluate", `{"function":`+quoted(fieldState)+`}`)
	}
}

// actionTime is how long an error may take that a tool gives at once: less than it waits for a page to change.
const actionTime = 4 * time.Second

// inertCalls are of all tools that act on an element.
func inertCalls() (all []fieldCall) {
	for page, open := range map[string]string{"/modal": ` is inert: the dialog "Cookie notice`,
		"/inert": ` is inert: the dialog "Cookie notice`} {
		const after = "old|a|false|2026-01-01"
		for _, c := range [][3]string{
			{"browser_type", `{"target":"#n","text":"x","submit":true}`, `textbox "Name"`},
			{"browser_type", `{"target":"#n","text":"x","slowly":true}`, `textbox "Name"`},
			{"browser_click", `{"target":"#b"}`, `button "Save"`},
			{"browser_hover", `{"target":"#b"}`, `button "Save"`},
			{"browser_select_option", `{"target":"#s","values":["b"]}`, `combobox "Choice"`},
			{"browser_fill_form", `{"fields":[{"target":"#c","name":"Box","type":"checkbox","value":"true"}]}`,
				`checkbox "Box"`},
			{"browser_fill_form", `{"fields":[{"target":"#day","name":"Day","type":"textbox","value":"2026-02-03"}]}`,
				`textbox "Day"`},
			{"browser_drag", `{"startTarget":"p >> nth=0","endTarget":"#s"}`, `paragraph`},
			{"browser_drop", `{"target":"#s","data":{"text/plain":"x"}}`, `combobox "Choice"`},
		} {
			all = append(all, fieldCall{page, c[0], c[1], true, c[2] + open, after})
		}
	}
	return append(all,
		fieldCall{"/marked", "browser_click", `{"target":"#n"}`, true, `"Name" is inert: <main#all> has that`, "old"},
		fieldCall{"/marked", "browser_snapshot", `{"target":"body"}`, false, `textbox "Name" [ref=`, ""},
		fieldCall{"/nested", "browser_click", `{"target":"text=Two"}`, false, `Clicked button "Two"`, ""},
		fieldCall{"/nested", "browser_click", `{"target":"text=One"}`, true, `the dialog "Second" is open`, ""},
		fieldCall{"/shadowed", "browser_type", `{"target":"#n","text":"x"}`, true,
			`the dialog "Inner" is open`, "old|"},
		fieldCall{"/shadowed", "browser_click", `{"target":"text=Slotted"}`, false, "Clicked", ""},
		fieldCall{"/shadowed", "browser_type", `{"target":"label=Field","text":"x"}`, false, `"Field"`, "old|x"},
		fieldCall{"/around", "browser_type", `{"target":"label=Name","text":"x"}`, true,
			`its iframe is inert: the dialog "Notice" is open`, ""},
		fieldCall{"/around", "browser_click", `{"target":"text=Go"}`, true, `its iframe is inert`, ""})
}

// A page behind a dialog is left out of snapshots in the same way, however it is made inert.
func checkInertSnapshots(h *host, site string) {
	h.t.Helper()
	var all []string
	for _, page := range []string{"/modal", "/inert"} {
		h.wants(false, page, "browser_navigate", `{"url":`+quoted(site+page)+`}`)
		said := h.wants(false, `- button "OK"`, "browser_snapshot", `{}`)
		_, snapshot, _ := strings.Cut(said, "```yaml")
		for _, gone := range []string{"Save", "Name", "Choice", "Box", "Day"} {
			if strings.Contains(snapshot, gone) {
				h.t.Errorf("%s: %s is in the snapshot:\n%s", page, gone, snapshot)
			}
		}
		_, note, _ := strings.Cut(snapshot, "# the rest is left out")
		snapshot, _, _ = strings.Cut(snapshot, "# the rest is left out")
		if !strings.Contains(note, "browser_snapshot with the target body shows it") {
			h.t.Errorf("%s: the snapshot does not say what is left out: %q", page, note)
		}
		all = append(all, regexp.MustCompile(`\[ref=e\d+\]`).ReplaceAllString(strings.TrimSpace(snapshot), ""))
	}
	if all[0] != all[1] {
		h.t.Errorf("the snapshot of a modal dialog is\n%s\nand with the attribute\n%s", all[0], all[1])
	}
}

func TestFields(t *testing.T) {
	t.Parallel()
	site := fieldSite(t)
	endpoint, _ := chrometest.StartShell(t)
	checkFields(serve(t, endpoint, 0), site, nil)
}

// checkFields makes the calls of the tools that a browser has; nil: of all.
func checkFields(h *host, site string, has map[string]runner) {
	for _, c := range inertCalls() {
		if has == nil || has[c.tool] != nil {
			c.run(h, site)
		}
	}
	checkInertSnapshots(h, site)
}
