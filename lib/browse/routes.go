package browse

import (
	"context"
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"btools/lib/cdp"
)

// network is which requests of the tabs are answered, changed or refused here.
type network struct {
	b        *Browser
	routes   []Route
	refuses  func(ctx context.Context, address string) error // a file; nil: all are shown
	guarding bool                                            // files are asked for
}

// Route says how requests are answered in place of their server, or what they are sent
// with.
type Route struct {
	Pattern     string // as Playwright has it: **/api/*
	Status      int    // 0, without a body: the request goes on
	Body        *string
	ContentType string
	Headers     []Header // of the answer, or added to the request
	Remove      []string // headers of the request

	matches *regexp.Regexp
}

func (r *Route) answers() bool { return r.Status != 0 || r.Body != nil }

// AddRoute adds a route for all tabs. The latest one that matches is the one that holds.
func (n *network) AddRoute(r Route) error {
	var err error
	if r.matches, err = Glob(r.Pattern); err != nil {
		return err
	}
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	n.routes = append(n.routes, r)
	n.pauseAllLocked()
	return nil
}

// Routes are those that hold.
func (n *network) Routes() []Route {
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	return slices.Clone(n.routes)
}

// RemoveRoutes removes those with a pattern, "": all, and returns how many there were.
func (n *network) RemoveRoutes(pattern string) (removed int) {
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	removed = len(n.routes)
	n.routes = slices.DeleteFunc(n.routes, func(r Route) bool { return pattern == "" || r.Pattern == pattern })
	n.pauseAllLocked()
	return removed - len(n.routes)
}

// pauseAllLocked has Chrome ask for what has to be decided here.
func (n *network) pauseAllLocked() {
	for session, t := range n.b.targets {
		if !t.tab.hidden {
			n.pauseLocked(session)
		}
	}
}

func (n *network) pauseLocked(session string) {
	switch {
	case len(n.routes) > 0:
		n.b.conn.Begin(session, "Fetch.enable", patterns("*"), nil)
	case n.guarding:
		n.b.conn.Begin(session, "Fetch.enable", patterns("file://*"), nil)
	default:
		n.b.conn.Begin(session, "Fetch.disable", nil, nil)
	}
}

func patterns(url string) map[string]any {
	return map[string]any{"patterns": []map[string]string{{"urlPattern": url}}}
}

// route answers a request or lets it go on.
func (n *network) route(session string, e cdp.Event) {
	p := decode[pausedRequest](e.Params)
	n.b.mu.Lock()
	var r *Route
	for i := range slices.Backward(n.routes) {
		if r == nil && n.routes[i].matches.MatchString(p.Request.URL) {
			held := n.routes[i]
			r = &held
		}
	}
	n.b.mu.Unlock()
	params := map[string]any{"requestId": p.RequestID}
	switch {
	case r == nil:
		n.b.conn.Begin(session, "Fetch.continueRequest", params, nil)
	case r.answers():
		r.answer(params, p)
		n.b.conn.Begin(session, "Fetch.fulfillRequest", params, nil)
	default:
		if headers := r.request(p.Request.Headers); headers != nil {
			params["headers"] = headers
		}
		n.b.conn.Begin(session, "Fetch.continueRequest", params, nil)
	}
}

// answer adds what a request is answered with. A script of another origin reads it, too:
// what asks first is answered yes.
func (r *Route) answer(params map[string]any, p pausedRequest) {
	of := func(name string) string {
		for n, v := range p.Request.Headers {
			if strings.EqualFold(n, name) {
				return v
			}
		}
		return ""
	}
	params["responseCode"] = r.Status
	if r.Status == 0 {
		params["responseCode"] = http.StatusOK
	}
	headers := slices.Clone(r.Headers)
	add := func(name, value string) {
		is := func(h Header) bool { return strings.EqualFold(h.Name, name) }
		if value != "" && !slices.ContainsFunc(headers, is) {
			headers = append(headers, Header{name, value})
		}
	}
	add("Content-Type", r.ContentType)
	if origin := of("Origin"); origin != "" {
		add("Access-Control-Allow-Origin", origin)
		add("Access-Control-Allow-Credentials", "true")
		add("Access-Control-Allow-Methods", of("Access-Control-Request-Method"))
		add("Access-Control-Allow-Headers", of("Access-Control-Request-Headers"))
	}
	if of("Access-Control-Request-Method") != "" {
		params["responseCode"] = http.StatusNoContent
	}
	params["responseHeaders"] = pairs(headers)
	if r.Body != nil {
		params["body"] = base64.StdEncoding.EncodeToString([]byte(*r.Body))
	}
}

// request are the headers of a request as they are to be sent, nil: as they are.
func (r *Route) request(sent map[string]string) []map[string]string {
	if len(r.Headers)+len(r.Remove) == 0 {
		return nil
	}
	var all []Header
	for name, value := range sent {
		is := func(other string) bool { return strings.EqualFold(name, other) }
		isSet := func(h Header) bool { return is(h.Name) }
		if !slices.ContainsFunc(r.Remove, is) && !slices.ContainsFunc(r.Headers, isSet) {
			all = append(all, Header{name, value})
		}
	}
	for _, h := range r.Headers {
		if !slices.ContainsFunc(r.Remove, func(name string) bool { return strings.EqualFold(name, h.Name) }) {
			all = append(all, h)
		}
	}
	return pairs(all)
}

func pairs(headers []Header) []map[string]string {
	all := []map[string]string{}
	for _, h := range headers {
		all = append(all, map[string]string{"name": h.Name, "value": h.Value})
	}
	return all
}

// Glob is a pattern of addresses: * is anything but a slash, ** anything, {a,b} one of
// several, and \ takes the next character as it is.
func Glob(pattern string) (*regexp.Regexp, error) {
	var re strings.Builder
	re.WriteString("^")
	group := false
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			i++
			re.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		case strings.HasPrefix(rest, "**/"):
			re.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(rest, "**"):
			re.WriteString(".*")
			i++
		case c == '*':
			re.WriteString("[^/]*")
		case c == '{' && !group && strings.Contains(rest, "}"):
			group = true
			re.WriteString("(?:")
		case c == '}' && group:
			group = false
			re.WriteString(")")
		case c == ',' && group:
			re.WriteString("|")
		default:
			re.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	return regexp.Compile(re.String() + "$")
}
