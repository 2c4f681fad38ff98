package tools

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
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
	"/moves": secretFields + `<script>p.onfocus = () => o.focus()</script>`,
	"/traps": secretFields + `<script>addEventListener('focusin', (e) => {
		e.target === o || o.focus() }, true)</script>`,
	"/soon": secretFields + `<script>p.onfocus = () => { Promise.resolve().then(() => o.focus()) }</script>`,
	"/gone": secretFields + `<script>p.onfocus = () => p.remove()</script>`,
	"/replaces": secretFields + `<script>p.onfocus = () => {
		const other = p.cloneNode(); p.replaceWith(other); other.focus() }</script>`,
	"/bars":   `<main>` + secretFields + `</main><script>p.onfocus = () => { p.parentElement.inert = true }</script>`,
	"/leaves": secretFields + `<script>p.oninput = () => { o.focus() }</script>`,
	"/enters": secretFields + `<script>p.onkeydown = (e) => { if (e.key === 'Enter') o.focus() }</script>`,
	"/swaps": `<div id=host></div><script>const root = host.attachShadow({ mode: 'open' })
		root.innerHTML = '<input aria-label=Secret><input aria-label=Other>'
		root.firstChild.onfocus = () => root.lastChild.focus()</script>`,
	"/closed": `<x-field role=textbox aria-label=Closed tabindex=-1></x-field><script>
		customElements.define('x-field', class extends HTMLElement {
			constructor() {
				super()
				const root = this.attachShadow({ mode: 'closed', delegatesFocus: true })
				root.innerHTML = '<input>'
				Object.defineProperty(this, 'value', { get: () => root.firstChild.value })
			}
		})</script>`,
	"/up":      `<input id=o aria-label=Other><iframe src="/inner?up"></iframe>`,
	"/away":    `<input id=o aria-label=Other autofocus><iframe src="http://localhost/inner?away"></iframe>`,
	"/outside": `<input aria-label=Other autofocus><iframe src="http://localhost/field"></iframe>`,
	"/inner": `<input id=p aria-label=Secret><script>p.onfocus = () => {
		if (location.search === '?up') parent.o.focus()
		if (location.search === '?away') top.focus() }</script>`,
	"/kinds": `<input id=up aria-label=Upper oninput="this.value = this.value.toUpperCase()">
		<input id=five aria-label=Five maxlength=5><input id=empties aria-label=Empties oninput="this.value = ''">
		<input id=digits aria-label=Digits onbeforeinput="/^[0-9]*$/.test(event.data ?? '') || event.preventDefault()">
		<input id=later aria-label=Later oninput="setTimeout(() => { this.value = '12/34' })">
		<input id=word type=password aria-label=Word maxlength=3>
		<div id=fake role=textbox tabindex=0 aria-label=Fake>drawn</div>
		<div id=rich contenteditable aria-label=Rich role=textbox>one<p id=part>two</p></div>
		<textarea id=area aria-label=Area>one</textarea><input id=mail type=email aria-label=Mail value="a@">
		<input id=count type=number aria-label=Count value=1>
		<label id=label>Named <input id=named></label>`,
	"/code": `<input maxlength=1 aria-label=A><input maxlength=1 aria-label=B><input maxlength=1 aria-label=C><script>
		for (const el of document.querySelectorAll('input')) {
			el.oninput = () => el.nextElementSibling?.focus()
		}</script>`,
	"/keys": `<p id=said tabindex=0>keys</p><input><script>addEventListener('keydown', (e) => {
			said.append(' ' + e.key + (e.ctrlKey ? '^' : ''))
			if (e.key === 'ö') alert('stop') })
		addEventListener('keyup', (e) => { said.append(' -' + e.key) })</script>`,
	"/field": `<button>Go</button><input id=n aria-label=Name value=old>`,
}

// secretFields are a field for a secret, and another one with a form of its own, whose Enter shows in the title.
const secretFields = `<form onsubmit="document.title = 'sent'; return false">
	<input id=p type=password aria-label=Secret></form>
	<form onsubmit="document.title = 'the other was sent'; return false"><input id=o aria-label=Other></form>`

const inertFields = `<label>Name <input id=n value=old></label><button id=b>Save</button><p draggable=true>Text
	<select id=s aria-label=Choice><option>a<option>b</select><label><input type=checkbox id=c>Box</label>
	<input type=date id=day aria-label=Day value="2026-01-01">
	<dialog id=d style="position:fixed;top:400px"><p>Cookie notice<button>OK</button></dialog>`

// fieldCall is a call on such a page.
type fieldCall struct {
	page, tool, args string
	isError          bool
	want             string // in the result
	after            string // what the fields have then, if something; after an ellipsis, the last of them
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
	if after, isEnd := strings.CutPrefix(c.after, "…"); isEnd {
		h.wants(false, after+"\"\n", "browser_evaluate", `{"function":`+quoted(fieldState)+`}`)
	} else if c.after != "" {
		h.wants(false, "\n"+quoted(c.after)+"\n", "browser_evaluate", `{"function":`+quoted(fieldState)+`}`)
	}
}

// actionTime is how long an error may take that a tool gives at once: less than it waits for a page to change.
const actionTime = 4 * time.Second

// inertCalls are of all tools that act on an element.
func inertCalls() (all []fieldCall) {
	for _, page := range []string{"/modal", "/inert"} {
		const open, after = ` is inert: the dialog "Cookie notice`, "old|a|false|2026-01-01"
		for n, c := range [][3]string{
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
			if page == "/modal" || n%3 == 0 {
				all = append(all, fieldCall{page, c[0], c[1], true, c[2] + open, after})
			}
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

// typingCalls are of the tools that send keys.
func typingCalls() (all []fieldCall) {
	for _, p := range [][3]string{
		{"/moves", `textbox "Secret" does not keep the focus, which is at textbox "Other": nothing was typed`, "|"},
		{"/traps", `textbox "Secret" does not keep the focus, which is at textbox "Other": nothing was typed`, "|"},
		{"/soon", `textbox "Secret" does not keep the focus, which is at textbox "Other"`, "…|"},
		{"/gone", `textbox "Secret" is removed as it gets the focus`, ""},
		{"/replaces", `is removed as it gets the focus, which is at textbox "Secret": nothing was typed`, "|"},
		{"/bars", `textbox "Secret" is made inert as it gets the focus`, "|"},
	} {
		for n, c := range [][2]string{
			{"browser_type", `{"target":"#p","text":"pass","submit":true}`},
			{"browser_type", `{"target":"#p","text":"pass","slowly":true,"submit":true}`},
			{"browser_type", `{"target":"#p","text":"pass"}`},
			{"browser_fill_form", `{"fields":[{"target":"#p","name":"P","type":"textbox","value":"pass"}]}`},
		} {
			if p[0] == "/moves" || n < 2 {
				all = append(all, fieldCall{p[0], c[0], c[1], true, p[1], p[2]})
			}
		}
	}
	typed := func(page, target, text string, slowly bool, want, after string) {
		all = append(all, fieldCall{page, "browser_type", fmt.Sprintf(`{"target":%q,"text":%q,"slowly":%v}`, target,
			text, slowly), strings.HasPrefix(want, "!"), strings.TrimPrefix(want, "!"), after})
	}
	entered := func(page, target, want, after string) {
		for _, slowly := range []bool{false, true} {
			all = append(all, fieldCall{page, "browser_type", fmt.Sprintf(
				`{"target":%q,"text":"pass","slowly":%v,"submit":true}`, target, slowly),
				strings.HasPrefix(want, "!"), strings.TrimPrefix(want, "!"), after})
		}
	}
	entered("/field", "#n", `Pressed Enter`, "")
	entered("/enters", "#p", `!at textbox "Other": the text was typed, but Enter was not pressed`, "pass|")
	typed("/leaves", "#p", "pass", false, "Typed into", "pass|")
	typed("/leaves", "#p", "pass", true, `!textbox "Secret" does not keep the focus, which is at textbox "Other"`, "p|")
	typed("/swaps", "label=Secret", "pass", false, `!which is at textbox "Other": nothing was typed`, "|")
	typed("/swaps", "label=Secret", "pass", true, `!which is at textbox "Other": nothing was typed`, "|")
	typed("/swaps", "label=Other", "pass", true, `Typed into textbox "Other"`+"\n", "|pass")
	typed("/closed", "x-field", "pass", false, `Typed into textbox "Closed"`+"\n", "pass")
	typed("/up", "label=Secret", "pass", false, `!which is at textbox "Other": nothing was typed`, "|")
	typed("/up", "label=Secret", "pass", true, `!which is at textbox "Other": nothing was typed`, "|")
	typed("/outside", "label=Name", "pass", false, `Typed into textbox "Name"`+"\n", "")
	typed("/outside", "label=Name", "pass", true, `Typed into textbox "Name"`+"\n", "")
	typed("/inner", "#p", "pass", true, `Typed into textbox "Secret"`+"\n", "pass")
	typed("/kinds", "#up", "abc", false, `"Upper", which has "ABC" now`, "")
	typed("/kinds", "#five", "abcdefg", false, `"Five", which has "abcde" now: it takes 5 characters`, "")
	typed("/kinds", "#five", "abcdefg", true, `"Five", which has "abcde" now: it takes 5 characters`, "")
	typed("/kinds", "#empties", "abc", false, `"Empties", which has no text now`, "")
	typed("/kinds", "#digits", "abc", true, `"Digits", which has no text now`, "")
	typed("/kinds", "#later", "1234", false, `"Later", which has "12/34" now`, "")
	typed("/kinds", "#word", "abcdefg", false, `"Word", which has 3 characters of 7 now: it takes 3 characters`, "")
	typed("/kinds", "#fake", "abc", false, `!textbox "Fake" has not taken the text`, "")
	typed("/kinds", "#rich", "a\nb", false, `Typed into textbox "Rich"`+"\n", "")
	typed("/kinds", "#rich", "ab", true, `Typed into textbox "Rich"`+"\n", "||||||one\n\ntwoab|one|a@|1|")
	typed("/kinds", "#part", "ab", true, `Typed into paragraph`+"\n", "||||||one\n\ntwoab|one|a@|1|")
	typed("/kinds", "#area", "a\r\nb\rc", true, `Typed into textbox "Area"`+"\n",
		"||||||one\n\ntwo|onea\nb\nc|a@|1|")
	typed("/kinds", "#area", "a\r\nb\rc", false, `Typed into textbox "Area"`+"\n", "||||||one\n\ntwo|a\nb\nc|a@|1|")
	typed("/kinds", "#mail", "b", true, `Typed into textbox "Mail"`+"\n", "||||||one\n\ntwo|one|a@b|1|")
	typed("/kinds", "#count", "2", true, `Typed into spinbutton "Count"`+"\n", "||||||one\n\ntwo|one|a@|12|")
	typed("/kinds", "#label", "é😀", true, `Typed into`, "||||||one\n\ntwo|one|a@|1|é😀")
	typed("/code", "label=A", "123", true,
		`and into those after it, as the page moved the focus from one that was full`, "1|2|3")
	typed("/code", "label=A", "12345", true, `: they have "123" now`, "1|2|3")
	return all
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

// Keys of other layouts are keys, type nothing with Control, and leave it released.
func checkKeys(h *host, site string) {
	h.t.Helper()
	h.wants(false, "/keys", "browser_navigate", `{"url":`+quoted(site+"/keys")+`}`)
	h.wants(false, "Clicked", "browser_click", `{"target":"input"}`)
	for _, key := range []string{"é", "Control+é", "Shift+ж", "Control+ö", "b"} {
		h.wants(false, "Pressed "+key, "browser_press_key", `{"key":`+quoted(key)+`}`)
		if key == "Control+ö" {
			h.wants(false, "", "browser_handle_dialog", `{"accept":true}`)
		}
	}
	h.wants(false, `"keys é -é Control^ é^ -é -Control Shift Ж -Ж -Shift Control^ ö^ -ö -Control b -b | éЖb"`,
		"browser_evaluate", `{"function":"said.innerText + ' | ' + document.querySelector('input').value"}`)
}

func TestFields(t *testing.T) {
	t.Parallel()
	site := fieldSite(t)
	endpoint, _ := chrometest.StartShell(t)
	h := serve(t, endpoint, 0)
	for _, c := range append(inertCalls(), typingCalls()...) {
		c.run(h, site)
	}
	checkInertSnapshots(h, site)
	checkKeys(h, site)
	h.wants(false, "browser_navigate with its address loads it again", "browser_press_key", `{"key":"F5"}`)
	// In Firefox, a frame of another site cannot move the focus out of it.
	fieldCall{"/away", "browser_type", `{"target":"label=Secret","text":"pass","submit":true}`, true,
		`textbox "Secret" does not keep the focus, which is outside of its frame: nothing was typed`, ""}.run(h, site)
}

// checkFieldsOfFirefox makes the calls in which Firefox does something of its own, or all with LONG=1.
func checkFieldsOfFirefox(h *host, site string) {
	own := map[string]bool{"/moves": true, "/up": true, "/kinds": true, "/modal": true, "/around": true}
	for _, c := range append(inertCalls(), typingCalls()...) {
		isTyped := c.tool == "browser_type" && strings.Contains(c.args, `"slowly":true`)
		if slices.Contains(onFirefox(), c.tool) && (isLong || own[c.page] && (isTyped || c.page == "/around")) {
			c.run(h, site)
		}
	}
	checkInertSnapshots(h, site)
	checkKeys(h, site)
}
