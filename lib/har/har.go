// Package har converts traces of bproxy into HAR 1.2, the HTTP Archive that
// the developer tools of browsers import. A trace has the messages between
// clients and a browser, one JSON object a line; the requests are in the events
// of its Network domain, and the bodies are those that a client has fetched.
//
// A trace is read twice, in order: first to find the bodies, which follow their
// requests, then to write each request as soon as it is complete. So the memory
// is that of the requests under way and of a place for each body.
package har

import (
	"encoding/json"
	"time"
)

// Version is the version of the format.
const Version = "1.2"

// Creator is the program that writes an archive, or the browser.
type Creator struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// page is a document in the main frame of a tab.
type page struct {
	Started stamp   `json:"startedDateTime"`
	ID      string  `json:"id"`
	Title   string  `json:"title"`
	Timings timings `json:"pageTimings"`

	url    string
	target string  // of its tab
	began  float64 // in seconds of the browser's clock
}

// timings are in milliseconds since the page began; -1: it did not happen.
type timings struct {
	Content ms `json:"onContentLoad"`
	Load    ms `json:"onLoad"`
}

// entry is a request and its response. Members that begin with _ are those of
// Chrome's own archives.
type entry struct {
	Page       string     `json:"pageref,omitempty"`
	Started    stamp      `json:"startedDateTime"`
	Time       ms         `json:"time"`
	Request    message    `json:"request"`
	Response   response   `json:"response"`
	Cache      struct{}   `json:"cache"`
	Timings    phases     `json:"timings"`
	ServerIP   string     `json:"serverIPAddress,omitempty"`
	Connection string     `json:"connection,omitempty"`
	Comment    string     `json:"comment,omitempty"`
	Type       string     `json:"_resourceType,omitempty"`
	Priority   string     `json:"_priority,omitempty"`
	FromCache  string     `json:"_fromCache,omitempty"` // memory or disk
	ByWorker   bool       `json:"_fetchedViaServiceWorker,omitempty"`
	Session    string     `json:"_session,omitempty"` // of bproxy share
	Frames     []wsFrame  `json:"_webSocketMessages,omitempty"`
	Initiator  *initiator `json:"_initiator,omitempty"`
}

type initiator struct {
	Type string `json:"type"`
	URL  string `json:"url,omitempty"`
}

// wsFrame is a message of a WebSocket.
type wsFrame struct {
	Type   string  `json:"type"` // send or receive
	Time   float64 `json:"time"` // in seconds since 1970
	Opcode int     `json:"opcode"`
	Data   string  `json:"data"`
}

type message struct {
	Method      string    `json:"method"`
	URL         string    `json:"url"`
	HTTP        string    `json:"httpVersion"`
	Cookies     []cookie  `json:"cookies"`
	Headers     []pair    `json:"headers"`
	Query       []pair    `json:"queryString"`
	Post        *postData `json:"postData,omitempty"`
	HeadersSize int       `json:"headersSize"`
	BodySize    int       `json:"bodySize"`
}

type postData struct {
	Type    string `json:"mimeType"`
	Params  []pair `json:"params,omitempty"`
	Text    string `json:"text"`
	Comment string `json:"comment,omitempty"`
}

type response struct {
	Status       int      `json:"status"`
	StatusText   string   `json:"statusText"`
	HTTP         string   `json:"httpVersion"`
	Cookies      []cookie `json:"cookies"`
	Headers      []pair   `json:"headers"`
	Content      content  `json:"content"`
	RedirectURL  string   `json:"redirectURL"`
	HeadersSize  int      `json:"headersSize"`
	BodySize     int      `json:"bodySize"`
	TransferSize int      `json:"_transferSize"`
	Error        string   `json:"_error,omitempty"`
}

type content struct {
	Size        int             `json:"size"`
	Compression int             `json:"compression,omitempty"`
	Type        string          `json:"mimeType"`
	Text        json.RawMessage `json:"text,omitempty"`
	Encoding    string          `json:"encoding,omitempty"`
	Comment     string          `json:"comment,omitempty"`
}

type pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type cookie struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Path     string `json:"path,omitempty"`
	Domain   string `json:"domain,omitempty"`
	Expires  *stamp `json:"expires,omitempty"`
	HTTPOnly bool   `json:"httpOnly"`
	Secure   bool   `json:"secure"`
	SameSite string `json:"sameSite,omitempty"`
}

// phases are the parts of a request's time; -1: it had no such part. ssl is a
// part of connect.
type phases struct {
	Blocked ms `json:"blocked"`
	DNS     ms `json:"dns"`
	Connect ms `json:"connect"`
	SSL     ms `json:"ssl"`
	Send    ms `json:"send"`
	Wait    ms `json:"wait"`
	Receive ms `json:"receive"`
}

// sum is the total time.
func (p phases) sum() (total ms) {
	for _, d := range []ms{p.Blocked, p.DNS, p.Connect, p.Send, p.Wait, p.Receive} {
		total += max(0, d)
	}
	return total
}

// stamp is a time in seconds since 1970.
type stamp float64

// MarshalJSON writes it in UTC with three decimals.
func (s stamp) MarshalJSON() ([]byte, error) {
	const most = 253402300799 // the year 9999
	t := time.UnixMilli(int64(min(max(float64(s), 0), most) * 1000))
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000Z"`)), nil
}

// ms is a time in milliseconds.
type ms float64

// MarshalJSON writes it with microseconds.
func (d ms) MarshalJSON() ([]byte, error) {
	const most = 1e12 // what is more is a broken clock
	if !(d > -most && d < most) {
		d = -1
	}
	return json.Marshal(float64(int64(d*1000)) / 1000)
}
