package sessions

import (
	"crypto/rand"
	"net/http"
	"strings"

	"btools/lib/control"
	"btools/lib/guard"
	"btools/lib/virtual"
)

// prefix is below what the named sessions are.
const prefix = "/session/"

// ServeHTTP answers a request to the port that all sessions share. Named
// sessions are below /session/NAME. The port's own /json/version gives the
// address of a new anonymous session, and a WebSocket to /devtools/browser
// alone gets a session that ends with it; or all that is Root's.
func (g *Registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, prefix); ok {
		name, rest, _ := strings.Cut(rest, "/")
		g.serve(w, r, Key{Name: name}, prefix+name, rest)
		return
	}
	if g.Root != "" {
		g.serve(w, r, Key{Name: g.Root}, "", strings.TrimPrefix(r.URL.Path, "/"))
		return
	}
	is, of := asked(r.URL.Path)
	if no := refusal(r, is); no != nil {
		no.WriteResponse(w)
		return
	}
	switch {
	case is == version, is == protocol:
		g.ofChrome(w, r, is)
	case is == list:
		answer(w, []listed{})
	case is == toBrowser && of == "":
		g.serve(w, r, Key{rand.Text(), Single}, "", "devtools/browser")
	case is == toBrowser:
		g.serve(w, r, Key{of, Anonymous}, "", "devtools/browser/"+of)
	default:
		e := control.Errorf(guard.NotFound, "%s is a session's: this port shows each client a browser of its own", r.URL.Path)
		e.Hint = "ask for /session/NAME" + r.URL.Path
		(&guard.Refusal{Status: http.StatusNotFound, Error: e}).WriteResponse(w)
	}
}

// serve answers a request to a session. Nothing is created for a request that
// has no answer.
func (g *Registry) serve(w http.ResponseWriter, r *http.Request, k Key, base, rest string) {
	err := CheckName(k.Name)
	if err != nil {
		fail(w, err)
		return
	}
	is, _ := asked("/" + rest)
	if no := refusal(r, is); no != nil {
		no.WriteResponse(w)
		return
	}
	for range tries {
		var s *virtual.Session
		var done func()
		if s, done, err = g.Use(r.Context(), k); err != nil {
			break
		}
		err = Serve(w, r, s, base)
		done()
		if err == nil {
			return
		}
	}
	fail(w, err)
}

// ofChrome answers what is the same for all sessions.
func (g *Registry) ofChrome(w http.ResponseWriter, r *http.Request, is what) {
	b, release, err := g.Chrome(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	defer release()
	if is == protocol {
		giveProtocol(w, r, b)
		return
	}
	answer(w, versionOf(b, "ws://"+r.Host+"/devtools/browser/"+rand.Text()))
}
