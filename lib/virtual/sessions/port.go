package sessions

import (
	"crypto/rand"
	"net/http"
	"strings"

	"btools/lib/control"
	"btools/lib/guard"
	"btools/lib/virtual"
)

// prefix begins the path of each named session.
const prefix = "/session/"

// ServeHTTP answers a request to the port that all sessions share. The paths of
// named sessions begin with /session/NAME. The port's own /json/version returns
// the address of a new anonymous session, and a WebSocket to /devtools/browser
// gets a session that ends with it. With Root, all of these belong to that
// session instead.
func (g *Registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, g.Base)
	if rest, ok := strings.CutPrefix(path, prefix); ok {
		name, rest, _ := strings.Cut(rest, "/")
		if guid, ok := ParseDownloads(rest); ok {
			g.serveDownloads(w, r, name, guid)
			return
		}
		g.serve(w, r, Key{Name: name}, g.Base+prefix+name, rest)
		return
	}
	if g.Root != "" {
		if guid, ok := ParseDownloads(strings.TrimPrefix(path, "/")); ok {
			g.serveDownloads(w, r, g.Root, guid)
			return
		}
		g.serve(w, r, Key{Name: g.Root}, g.Base, strings.TrimPrefix(path, "/"))
		return
	}
	ep, target := parsePath(path)
	if no := refusal(r, ep); no != nil {
		no.WriteResponse(w)
		return
	}
	switch {
	case ep == version && r.UserAgent() == "chromedriver":
		// It takes the pages of /json/list, of which the port itself has none, and would
		// wait for one for a minute. It shows its user the name of a browser that it
		// does not know.
		writeJSON(w, map[string]string{"Browser": "bproxy share serves chromedriver with --root-session NAME"})
	case ep == version, ep == protocol:
		g.serveShared(w, r, ep)
	case ep == list:
		writeJSON(w, []targetInfo{})
	case ep == toBrowser && target == "":
		g.serve(w, r, Key{rand.Text(), Single}, g.Base, "devtools/browser")
	case ep == toBrowser:
		g.serve(w, r, Key{target, Anonymous}, g.Base, "devtools/browser/"+target)
	default:
		e := control.Errorf(guard.NotFound,
			"%s belongs to a session: on this port, each client has a browser of its own",
			r.URL.Path)
		e.Hint = "request " + g.Base + "/session/NAME" + path
		(&guard.Refusal{Status: http.StatusNotFound, Error: e}).WriteResponse(w)
	}
}

// serve answers a request to a session. An invalid request creates no session.
func (g *Registry) serve(w http.ResponseWriter, r *http.Request, k Key, base, rest string) {
	err := CheckName(k.Name)
	if err != nil {
		writeError(w, err)
		return
	}
	ep, _ := parsePath("/" + rest)
	if no := refusal(r, ep); no != nil {
		no.WriteResponse(w)
		return
	}
	for range attempts {
		var e *entry
		if e, err = g.use(r.Context(), k, nil); err != nil {
			break
		}
		err = Serve(w, r, e.session.(*virtual.Session), base, e.trace)
		g.leave(e)
		if err == nil {
			return
		}
	}
	writeError(w, err)
}

// serveShared answers requests whose answer is the same for all sessions.
func (g *Registry) serveShared(w http.ResponseWriter, r *http.Request, ep endpoint) {
	b, release, err := g.Chrome(r.Context())
	if err != nil {
		writeError(w, err)
		return
	}
	defer release()
	if ep == protocol {
		serveProtocol(w, r, b.Addr())
		return
	}
	writeJSON(w, versionOf(b.Version(), "ws://"+r.Host+g.Base+"/devtools/browser/"+rand.Text()))
}
