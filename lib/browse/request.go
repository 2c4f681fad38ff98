package browse

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"btools/lib/cdp"
)

// FetchOptions are what a request has besides its address.
type FetchOptions struct {
	Method  string // "": GET
	Headers map[string]string
	Body    string
}

// Response is the answer to a request.
type Response struct {
	URL        string // after redirects
	Status     int
	StatusText string
	Headers    []Header
	Body       []byte
	Cut        bool // the body is longer
}

// Header is a header of a response. The browser keeps cookies.
type Header struct{ Name, Value string }

// maxFetched is how many bytes of a body are read.
const maxFetched = 8 << 20

// Fetch sends a request with the session's cookies, and returns its answer, which
// may set cookies.
//
// The browser sends it as the navigation of a hidden tab, whose method, headers and
// body are replaced, and whose answer is taken before it becomes a document. So it
// goes the way of the session's own requests (proxy, certificates, user agent), has
// its cookies whatever their SameSite, and is subject to no page's CORS or content
// security policy. A client outside the browser would not have the first, and a
// script's fetch not the last; Network.loadNetworkResource has only GET.
func (b *Browser) Fetch(ctx context.Context, address string, o FetchOptions) (*Response, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is not the address of a request: it begins with http:// or https://",
			Redacted(address))
	}
	t, end, err := b.aside(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	f := &fetch{t: t, first: u, o: o, paused: make(chan cdp.Event, 100)}
	b.mu.Lock()
	t.paused = func(e cdp.Event) {
		select {
		case f.paused <- e:
		default: // it is a page that does something else
		}
	}
	b.mu.Unlock()
	r, err := f.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot fetch %s: %w", Redacted(address), err)
	}
	return r, nil
}

// fetch is a request on its way.
type fetch struct {
	t      *Tab
	first  *url.URL
	o      FetchOptions
	paused chan cdp.Event
}

// pausedRequest is an event of the Fetch domain: of a request, or of a response if it
// has a status or an error.
type pausedRequest struct {
	RequestID, RedirectedRequestID string
	Request                        struct {
		URL     string
		Headers map[string]string
	}
	ResponseErrorReason string
	ResponseStatusCode  int
	ResponseStatusText  string
	ResponseHeaders     []Header
}

func (f *fetch) run(ctx context.Context) (*Response, error) {
	for _, c := range []struct {
		method string
		params any
	}{
		{"Network.setBypassServiceWorker", map[string]bool{"bypass": true}},
		{"Network.setCacheDisabled", map[string]bool{"cacheDisabled": true}},
		{"Fetch.enable", map[string]any{"handleAuthRequests": true, "patterns": []map[string]string{
			{"urlPattern": "*", "requestStage": "Request"}, {"urlPattern": "*", "requestStage": "Response"}}}},
	} {
		if err := f.call(ctx, c.method, c.params, nil); err != nil {
			return nil, err
		}
	}
	ended := make(chan error, 1)
	f.t.b.conn.Begin(f.t.main.session, "Page.navigate", map[string]string{"url": f.first.String()},
		func(raw json.RawMessage, err error) {
			var got struct{ ErrorText string }
			if err == nil {
				err = json.Unmarshal(raw, &got)
			}
			if err == nil {
				err = errors.New(reason(got.ErrorText))
			}
			ended <- err
		})
	for {
		select {
		case e := <-f.paused:
			r, err := f.handle(ctx, e)
			if r != nil || err != nil {
				return r, err
			}
		case err := <-ended:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (f *fetch) call(ctx context.Context, method string, params, result any) error {
	return f.t.call(ctx, f.t.main.session, method, params, result)
}

// stream is call for a body, which may come as slowly as its server sends it: the page is leaving all the time.
func (f *fetch) stream(ctx context.Context, method string, params, result any) error {
	t := f.t
	_, err := t.await(ctx, t.begin(t.main.session, method, params), result, func() (error, time.Duration) {
		return t.overLocked(), t.b.of(ScriptTimeout)
	})
	return err
}

// handle lets a request go on, and returns the response if it is the last one.
func (f *fetch) handle(ctx context.Context, e cdp.Event) (*Response, error) {
	p := decode[pausedRequest](e.Params)
	switch {
	case e.Method == "Fetch.authRequired": // nobody is there to be asked: the answer is 401
		return nil, f.call(ctx, "Fetch.continueWithAuth", map[string]any{"requestId": p.RequestID,
			"authChallengeResponse": map[string]string{"response": "CancelAuth"}}, nil)
	case p.ResponseErrorReason != "": // the answer to Page.navigate says more
		return nil, f.call(ctx, "Fetch.continueRequest", map[string]string{"requestId": p.RequestID}, nil)
	case p.ResponseStatusCode == 0:
		return nil, f.call(ctx, "Fetch.continueRequest", f.proceed(&p), nil)
	case isRedirect(&p):
		return nil, f.call(ctx, "Fetch.continueResponse", map[string]string{"requestId": p.RequestID}, nil)
	}
	r := &Response{URL: p.Request.URL, Status: p.ResponseStatusCode, StatusText: p.ResponseStatusText,
		Headers: p.ResponseHeaders}
	if r.StatusText == "" {
		r.StatusText = http.StatusText(r.Status)
	}
	return r, f.read(ctx, p.RequestID, r)
}

func isRedirect(p *pausedRequest) bool {
	return p.ResponseStatusCode >= 300 && p.ResponseStatusCode < 400 && p.ResponseStatusCode != 304 &&
		slices.ContainsFunc(p.ResponseHeaders, func(h Header) bool { return strings.EqualFold(h.Name, "Location") })
}

// proceed are the parameters with which a request goes on. At a redirect the browser
// has chosen method and body. Headers of the agent, which may be secrets, go to no
// other origin.
func (f *fetch) proceed(p *pausedRequest) map[string]any {
	params := map[string]any{"requestId": p.RequestID}
	at, err := url.Parse(p.Request.URL)
	same := err == nil && at.Scheme == f.first.Scheme && at.Host == f.first.Host
	if p.RedirectedRequestID != "" && same {
		return params
	}
	headers := http.Header{}
	for name, value := range p.Request.Headers {
		headers.Set(name, value)
	}
	headers.Del("Upgrade-Insecure-Requests")
	headers.Set("Accept", "*/*")
	if p.RedirectedRequestID == "" {
		method := strings.ToUpper(f.o.Method)
		if method != "" && method != "GET" {
			params["method"] = method
			if method != "HEAD" {
				headers.Set("Origin", f.first.Scheme+"://"+f.first.Host)
			}
		}
		if f.o.Body != "" {
			params["postData"] = base64.StdEncoding.EncodeToString([]byte(f.o.Body))
			headers.Set("Content-Type", bodyType(f.o.Body))
		}
		for name, value := range f.o.Headers {
			headers.Set(name, value)
		}
	} else {
		for name := range f.o.Headers {
			if key := textproto.CanonicalMIMEHeaderKey(name); key != "Accept" && key != "Content-Type" {
				headers.Del(key)
			}
		}
	}
	var all []map[string]string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		all = append(all, map[string]string{"name": name, "value": headers.Get(name)})
	}
	params["headers"] = all
	return params
}

// bodyType is the type of a body for which the agent gives none.
func bodyType(body string) string {
	s := strings.TrimSpace(body)
	if json.Valid([]byte(s)) && (s[0] == '{' || s[0] == '[') {
		return "application/json"
	}
	return "text/plain;charset=UTF-8"
}

// read reads the body of a response.
func (f *fetch) read(ctx context.Context, request string, r *Response) error {
	var stream struct{ Stream string }
	err := f.stream(ctx, "Fetch.takeResponseBodyAsStream", map[string]string{"requestId": request}, &stream)
	if err != nil {
		return err
	}
	for {
		var part struct {
			Data               string
			Base64Encoded, EOF bool
		}
		err := f.stream(ctx, "IO.read", map[string]any{"handle": stream.Stream, "size": 1 << 20}, &part)
		if err != nil { // what has come of the part cannot be had
			return fmt.Errorf("the body did not end: %w", err)
		}
		data := []byte(part.Data)
		if part.Base64Encoded {
			if data, err = base64.StdEncoding.DecodeString(part.Data); err != nil {
				return err
			}
		}
		r.Body = append(r.Body, data...)
		if len(r.Body) >= maxFetched {
			r.Body, r.Cut = r.Body[:maxFetched], true
			return nil
		}
		if part.EOF {
			return nil
		}
	}
}

// reasons are Chrome's words for what an agent can do something about.
var reasons = map[string]string{
	"net::ERR_NAME_NOT_RESOLVED":        "there is no host of this name",
	"net::ERR_CONNECTION_REFUSED":       "the host refuses the connection",
	"net::ERR_CONNECTION_TIMED_OUT":     "the host does not answer",
	"net::ERR_EMPTY_RESPONSE":           "the host ended the connection without an answer",
	"net::ERR_TOO_MANY_REDIRECTS":       "it is redirected again and again",
	"net::ERR_CERT_AUTHORITY_INVALID":   "the certificate is not trusted",
	"net::ERR_CERT_DATE_INVALID":        "the certificate has expired",
	"net::ERR_PROXY_CONNECTION_FAILED":  "the proxy does not answer",
	"net::ERR_INVALID_AUTH_CREDENTIALS": "the site asks for a name and a password: http://NAME:PASSWORD@host/ has them",
}

// reason is an error of the browser's network in words.
func reason(code string) string {
	if words := reasons[code]; words != "" {
		return words + " (" + code + ")"
	}
	if code == "" {
		return "the browser has taken the answer for itself"
	}
	return code
}
