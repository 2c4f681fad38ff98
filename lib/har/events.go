package har

import (
	"encoding/json"
	"strings"

	"btools/lib/jsonrpc"
)

// The parameters of events, as far as they matter here. Times are in seconds:
// timestamps of the browser's own clock, wall times since 1970.

type requestWillBeSent struct {
	RequestID            string       `json:"requestId"`
	LoaderID             string       `json:"loaderId"`
	Request              requestInfo  `json:"request"`
	Timestamp            float64      `json:"timestamp"`
	WallTime             float64      `json:"wallTime"`
	Initiator            initiator    `json:"initiator"`
	RedirectHasExtraInfo bool         `json:"redirectHasExtraInfo"`
	RedirectResponse     *responseRaw `json:"redirectResponse"`
	Type                 string       `json:"type"`
	FrameID              string       `json:"frameId"`
}

type requestInfo struct {
	URL             string  `json:"url"`
	Method          string  `json:"method"`
	Headers         headers `json:"headers"`
	PostData        *string `json:"postData"`
	HasPostData     bool    `json:"hasPostData"`
	InitialPriority string  `json:"initialPriority"`
	PostDataEntries []struct {
		Bytes []byte `json:"bytes"`
	} `json:"postDataEntries"`
}

type responseRaw struct {
	URL                string    `json:"url"`
	Status             int       `json:"status"`
	StatusText         string    `json:"statusText"`
	Headers            headers   `json:"headers"`
	HeadersText        string    `json:"headersText"` // of a WebSocket
	RequestHeaders     headers   `json:"requestHeaders"`
	RequestHeadersText string    `json:"requestHeadersText"`
	MimeType           string    `json:"mimeType"`
	ConnectionID       float64   `json:"connectionId"`
	RemoteIPAddress    string    `json:"remoteIPAddress"`
	FromDiskCache      bool      `json:"fromDiskCache"`
	FromPrefetchCache  bool      `json:"fromPrefetchCache"`
	FromServiceWorker  bool      `json:"fromServiceWorker"`
	Protocol           string    `json:"protocol"`
	Timing             *resource `json:"timing"`
}

// resource is a ResourceTiming: milliseconds after requestTime, which is in
// seconds.
type resource struct {
	RequestTime       float64 `json:"requestTime"`
	DNSStart          float64 `json:"dnsStart"`
	DNSEnd            float64 `json:"dnsEnd"`
	ConnectStart      float64 `json:"connectStart"`
	ConnectEnd        float64 `json:"connectEnd"`
	SSLStart          float64 `json:"sslStart"`
	SSLEnd            float64 `json:"sslEnd"`
	SendStart         float64 `json:"sendStart"`
	SendEnd           float64 `json:"sendEnd"`
	ReceiveHeadersEnd float64 `json:"receiveHeadersEnd"`
}

type requestExtra struct {
	Headers headers `json:"headers"`
	Cookies []struct {
		Blocked []string  `json:"blockedReasons"`
		Cookie  cdpCookie `json:"cookie"`
	} `json:"associatedCookies"`
}

type cdpCookie struct {
	Name     string  `json:"name"`
	Value    string  `json:"value"`
	Domain   string  `json:"domain"`
	Path     string  `json:"path"`
	Expires  float64 `json:"expires"`
	HTTPOnly bool    `json:"httpOnly"`
	Secure   bool    `json:"secure"`
	Session  bool    `json:"session"`
	SameSite string  `json:"sameSite"`
}

type responseExtra struct {
	Headers     headers `json:"headers"`
	HeadersText string  `json:"headersText"`
	Status      int     `json:"statusCode"`
}

type responseReceived struct {
	Timestamp    float64     `json:"timestamp"`
	Type         string      `json:"type"`
	Response     responseRaw `json:"response"`
	HasExtraInfo bool        `json:"hasExtraInfo"`
}

type dataReceived struct {
	DataLength        int `json:"dataLength"`
	EncodedDataLength int `json:"encodedDataLength"`
}

// loadingEnd is the end of a request: loadingFinished or loadingFailed.
type loadingEnd struct {
	Timestamp         float64 `json:"timestamp"`
	EncodedDataLength float64 `json:"encodedDataLength"`
	ErrorText         string  `json:"errorText"`
	BlockedReason     string  `json:"blockedReason"`
	CORS              *struct {
		Error string `json:"corsError"`
	} `json:"corsErrorStatus"`
}

// webSocket is any event of a WebSocket.
type webSocket struct {
	URL       string      `json:"url"`
	Initiator initiator   `json:"initiator"`
	Timestamp float64     `json:"timestamp"`
	WallTime  float64     `json:"wallTime"`
	Request   requestInfo `json:"request"`
	Response  struct {
		responseRaw
		Opcode  float64 `json:"opcode"`
		Payload string  `json:"payloadData"`
	} `json:"response"`
	ErrorMessage string `json:"errorMessage"`
}

// headers are those of a request or response, in the order of the message.
type headers []pair

// UnmarshalJSON reads an object in its order. Chrome joins headers of the same
// name with line feeds.
func (h *headers) UnmarshalJSON(b []byte) error {
	*h = nil
	return jsonrpc.Members(b, func(name, value json.RawMessage) error {
		var n, v string
		if json.Unmarshal(name, &n) == nil && json.Unmarshal(value, &v) == nil {
			for line := range strings.SplitSeq(v, "\n") {
				*h = append(*h, pair{n, line})
			}
		}
		return nil
	})
}

// get returns the first header of a name, whose case does not matter.
func (h headers) get(name string) string {
	for _, p := range h {
		if strings.EqualFold(p.Name, name) {
			return p.Value
		}
	}
	return ""
}
