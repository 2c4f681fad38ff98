package api

// InstanceRequest is the parameters of stop and left of a hub.
type InstanceRequest struct {
	Instance string `json:"instance"` // the ID or port of a browser that has joined
}

// Left is the answer to left, which comes when the browser has left.
type Left struct {
	Why string `json:"why"`
}

// JoinRequest is the parameters of join, whose answer is the record of the browser with
// this mark of its launch, once it has joined.
type JoinRequest struct {
	Launch string `json:"launch"`
}

// ClaimRequest is the parameters of claim, whose answer is the record of the browser.
type ClaimRequest struct {
	As       string `json:"as,omitempty"`       // finds the browser below /session/, while it is claimed
	By       string `json:"by,omitempty"`       // who may claim a browser several times; "": nobody
	Instance string `json:"instance,omitempty"` // an ID or port; "": any that nobody has launched for itself
	Now      bool   `json:"now,omitempty"`      // fail instead of waiting for the browser, named by its ID
	Session  bool   `json:"session,omitempty"`  // give the holder a session, which ends with the claim
}
