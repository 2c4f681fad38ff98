package har

import (
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// entry returns the entry of a hop, without its body.
func (h *hop) entry(sent requestExtra, answered responseExtra) *entry {
	e := &entry{
		Started: stamp(h.sent.WallTime), Type: strings.ToLower(h.sent.Type), Priority: h.sent.Request.InitialPriority,
		Session: h.session, Timings: h.phases(),
	}
	e.Time = e.Timings.sum()
	if h.page != nil {
		e.Page = h.page.ID
	}
	if h.sent.Initiator.Type != "" {
		e.Initiator = &h.sent.Initiator
	}
	if h.cached {
		e.FromCache = "memory"
	}
	h.setRequest(&e.Request, sent)
	h.setResponse(&e.Response, answered)
	if r := h.response; r != nil {
		e.ByWorker = r.FromServiceWorker
		if r.FromDiskCache || r.FromPrefetchCache {
			e.FromCache = "disk"
		}
		if ip, err := netip.ParseAddr(strings.Trim(r.RemoteIPAddress, "[]")); err == nil && ip.Zone() == "" {
			e.ServerIP = ip.String()
		}
		if r.ConnectionID > 0 {
			e.Connection = strconv.FormatInt(int64(r.ConnectionID), 10)
		}
		e.Request.HTTP = e.Response.HTTP
	}
	return e
}

func (h *hop) setRequest(m *message, extra requestExtra) {
	r := h.sent.Request
	*m = message{
		Method: r.Method, URL: withoutFragment(r.URL), HTTP: unknownHTTP, Cookies: []cookie{}, Query: query(r.URL),
		Headers: nonNil(r.Headers), HeadersSize: -1,
	}
	if len(extra.Headers) > 0 {
		m.Headers = nonNil(extra.Headers)
	}
	if h.response != nil && h.response.RequestHeadersText != "" {
		m.HeadersSize = len(h.response.RequestHeadersText)
	}
	for _, c := range extra.Cookies {
		if len(c.Blocked) == 0 {
			m.Cookies = append(m.Cookies, c.Cookie.cookie())
		}
	}
	if len(extra.Cookies) == 0 {
		cs, _ := http.ParseCookie(headers(m.Headers).get("Cookie"))
		for _, c := range cs {
			m.Cookies = append(m.Cookies, cookie{Name: c.Name, Value: c.Value})
		}
	}
	if !r.HasPostData && r.PostData == nil {
		return
	}
	m.BodySize = -1
	text, ok := "", r.PostData != nil
	if ok {
		text = *r.PostData
	} else {
		var all []byte
		for _, part := range r.PostDataEntries {
			all = append(all, part.Bytes...)
		}
		text, ok = string(all), len(all) > 0 && utf8.Valid(all)
	}
	if ok {
		m.setPost(text)
		return
	}
	m.Post = &postData{Type: headers(m.Headers).get("Content-Type"), Comment: "the trace does not have it"}
}

// setPost sets the body of the request.
func (m *message) setPost(text string) {
	m.BodySize = len(text)
	m.Post = &postData{Type: headers(m.Headers).get("Content-Type"), Text: text}
	if strings.HasPrefix(m.Post.Type, "application/x-www-form-urlencoded") {
		m.Post.Params = pairs(text)
	}
}

func (c cdpCookie) cookie() cookie {
	x := cookie{Name: c.Name, Value: c.Value, Path: c.Path, Domain: c.Domain, HTTPOnly: c.HTTPOnly, Secure: c.Secure,
		SameSite: c.SameSite}
	if !c.Session && c.Expires > 0 {
		s := stamp(c.Expires)
		x.Expires = &s
	}
	return x
}

const unknownHTTP = "unknown"

func (h *hop) setResponse(m *response, extra responseExtra) {
	*m = response{
		HTTP: unknownHTTP, Cookies: []cookie{}, Headers: []pair{}, HeadersSize: -1, BodySize: -1,
		TransferSize: h.transfer, Error: h.err, Content: content{Size: h.body, Type: "x-unknown"},
	}
	r := h.response
	if r == nil {
		return
	}
	m.Status, m.StatusText, m.HTTP, m.Headers = r.Status, r.StatusText, httpVersion(r.Protocol), nonNil(r.Headers)
	if len(extra.Headers) > 0 {
		m.Headers = nonNil(extra.Headers)
	}
	if extra.Status > 0 {
		m.Status = extra.Status // not that of the cached response, after a 304
		if text := http.StatusText(extra.Status); extra.Status != r.Status {
			m.StatusText = text
		}
	}
	if text := extra.HeadersText + r.HeadersText; text != "" {
		m.HeadersSize = len(text)
	}
	if r.MimeType != "" {
		m.Content.Type = r.MimeType
	}
	m.RedirectURL = headers(m.Headers).get("Location")
	for _, p := range m.Headers {
		if !strings.EqualFold(p.Name, "Set-Cookie") {
			continue
		}
		if c, err := http.ParseSetCookie(p.Value); err == nil {
			m.Cookies = append(m.Cookies, setCookie(c))
		}
	}
	switch {
	case h.cached || r.FromDiskCache || m.Status == http.StatusNotModified:
		m.BodySize = 0
	case h.encoded > 0:
		m.BodySize = h.encoded
	case h.body == 0 && h.ended:
		m.BodySize = 0
	}
	if m.BodySize > 0 && h.body > m.BodySize {
		m.Content.Compression = h.body - m.BodySize
	}
}

var sameSites = map[http.SameSite]string{http.SameSiteLaxMode: "Lax", http.SameSiteStrictMode: "Strict",
	http.SameSiteNoneMode: "None"}

func setCookie(c *http.Cookie) cookie {
	x := cookie{Name: c.Name, Value: c.Value, Path: c.Path, Domain: c.Domain, HTTPOnly: c.HttpOnly, Secure: c.Secure,
		SameSite: sameSites[c.SameSite]}
	if !c.Expires.IsZero() && c.Expires.Year() > 1970 {
		s := stamp(c.Expires.Unix())
		x.Expires = &s
	}
	return x
}

// httpVersion returns the version by the name that archives use.
func httpVersion(protocol string) string {
	switch p := strings.ToLower(protocol); {
	case p == "":
		return unknownHTTP
	case p == "h2":
		return "HTTP/2.0"
	case p == "h3":
		return "HTTP/3.0"
	case strings.HasPrefix(p, "http/"):
		return strings.ToUpper(p)
	}
	return protocol
}

func nonNil(h headers) []pair {
	if h == nil {
		return []pair{}
	}
	return h
}

// query returns the parameters of a URL, in their order.
func query(address string) []pair {
	_, q, _ := strings.Cut(withoutFragment(address), "?")
	return pairs(q)
}

// pairs reads parameters; what is not encoded well is left as it is.
func pairs(q string) []pair {
	all := []pair{}
	for part := range strings.SplitSeq(q, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		all = append(all, pair{unescape(name), unescape(value)})
	}
	return all
}

func unescape(s string) string {
	if u, err := url.QueryUnescape(s); err == nil && utf8.ValidString(u) {
		return u
	}
	return s
}

// phases returns where the time of a hop went.
func (h *hop) phases() phases {
	p := phases{Blocked: -1, DNS: -1, Connect: -1, SSL: -1}
	if !h.ended {
		h.end = max(h.answered, h.sent.Timestamp)
	}
	if h.response == nil || h.response.Timing == nil || h.response.Timing.RequestTime <= 0 {
		answered := h.answered
		if h.response == nil {
			answered = h.end
		}
		p.Wait = between(h.sent.Timestamp, answered)
		p.Receive = between(answered, h.end)
		return p
	}
	t := h.response.Timing
	queued := max(0, ms((t.RequestTime-h.sent.Timestamp)*1000))
	began := 0.0 // when it was no longer blocked, after RequestTime
	for _, start := range []float64{t.DNSStart, t.ConnectStart, t.SendStart} {
		if start >= 0 {
			began = start
			break
		}
	}
	p.Blocked = queued + ms(began)
	ready := began
	if t.DNSStart >= 0 {
		p.DNS = ms(max(0, t.DNSEnd-t.DNSStart))
		ready = max(ready, t.DNSEnd)
	}
	if t.ConnectStart >= 0 {
		p.Connect = ms(max(0, t.ConnectEnd-t.ConnectStart))
		ready = max(ready, t.ConnectEnd)
		if t.SSLStart >= 0 {
			p.SSL = ms(max(0, t.SSLEnd-t.SSLStart))
		}
	}
	p.Send = ms(max(0, t.SendEnd-max(ready, t.SendStart)))
	p.Wait = ms(max(0, t.ReceiveHeadersEnd-t.SendEnd))
	p.Receive = between(t.RequestTime+t.ReceiveHeadersEnd/1000, h.end)
	return p
}

// between is the time from one timestamp to another, not less than 0.
func between(from, to float64) ms { return max(0, ms((to-from)*1000)) }
