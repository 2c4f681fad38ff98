package web

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"btools/lib/control"
	"btools/lib/control/api"
	"btools/lib/front"
	"btools/lib/guard"
	"btools/lib/pool"
	"btools/lib/pool/relay"
	"btools/lib/record"
)

// base returns the address of the server for a client, such as https://pool.example/browsers.
func (s *Server) base(r *http.Request) string {
	switch {
	case s.Public != nil:
		return strings.TrimSuffix(s.Public.String(), "/")
	case r.TLS != nil:
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// readdress gives the record of a lease the addresses that it has for a client, and takes out what is of this machine.
func (s *Server) readdress(r *http.Request, rec *record.Record) {
	var l record.Lease
	var i record.Instance
	rec.Get("lease", &l)
	if is, err := rec.Get("instance", &i); !is || err != nil {
		return // it has no browser
	}
	at, err := s.RemoteOf(l.ID)
	if err != nil {
		if there := s.Elsewhere(r.Context(), l.ID, ""); len(there) == 1 {
			at, err = there[0].Remote, nil
		}
	}
	if err != nil {
		return // it has ended, and so have its addresses
	}
	i.HTTPURL = s.base(r) + at.Path
	_, path, _ := strings.Cut(i.WSURL, at.Local+at.Prefix)
	i.WSURL = relay.Socket(i.HTTPURL) + path
	i.Host, i.Port, i.PID, i.SupervisorPID, i.UserDataDir = "", 0, 0, 0, ""
	rec.MustSet("instance", i)
}

// enter returns the address of a lease for a client that knows its secret.
func (s *Server) enter(id, secret string) (pool.Remote, error) {
	if !pool.IsLeaseID(id) {
		return pool.Remote{}, pool.ErrNoLease(id)
	}
	at, err := s.RemoteOf(id)
	want := pool.RemotePrefix + id + "." + secret
	if err == nil && subtle.ConstantTimeCompare([]byte(at.Path), []byte(want)) != 1 {
		return pool.Remote{}, pool.ErrNoLease(id)
	}
	return at, err
}

// browser answers a request to the address of a lease, /lease/ID.SECRET.
func (s *Server) browser(w *front.Response, r *http.Request) error {
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, pool.RemotePrefix), "/")
	id, secret, _ := strings.Cut(name, ".")
	at, err := s.enter(id, secret)
	if err != nil {
		there := s.Elsewhere(r.Context(), id, cmp.Or(secret, "none"))
		if len(there) != 1 {
			return err
		}
		at = there[0].Remote
	}
	return s.relay(w, r, at, "/"+path)
}

// relay relays a request to the endpoint of a lease on this machine, and its addresses in the answer back.
func (s *Server) relay(w *front.Response, r *http.Request, at pool.Remote, path string) error {
	if at.Local == "" {
		return front.Unavailable(control.Errorf(control.Unavailable, "the lease has no browser"))
	}
	if at.Ended != nil {
		s.relaying.Add(1)
		defer s.relaying.Add(-1)
	}
	to := relay.Endpoint{URL: &url.URL{Scheme: "http", Host: at.Local, Path: at.Prefix}, Public: s.base(r) + at.Path}
	return to.Serve(w, r, path)
}

// connect answers /connect: the WebSocket is a lease, which ends with it.
func (s *Server) connect(w *front.Response, r *http.Request) error {
	if !front.IsUpgrade(r) {
		return guard.Refuse(http.StatusUpgradeRequired, control.BadRequest,
			"/connect is a WebSocket that is a browser: give "+
				"its address to connectOverCDP or connect")
	}
	a, err := askOf(r.URL.Query())
	if err != nil {
		return control.Errorf(control.BadRequest, "%v", err)
	}
	deadlines := http.NewResponseController(w)
	deadlines.SetReadDeadline(time.Time{})
	deadlines.SetWriteDeadline(time.Time{})
	_, t := guard.TokenOf(r)
	ctx, end := context.WithCancel(control.WithPeer(r.Context(), control.ByToken(t)))
	defer end()
	rec, err := s.hold(ctx, t, a, api.HoldRequest{Bound: true})
	if err != nil {
		return err
	}
	var l record.Lease
	var i record.Instance
	rec.Get("lease", &l)
	rec.Get("instance", &i)
	at, err := s.RemoteOf(l.ID)
	if err != nil {
		return err
	}
	_, path, _ := strings.Cut(i.WSURL, at.Local+at.Prefix)
	r.URL.RawQuery = ""
	return s.relay(w, r, at, path)
}

// askOf reads the query of /connect.
func askOf(q url.Values) (a ask, err error) {
	for key, values := range q {
		v := values[len(values)-1]
		switch key {
		case "pool":
			a.Pool = v
		case "instance":
			a.Instance = v
		case "holder":
			a.Holder = v
		case "state":
			a.State, err = json.Marshal(v)
		case "timeout":
			err = a.Timeout.parse(v)
		case "ttl":
			err = a.TTL.parse(v)
		default:
			err = errUnknown(key)
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

type errUnknown string

// Error returns the message.
func (e errUnknown) Error() string {
	return "/connect has no parameter " + strconv.Quote(string(e)) +
		": it has pool, instance, timeout, ttl, state, holder and token"
}
