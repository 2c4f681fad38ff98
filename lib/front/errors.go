package front

import (
	"errors"
	"net/http"
	"time"

	"btools/lib/control"
	"btools/lib/guard"
	"btools/lib/jsonrpc"
)

// statuses are the HTTP statuses of errors by their codes. All others have 502: the browser
// could not be reached.
var statuses = map[string]int{
	guard.NotFound:           http.StatusNotFound,
	control.SessionNotFound:  http.StatusNotFound,
	control.LeaseNotFound:    http.StatusNotFound,
	control.LeaseEnded:       http.StatusGone,
	control.OfferLapsed:      http.StatusGone,
	control.BadRequest:       http.StatusBadRequest,
	control.NotAllowed:       http.StatusForbidden,
	control.PoolNotFound:     http.StatusNotFound,
	control.InstanceNotFound: http.StatusNotFound,
	control.LeaseTimeout:     http.StatusGatewayTimeout,
	control.NoneHealthy:      http.StatusServiceUnavailable,
	control.QueueFull:        http.StatusTooManyRequests,
	control.Stopping:         http.StatusServiceUnavailable,
	control.SessionLimit:     http.StatusServiceUnavailable,
}

// Unavailable returns an error that is answered with status 503.
func Unavailable(err error) error {
	return &guard.Refusal{Status: http.StatusServiceUnavailable, Reason: control.ErrorOf(err)}
}

// Refuse answers a request with an error.
func (w *Response) Refuse(r *http.Request, err error) {
	no := refusalOf(r, err)
	if r.ContentLength != 0 { // otherwise the server waits for the body, which may never come
		http.NewResponseController(w).SetReadDeadline(time.Now()) // which ends the request's context
	}
	no.WriteResponse(w)
}

// refusalOf returns the answer to a request for an error.
func refusalOf(r *http.Request, err error) *guard.Refusal {
	var no *guard.Refusal
	var ofBrowser *jsonrpc.Error
	switch {
	case errors.As(err, &no):
		return no
	case r.Context().Err() != nil:
		err = errors.New("the client has closed its side of the connection") // it may still read
	case errors.As(err, &ofBrowser):
		return &guard.Refusal{Status: http.StatusInternalServerError, Reason: control.ErrorOf(err)}
	}
	e := control.ErrorOf(err)
	if status, ok := statuses[e.Code]; ok {
		return &guard.Refusal{Status: status, Reason: e}
	}
	return &guard.Refusal{Status: http.StatusBadGateway, Reason: e}
}
