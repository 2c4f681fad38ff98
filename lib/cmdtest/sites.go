//go:build linux

package cmdtest

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"btools/lib/jsonrpc"
)

// faulty are pages that do what pages should not do.
var faulty = map[string]string{
	"/": `<title>Fine</title><button onclick="window.n = (window.n || 0) + 1">Count</button>`,

	"/leaves": `<title>Leaves</title><button disabled>Stay</button>
		<script>setTimeout(() => location = '/', 500)</script>`,
	"/opens": `<title>Opens</title><button onclick="window.open('/closes')">Open</button>`,
	"/closes": `<title>Closes</title><button disabled>Wait</button>
		<button onclick="setTimeout(() => window.close(), 500)">Close soon</button>`,

	"/dialogs": `<title>Dialogs</title>
		<button onclick="setTimeout(() => { window.said = prompt('Late?', 'no') }, 300)">Later</button>
		<button onclick="alert('one'); alert('two'); window.said = 'both'">Twice</button>`,
	"/unsaved": `<title>Unsaved</title><input aria-label=Text>
		<script>onbeforeunload = e => e.preventDefault()</script>`,

	"/many": `<title>Many</title><script>
		for (let i = 0; i < 1000; i++) document.write('<div>' + ('<p><a href="/' + i + '">x</a></p>').repeat(100) +
		'</div>')</script>`,
	"/turns": `<title>Turns</title><script>
		setTimeout(() => location.replace('/turns?' + Math.random()), 30)</script>`,
	"/canvas": `<title>Canvas</title><canvas width=10000 height=10000></canvas><script>
		const c = document.querySelector('canvas').getContext('2d');
		c.fillStyle = '#00f'; c.fillRect(0, 0, 10000, 10000)</script>`,
	"/loop":    `<title>Loop</title><button onclick="while (true);">Freeze</button>`,
	"/freezes": `<title>Freezes</title><p>Before<script>setTimeout(() => { while (true); })</script>`,
	"/registers": `<title>Registers</title><script>navigator.serviceWorker.register('/worker.js').then(() =>
		navigator.serviceWorker.ready).then(() => document.title = 'Registered')</script>`,
	"/covered": `<title>Covered</title><button>Save</button>
		<div id=veil style="position:fixed;inset:0">Please wait</div>`,
	"/several": `<title>Several</title><button>One</button><button>Two</button><input disabled aria-label=Off>
		<button style="visibility:hidden" id=hidden>Hidden</button>`,
}

// Serve serves a site up to the test's end, and returns its address.
func Serve(t *testing.T, site http.HandlerFunc) (url string) {
	t.Helper()
	s := httptest.NewServer(site)
	t.Cleanup(func() {
		s.Listener.Close()
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// FaultySite serves them.
func FaultySite(t *testing.T) string {
	return Serve(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		page, ok := faulty[r.URL.Path]
		switch {
		case ok:
			io.WriteString(rw, "<!doctype html>"+page)
		case r.URL.Path == "/endless":
			n, _ := strconv.Atoi(r.URL.RawQuery)
			http.Redirect(rw, r, fmt.Sprintf("/endless?%d", n+1), http.StatusFound)
		case r.URL.Path == "/worker.js":
			rw.Header().Set("Content-Type", "text/javascript")
			io.WriteString(rw, "oninstall = () => skipWaiting();"+
				"onactivate = e => e.waitUntil(clients.claim());"+
				"onfetch = e => { if (e.request.url.includes('hang')) e.respondWith(new Promise(() => {})) }")
		case r.URL.Path == "/never":
			<-r.Context().Done()
		default:
			http.NotFound(rw, r)
		}
	})
}

// ClientSite serves pages whose titles are their paths.
func ClientSite(t *testing.T) string {
	return Serve(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "<!doctype html><title>%s</title>", html.EscapeString(r.URL.Path))
	})
}

// DownloadSite serves a page that downloads /file, /big, which has a megabyte, or
// /slow, which never ends.
func DownloadSite(t *testing.T) string {
	t.Helper()
	return Serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/file":
			w.Header().Set("Content-Disposition", "attachment; filename=report.txt")
			io.WriteString(w, "the report")
		case "/big":
			w.Header().Set("Content-Disposition", "attachment; filename=big.bin")
			io.WriteString(w, strings.Repeat("x", 1<<20))
		case "/slow":
			w.Header().Set("Content-Disposition", "attachment; filename=slow.bin")
			io.WriteString(w, strings.Repeat("x", 64<<10))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<!doctype html><title>files</title><a id=file href=/file>file</a> <a id=popup "+
				"target=_blank href=/file>pop-up</a> <a id=slow href=/slow>slow</a> <a id=big href=/big>big</a> "+
				"<input type=file>")
		}
	})
}

// Origin is a server that says by which name it was asked; no resolver knows
// the names.
func Origin(t *testing.T) string {
	return strings.TrimPrefix(Serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "this is "+r.Host)
	}), "http://")
}

// Visit opens a page at an address and returns what it shows, or the error of
// its navigation.
func Visit(t *testing.T, ws, url string) string {
	t.Helper()
	c := Dial(t, ws)
	target := jsonrpc.GetString(ResultOf(t, c.Ask("Target.createTarget", `{"url":"about:blank"}`)), "targetId")
	c.Ask("Target.attachToTarget", `{"targetId":"`+target+`","flatten":true}`)
	page := Dial(t, ws[:strings.Index(ws, "/devtools/")]+"/devtools/page/"+target)
	if err := jsonrpc.GetString(ResultOf(t, page.Ask("Page.navigate", `{"url":"`+url+`"}`)), "errorText"); err != "" {
		return err
	}
	got := page.Ask("Runtime.evaluate", `{"awaitPromise":true,"expression":"new Promise(done => {`+
		`const say = () => done(document.body.innerText);`+
		`document.readyState === 'complete' ? say() : addEventListener('load', say) })"}`)
	return jsonrpc.GetString(jsonrpc.Get(ResultOf(t, got), "result"), "value")
}

// ResultOf is the result of an answer.
func ResultOf(t *testing.T, answer string) json.RawMessage {
	t.Helper()
	r := jsonrpc.Get(json.RawMessage(answer), "result")
	if r == nil {
		t.Fatalf("got %v, want a result", answer)
	}
	return r
}

// IsolatedSite serves the pages of scripts/clients/isolated.mjs. What a page
// leads to has the page's own query, by which it is known whose it is.
func IsolatedSite(t *testing.T) string {
	t.Helper()
	return Serve(t, func(w http.ResponseWriter, r *http.Request) {
		who := r.URL.RawQuery
		switch r.URL.Path {
		case "/file":
			w.Header().Set("Content-Disposition", "attachment; filename=file.txt")
			fmt.Fprint(w, who)
		case "/worker.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, "postMessage(location.search)")
		case "/sw.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, "onmessage = (e) => e.source.postMessage(location.search); onfetch = () => {}; "+
				"oninstall = () => "+
				"skipWaiting()")
		case "/page":
			_, port, _ := strings.Cut(r.Host, ":")
			fmt.Fprintf(w, "<!doctype html><title>/page</title><a id=popup target=_blank href=/popup?%[1]s>"+
				"pop-up</a> <a id=download href=/file?%[1]s>file</a>"+
				"<iframe src=http://localhost:%[2]s/frame?%[1]s></iframe>", who, port)
		default:
			fmt.Fprintf(w, "<!doctype html><title>%[1]s</title><h1>%[1]s</h1>", r.URL.Path)
		}
	})
}

// TitledSite serves pages whose title is their path.
func TitledSite(t *testing.T) string {
	t.Helper()
	return Serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!doctype html><title>of %s</title><h1>Page %s</h1>", r.URL.Path, r.URL.Path)
	})
}

// LoginSite serves a site whose pages show who has logged in, as its server, its first
// script and its database know.
func LoginSite(t *testing.T) string { return new(Presence).LoginSite(t) }

// LoginSite serves the same site, whose open pages are known.
func (p *Presence) LoginSite(t *testing.T) string {
	return p.Site(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "text/html")
		if r.URL.Path == "/login" {
			http.SetCookie(w, &http.Cookie{Name: "sid", Value: "s3cret-cookie", HttpOnly: true, MaxAge: 3600})
			io.WriteString(w, `<script>
				localStorage.setItem('token', 's3cret-token')
				const r = indexedDB.open('keys', 2)
				r.onupgradeneeded = () => r.result.createObjectStore('keys')
				r.onsuccess = () => {
					const t = r.result.transaction('keys', 'readwrite')
					t.objectStore('keys').add({at: new Date(), key: 's3cret-key'}, 'own')
					t.oncomplete = () => { document.title = 'logged in' }
				}
			</script>`)
			return
		}
		who := "nobody"
		if c, err := r.Cookie("sid"); err == nil && c.Value == "s3cret-cookie" {
			who = "ann"
		}
		fmt.Fprintf(w, `<script>
			const token = localStorage.getItem('token')
			const show = (key) => { document.title = 'shows %s, ' + token + ', ' + key }
			indexedDB.databases().then((all) => {
				if (!all.length) return show('nothing')
				indexedDB.open('keys').onsuccess = (e) => {
					const keys = e.target.result.transaction('keys').objectStore('keys')
					keys.get('own').onsuccess = (e) => show(e.target.result.key)
				}
			})
		</script>`+Here, who)
	})
}

// ObservedSite serves a site whose page tells the server when it is hidden; was reports
// whether it did.
func ObservedSite(t *testing.T) (url string, was func() bool) {
	var hidden atomic.Bool
	s := Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hidden" {
			hidden.Store(true)
			return
		}
		w.Header().Set("content-type", "text/html")
		io.WriteString(w, `<title>observed</title><script>
			const tell = () => { if (document.hidden) fetch('/hidden') }
			document.onvisibilitychange = tell
			tell()</script>`)
	})
	return s, hidden.Load
}
