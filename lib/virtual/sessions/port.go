package sessions

import (
	"crypto/rand"
	"net/http"
	"strings"

	"btools/lib/control"
	"btools/lib/guard"
	book "btools/lib/sessions"
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
		g.serve(w, r, Key{Name: rand.Text(), Kind: book.Single}, g.Base, "devtools/browser")
	case ep == toBrowser:
		g.serve(w, r, Key{Name: target, Kind: book.Anonymous}, g.Base, "devtools/browser/"+target)
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
		var e *book.Entry
		var s book.Session
		if e, s, err = g.use(r.Context(), k, nil); err != nil {
			break
		}
		err = Serve(w, r, sessionOf(s), base, e.Owner().(*place).trace)
		e.Leave()
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

// CheckName returns an error for an invalid session name.
func CheckName(name string) error {
	ok := 1 <= len(name) && len(name) <= maxName && name != "." && name != ".."
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if ok {
		return nil
	}
	return control.Errorf(control.BadRequest,
		"%q is not a session name: use 1 to %d letters, digits, \".\", \"_\" and \"-\", but not \".\" or \"..\"",
		clip(name), maxName)
}

const maxName = 64

// clip shortens an invalid name for a message.
func clip(name string) string {
	if len(name) <= maxName {
		return name
	}
	return name[:maxName] + "…"
}
