package browse

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"btools/lib/cdp"
	"btools/lib/jsonrpc"
)

// Bounds of what is remembered of a tab: what is older is forgotten.
const (
	maxMessages = 1000
	maxRequests = 1000
	maxText     = 10000 // bytes of a message
)

// Message is a message of the console.
type Message struct {
	Level string // error, warning, info or debug
	Kind  string // as the console has it, such as log
	Text  string
	URL   string
	Line  int // from 0
}

// records are what the pages of a tab have said and requested.
type records struct {
	*link
	console    []Message
	sinceNav   int // how many of them are older than the document
	errorsTold int // how many of them NewErrors has looked at
	traffic    traffic
}

// addMessage records an event of the console.
func (t *records) addMessage(e cdp.Event) {
	var m Message
	switch e.Method {
	case "Runtime.consoleAPICalled":
		p := decode[struct {
			Type       string
			Args       []remote
			StackTrace stackTrace
		}](e.Params)
		var words []string
		for _, a := range p.Args {
			words = append(words, a.text())
		}
		m = Message{Kind: p.Type, Text: strings.Join(words, " ")}
		m.URL, m.Line = p.StackTrace.top()
	case "Runtime.exceptionThrown":
		p := decode[struct {
			ExceptionDetails struct {
				exception
				URL        string
				LineNumber int
			}
		}](e.Params).ExceptionDetails
		m = Message{Kind: "error", Text: p.Error(), URL: p.URL, Line: p.LineNumber}
	default:
		p := decode[struct {
			Entry struct {
				Level, Text, URL, NetworkRequestID string
				LineNumber                         int
			}
		}](e.Params).Entry
		if id := p.NetworkRequestID; id != "" && id == t.traffic.icon { // a site without an icon has no fault
			return
		}
		m = Message{Kind: p.Level, Text: p.Text, URL: p.URL, Line: p.LineNumber}
		if r := t.traffic.byID[p.NetworkRequestID]; r != nil && r.Failure != "" { // which may name a rule
			for _, code := range byProxy {
				m.Text = strings.Replace(m.Text, code, r.Failure, 1)
			}
		}
	}
	switch m.Kind {
	case "error", "assert":
		m.Level = "error"
	case "warning":
		m.Level = "warning"
	case "debug", "verbose", "trace":
		m.Level = "debug"
	default:
		m.Level = "info"
	}
	m.Text = cut(m.Text, maxText)
	if len(t.console) == maxMessages {
		t.console = slices.Delete(t.console, 0, maxMessages/4)
		t.sinceNav = max(0, t.sinceNav-maxMessages/4)
		t.errorsTold = max(0, t.errorsTold-maxMessages/4)
	}
	t.console = append(t.console, m)
}

// cut is a text of at most so many bytes and a sign that it was longer, and keeps nothing of what was longer.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

type stackTrace struct {
	CallFrames []struct {
		URL        string
		LineNumber int
	}
}

func (s stackTrace) top() (url string, line int) {
	if len(s.CallFrames) == 0 {
		return "", 0
	}
	return s.CallFrames[0].URL, s.CallFrames[0].LineNumber
}

// text is a value as the console shows it.
func (r remote) text() string {
	var s string
	switch {
	case json.Unmarshal(r.Value, &s) == nil && r.Type == "string":
		return s
	case r.Value != nil:
		return string(r.Value)
	case r.UnserializableValue != "":
		return r.UnserializableValue
	case r.Description != "":
		return r.Description
	}
	return r.Type
}

// NewErrors are the errors of the console since they were asked for last.
func (t *records) NewErrors() (all []Message) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	for _, m := range t.console[t.errorsTold:] {
		if m.Level == "error" {
			all = append(all, m)
		}
	}
	t.errorsTold = len(t.console)
	return all
}

// Console are the messages of the document, or of the tab since it was opened.
func (t *records) Console(all bool) []Message {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	if all {
		return slices.Clone(t.console)
	}
	return slices.Clone(t.console[t.sinceNav:])
}

// Request is a request of a document.
type Request struct {
	Method, URL, Type string // the type is Chrome's, in lower case: document, fetch, image …
	Sent              map[string]string
	Body              string // as it was sent; long ones are cut
	Status            int
	StatusText        string
	MimeType          string
	Received          map[string]string
	Failure           string // "": none
	Done              bool
	Duration          time.Duration

	id, session, loader string
	began               float64 // Chrome's clock, in seconds
	at                  time.Time
	serial              int
	isMain              bool // for a document of the main frame
}

// traffic are the requests of a document.
type traffic struct {
	all    []*Request
	byID   map[string]*Request
	serial int    // of the last request of the tab
	icon   string // the ID of the latest request that Chrome itself has made for the site's icon
}

// isOwn reports whether Chrome itself makes a request, for /favicon.ico: no page has asked
// for it. Its redirects have its ID.
func (tr *traffic) isOwn(id, typ, address string) bool {
	u, err := url.Parse(address)
	if err == nil && typ == "Other" && u.Path == "/favicon.ico" {
		tr.icon = id
	}
	return id != "" && tr.icon == id
}

// begin forgets the requests of other documents, but for those of one that the main frame waits for: the first, empty
// document of a tab may be told of after the request for the next one.
func (tr *traffic) begin(loader string, earlier []document) {
	next := ""
	for _, r := range tr.all {
		switch {
		case r.loader == loader:
			next = ""
		case r.isMain && r.Failure == "" && !IsEmpty(r.Status) && !hasLoader(earlier, r.loader):
			next = r.loader
		}
	}
	tr.all = slices.DeleteFunc(tr.all, func(r *Request) bool { return r.loader != loader && r.loader != next })
	tr.byID = map[string]*Request{}
	for _, r := range tr.all {
		tr.byID[r.id] = r
	}
}

func hasLoader(all []document, loader string) bool {
	return slices.ContainsFunc(all, func(d document) bool { return d.loader == loader })
}

// addTraffic records an event of the network.
func (t *records) addTraffic(from *target, e cdp.Event) {
	tr := &t.traffic
	switch e.Method {
	case "Network.requestWillBeSent":
		p := decode[struct {
			RequestID, LoaderID, FrameID, Type string
			Timestamp                          float64
			Request                            struct {
				URL, Method, PostData string
				Headers               map[string]string
			}
			RedirectResponse *response
		}](e.Params)
		if tr.isOwn(p.RequestID, p.Type, p.Request.URL) {
			break
		}
		if old := tr.byID[p.RequestID]; old != nil && p.RedirectResponse != nil {
			old.answered(p.RedirectResponse)
			old.finish(p.Timestamp)
		}
		if len(tr.all) == maxRequests {
			const first = 1 // that for the document itself stays
			for _, r := range tr.all[first : maxRequests/4] {
				if tr.byID[r.id] == r {
					delete(tr.byID, r.id)
				}
			}
			tr.all = slices.Delete(tr.all, first, maxRequests/4)
		}
		tr.serial++
		r := &Request{Method: p.Request.Method, URL: p.Request.URL, Type: strings.ToLower(p.Type),
			Sent: p.Request.Headers, Body: p.Request.PostData, id: p.RequestID, session: from.session,
			loader: p.LoaderID, began: p.Timestamp, at: time.Now(), serial: tr.serial,
			isMain: p.FrameID == t.main.id && p.RequestID == p.LoaderID}
		tr.all = append(tr.all, r)
		tr.byID[p.RequestID] = r
	case "Network.responseReceived":
		p := decode[struct {
			RequestID string
			Response  *response
		}](e.Params)
		if r := tr.byID[p.RequestID]; r != nil && p.Response != nil {
			r.answered(p.Response)
		}
	case "Network.loadingFinished", "Network.loadingFailed":
		p := decode[struct {
			RequestID, ErrorText string
			Timestamp            float64
			Canceled             bool
		}](e.Params)
		r := tr.byID[p.RequestID]
		if r == nil {
			break
		}
		r.Failure = cmp.Or(r.Failure, p.ErrorText) // the browser's page of the error ends as the request does
		r.finish(p.Timestamp)
		if slices.Contains(byProxy, p.ErrorText) {
			t.askWhy(r)
		}
		if e.Method == "Network.loadingFailed" && r.Type == "document" { // it becomes no document: a download
			clear(t.starting)
		}
	}
}

// byProxy are Chrome's errors for a request that a proxy has ended, as the limits of a session do.
var byProxy = []string{"net::ERR_EMPTY_RESPONSE", "net::ERR_TUNNEL_CONNECTION_FAILED"}

// askWhy asks a virtual browser which rule has ended a request; another browser does not know the command.
func (t *records) askWhy(r *Request) {
	b := t.b
	b.conn.Begin("", "Btools.whyFailed", map[string]string{"url": r.URL}, func(raw json.RawMessage, err error) {
		why := jsonrpc.GetString(raw, "errorText")
		if err != nil || why == "" {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for i := range t.console {
			if m := &t.console[i]; m.URL == r.URL {
				m.Text = strings.Replace(m.Text, r.Failure, why, 1)
			}
		}
		r.Failure = why
		b.changed.Wake()
	})
}

type response struct {
	Status               int
	StatusText, MimeType string
	Headers              map[string]string
}

func (r *Request) answered(by *response) {
	r.Status, r.StatusText, r.MimeType, r.Received = by.Status, by.StatusText, by.MimeType, by.Headers
}

func (r *Request) finish(at float64) {
	r.Done, r.Duration = true, time.Duration((at-r.began)*float64(time.Second))
}

// Requests are the requests of the document, in their order.
func (t *records) Requests() (all []Request) {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	for _, r := range t.traffic.all {
		all = append(all, *r)
	}
	return all
}

// ResponseBody is what a request was answered with. If the response does not end
// soon, as of one that the page does not read, or that has no end, it is what has come
// of it, and not whole.
func (t *records) ResponseBody(ctx context.Context, r Request) (body []byte, whole bool, err error) {
	short, cancel := context.WithTimeout(ctx, t.b.of(requestPatience))
	err = t.b.wait(short, func() bool {
		now := t.traffic.byID[r.id]
		return r.Done || now == nil || now.serial != r.serial || now.Done || t.closed
	})
	cancel()
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	t.b.mu.Lock()
	now := t.traffic.byID[r.id]
	t.b.mu.Unlock()
	if now != nil && now.serial != r.serial {
		return nil, false, errors.New("it is a redirect, whose body the browser does not keep")
	}
	params := map[string]string{"requestId": r.id}
	if err != nil {
		var got struct{ BufferedData []byte }
		if err := t.call(ctx, r.session, "Network.streamResourceContent", params, &got); err == nil {
			if len(got.BufferedData) == 0 {
				return nil, false, errors.New("nothing of the response has come yet, or the page does not read it")
			}
			return got.BufferedData, false, nil
		} // it has just ended
	}
	var got struct {
		Body          string
		Base64Encoded bool
	}
	if err := t.call(ctx, r.session, "Network.getResponseBody", params, &got); err != nil {
		return nil, false, fmt.Errorf("the browser does not have the response any more: %w", err)
	}
	if got.Base64Encoded {
		body, err = base64.StdEncoding.DecodeString(got.Body)
		return body, true, err
	}
	return []byte(got.Body), true, nil
}
