package child

import (
	"net/url"
	"strings"
)

// Endpoint is the browser that a child drives.
type Endpoint struct {
	ID             string
	HTTPURL, WSURL string // "": the child launches the browser itself
	Port           int
	Type           string
	Headless       bool
	Profile        string // of a browser that the child launches; "": a temporary one
	Windows        bool   // the child runs on Windows' Node.js, from WSL
}

// isBelow reports whether the endpoint is below the root of a port that other
// browsers share.
func (e *Endpoint) isBelow() bool {
	u, err := url.Parse(e.HTTPURL)
	return err == nil && strings.Trim(u.Path, "/") != ""
}
