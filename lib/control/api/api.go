// Package api has the parameters and answers of the methods on the control
// sockets of bproxy, its hub and bpool: each once, for the program and for its
// clients. It has no I/O and no state. Left out are the methods for states, which
// lib/states/remote has, and session_new: its parameters are a name and the members
// of sessions.Settings that differ from the proxy's own.
//
// A member that is left out has its zero value, unless it says otherwise. Times are
// record.Time; what ends in _ms is in milliseconds, in _seconds in seconds.
package api

import "time"

// WatchRequest is the parameters of watch.
type WatchRequest struct {
	// After is the number of the last known event; -1: only new ones. It is -1 by
	// default, and 0 for bpool.
	After *int64 `json:"after"`
}

// From is After, with the default of the program.
func (r WatchRequest) From(byDefault int64) int64 {
	if r.After == nil {
		return byDefault
	}
	return *r.After
}

// Events is the answer to watch, which comes when there is an event.
type Events[E any] struct {
	Events []E `json:"events"`
}

// DownloadsRequest is the parameters of session_downloads, with Name, and of downloads
// of bpool, with Lease. The answer is an array of downloads.File, the oldest first.
type DownloadsRequest struct {
	Name      string `json:"name,omitempty"`
	Lease     string `json:"lease,omitempty"`
	Wait      bool   `json:"wait,omitempty"`       // until there is a download and none is in progress
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // of Wait; 0: no limit
}

// Timeout is how long the answer may wait for downloads; 0: not at all.
func (r DownloadsRequest) Timeout() time.Duration {
	if !r.Wait {
		return 0
	}
	return time.Duration(r.TimeoutMS) * time.Millisecond
}
