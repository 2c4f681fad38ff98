//go:build linux

package main_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// hushed is a secret with what each spelling has to change.
const hushed = `Zq7/x+y "é<&'\4k`

// spellings are ways to write it.
func spellings() map[string]string {
	quoted, _ := json.Marshal(hushed)
	all := map[string]string{"itself": hushed, "form": url.QueryEscape(hushed), "path": url.PathEscape(hushed),
		"file":  strings.NewReplacer("/", "_", `"`, "_", "<", "_", `\`, "_").Replace(hushed),
		"lower": strings.ToLower(url.QueryEscape(hushed)), "JSON": strings.Trim(string(quoted), `"`),
		"HTML": html.EscapeString(hushed), "twice": url.QueryEscape(url.QueryEscape(hushed)),
		"encodeURIComponent": strings.ReplaceAll(url.QueryEscape(hushed), "+", "%20")}
	for shift := range 3 {
		for name, e := range map[string]*base64.Encoding{"std": base64.RawStdEncoding, "url": base64.RawURLEncoding} {
			text := e.EncodeToString([]byte("xyz"[:shift] + hushed))
			all[fmt.Sprintf("base64 %s %d", name, shift)] = text[(shift*8+5)/6 : (shift+len(hushed))*8/6]
		}
	}
	return all
}

// echoPage shows what is typed into its field in as many places as it can.
const echoPage = `<title>Login</title><meta charset=utf-8><form id=f onsubmit="return false">
<label>Password <input id=p></label><label>Hidden <input id=h type=password></label><button>Sign in</button></form>
<button onclick="alert(p.value)">Ask</button><a id=a download href="data:,x">Get</a><h1 id=o></h1>
<p id=i></p><div id=d></div>
<textarea id=t aria-label=Copy></textarea><button id=b title="">About</button><img id=g alt=x src="data:,">
<script>
p.oninput = () => {
  const s = p.value, bytes = String.fromCharCode(...new TextEncoder().encode(s))
  document.title = 'T ' + s
  const url = encodeURIComponent(s)
  history.replaceState(0, '', '?q=' + url + '&r=' + encodeURIComponent(url) + '#' + s)
  o.textContent = s; t.value = s; b.title = s; g.alt = s
  i.textContent = ['', 'x', 'xy'].map((x) => btoa(x + bytes)).join(' ') + ' ' + JSON.stringify(JSON.stringify(s)) +
    ' ' + new URLSearchParams({ s }) + ' ' + encodeURI(s) + ' ' + escape(s) + ' ' +
    btoa(s).replaceAll('+', '-').replaceAll('/', '_')
  d.innerHTML = '<svg><text></text></svg><input value="">'
  d.querySelector('text').textContent = s; d.querySelector('input').value = s
  d.setAttribute('data-s', s); d.append(document.createComment(s))
  b.textContent = 'x'.repeat(290) + s
  a.download = s + '.txt'; a.href = 'data:text/plain,' + encodeURIComponent(s)
  console.log(s, { s }); console.error(new Error('no ' + s)); console.warn(JSON.stringify({ s }))
  document.cookie = 'c=' + encodeURIComponent(s); localStorage.setItem('k' + s, s); sessionStorage.setItem('k', s)
  fetch('/echo?' + new URLSearchParams({ s }), { method: 'POST', body: JSON.stringify({ s }),
    headers: { Authorization: 'Basic ' + btoa('u:' + s), 'X-Secret': encodeURIComponent(s) } }).then((r) => r.text())
  fetch('/form', { method: 'POST', body: new URLSearchParams({ password: s }) })
  document.modelContext?.registerTool?.({ name: 'tell' + s.slice(0, 2), description: 'Tells ' + s,
    inputSchema: { type: 'object' }, execute: () => ({ content: [{ type: 'text', text: s }] }) })
}
</script>`

// What an agent types by its name comes to pages of the origins that its file names, and in no result, message or file,
// however a page spells it.
func TestMCPSecrets(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	var other string
	serve := func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			rw.Header().Set("X-Back", url.QueryEscape(r.URL.Query().Get("s")))
			json.NewEncoder(rw).Encode(map[string]any{"s": r.URL.Query().Get("s"), "h": r.Header})
		case "/frames":
			fmt.Fprintf(rw, `<iframe src="%s/"></iframe>`, other)
		default:
			fmt.Fprint(rw, echoPage)
		}
	}
	site := cmdtest.Serve(t, serve)
	other = cmdtest.Serve(t, serve)
	other = strings.Replace(other, "127.0.0.1", "localhost", 1)
	path := filepath.Join(w.Dir, "s.env")
	secrets := "# origins: " + site + "\nPASS=\"" + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(hushed) + "\"\n"
	if err := os.WriteFile(path, []byte(secrets), 0o640); err != nil {
		t.Fatal(err)
	}
	w.Run("bmcp", "--secrets", path).Exits(t, 78, "chmod 600 "+path)
	w.Run("bmcp", "call", "--secrets", path, "snapshot").Exits(t, 78, "chmod 600 "+path)
	os.Chmod(path, 0o600)
	w.Run("sh", "-c", "mkfifo -m 600 fifo; bmcp call --secrets fifo snapshot").Exits(t, 78, "give a regular file")
	said := "" // all that is said, and left in files
	hear := func(text string) string {
		said += text + "\n"
		return text
	}
	m := w.Builtin("--secrets", path, "--tools", "all", "--page-tools", "list", "--snapshot-files",
		"--max-inline", "1KiB")
	tool := func(name, format string, args ...any) string {
		t.Helper()
		return hear(m.Tool(name, fmt.Sprintf(format, args...)).Line)
	}
	fails := func(want, name, format string, args ...any) {
		t.Helper()
		got := tool(name, format, args...)
		if !strings.Contains(got, want) || !strings.Contains(got, `"isError":true`) {
			t.Errorf("%s %s: %s, want %s", name, fmt.Sprintf(format, args...), got, want)
		}
	}
	value := func(is string) {
		t.Helper()
		got := tool("browser_evaluate", `{"function":"() => [p.value.length, h.value.length].join()"}`)
		if !strings.Contains(got, is) {
			t.Errorf("the lengths are %s, not %s", got, is)
		}
	}
	tool("browser_navigate", `{"url":%q}`, site)
	fails("did you mean {{PASS}}?", "browser_type", `{"target":"#p","text":"{{PAS}}"}`)
	fails("{{PASS}} is replaced in the text of browser_type", "browser_evaluate", `{"function":"() => '{{PASS}}'"}`)
	fails("nothing was done", "browser_navigate", `{"url":"%s/?{{PASS}}"}`, site)
	fails("nothing was done", "browser_press_key", `{"key":"{{PASS}}"}`)
	value("0,0")
	n := len([]rune(hushed))
	tool("browser_fill_form", `{"fields":[{"target":"#p","name":"p","type":"textbox","value":"{{PASS}}"},`+
		`{"target":"#h","name":"h","type":"textbox","value":"{{PASS}}"}]}`)
	value(fmt.Sprintf("%d,%d", n, n))
	fails("a secret is typed as a whole", "browser_type", `{"target":"#h","text":"x{{PASS}}","slowly":true}`)
	tool("browser_type", `{"target":"#h","text":"x{{PASS}}","submit":true}`)
	value(fmt.Sprintf("%d,%d", n, n+1))
	tool("browser_type", `{"target":"#p","text":"{{PASS}} {{ not }} a secret","slowly":false}`)
	calls := [][2]string{{"browser_snapshot", `{}`}, {"browser_snapshot", `{"filename":"s.yml"}`},
		{"browser_find", `{"text":"{{PASS}}"}`}, {"browser_click", `{"target":"#a","element":"the {{PASS}} link"}`},
		{"browser_find", `{"regex":"Zq7.x"}`}, {"browser_get_dom", `{}`},
		{"browser_get_markdown", `{}`}, {"browser_console_messages", `{}`},
		{"browser_console_messages", `{"filename":"c.txt"}`}, {"browser_network_requests", `{}`},
		{"browser_network_requests", `{"filter":"echo"}`},
		{"browser_evaluate", `{"function":"() => ({a: p.value, [p.value]: [btoa('xx' + p.value)]})"}`},
		{"browser_evaluate", `{"function":"() => { throw new Error('it is ' + p.value) }"}`},
		{"browser_evaluate", `{"function":"() => p.value","filename":"e.json"}`},
		{"browser_cookie_list", `{}`}, {"browser_localstorage_list", `{}`},
		{"browser_sessionstorage_get", `{"key":"k"}`},
		{"browser_storage_state", `{"filename":"state.json"}`}, {"browser_tabs", `{"action":"list"}`},
		{"browser_page_tools", `{}`}, {"browser_page_tool", `{"name":"tellZq"}`}, {"browser_click", `{"target":"#a"}`},
		{"browser_downloads", `{}`}, {"browser_fetch", `{"url":"` + site + `/echo?s=` + url.QueryEscape(hushed) + `"}`},
		{"browser_generate_locator", `{"target":"#b"}`},
		{"browser_verify_value", `{"target":"#p","type":"textbox","element":"p","value":"no"}`},
		{"browser_click", `{"target":"text=Ask"}`},
		{"browser_snapshot", `{}`}, {"browser_handle_dialog", `{"accept":true}`}, {"browser_hover", `{"target":"#b"}`},
		{"browser_session_stats", `{}`}}
	for i := range 5 {
		calls = append(calls, [2]string{"browser_network_request", fmt.Sprintf(`{"index":%d}`, i+1)})
	}
	for _, c := range calls {
		tool(c[0], "%s", c[1])
	}
	hear(m.Call("tools/list", `{}`).Line)
	// A frame of an origin that the file does not name gets nothing, and neither does the page of one.
	tool("browser_navigate", `{"url":"%s/frames"}`, site)
	for _, slowly := range []bool{false, true} {
		fails("is not for "+other+": the file of --secrets allows it on "+site, "browser_type",
			`{"target":"#p","text":"a{{PASS}}","slowly":%v}`, slowly)
	}
	tool("browser_navigate", `{"url":%q}`, other)
	fails("is not for "+other, "browser_fill_form",
		`{"fields":[{"target":"#p","name":"p","type":"textbox","value":"{{PASS}}"}]}`)
	value("0,0")
	if !strings.Contains(said, "{{PASS}}") {
		t.Error("the name is nowhere")
	}
	m.End()
	m.Wait()
	hear(m.Errs.String())
	shell := func(args ...string) cmdtest.Result {
		t.Helper()
		r := w.Run("bmcp", append([]string{"call", "--session", "s"}, args...)...)
		hear(r.Out + r.Err)
		return r
	}
	shell("--secrets", path, "navigate", site).Exits(t, 0, "")
	shell("type", "#p", "{{PASS}}").Exits(t, 0, "")
	for _, c := range [][]string{{"snapshot"}, {"--raw", "evaluate", "p.value"},
		{"--json", "evaluate", "({a: p.value})"},
		{"--save", w.Dir + "/files/saved.md", "get_markdown"}, {"--save", w.Dir + "/files/saved.yml", "snapshot"},
		{"--max-inline", "1KiB", "get_dom"}, {"--snapshot", "hover", "#b"}} {
		shell(c...).Exits(t, 0, "")
	}
	hear(w.Pipe("snapshot\nevaluate p.value\n", "bmcp", "call", "--session", "s", "--batch").Out)
	hear(w.Run("bmcp", "call", "--secrets", path, "--once", "navigate "+site, "type #p {{PASS}}",
		"evaluate --raw p.value").Out)
	hear(w.Run("bmcp", "sessions").Out)
	for _, dir := range []string{w.Dir + "/files", w.Dir + "/run"} {
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				b, _ := os.ReadFile(path)
				hear(path + ": " + string(b))
			}
			return nil
		})
	}
	w.Run("bmcp", "end", "--all").Exits(t, 0, "")
	for how, text := range spellings() {
		if i := strings.Index(said, text); i >= 0 {
			t.Errorf("%s: …%s…", how, said[max(0, i-300):min(len(said), i+100)])
		}
	}
}
