package web

import (
	_ "embed" // of the description
	"net/http"
	"strconv"

	"btools/lib/front"
)

// openAPI describes all routes of bpool's port, in OpenAPI 3.1. It is written by hand; tests compare it with the
// routes, and with the answers of a service.
//
//go:embed openapi.json
var openAPI []byte

// Describe answers with the description of the routes.
func Describe(w *front.Response, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(openAPI)))
	w.Write(openAPI)
	return nil
}
