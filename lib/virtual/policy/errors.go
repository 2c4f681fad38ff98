package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"btools/lib/jsonrpc"
)

// Error is an error of CDP. Texts and codes are those of Chromium 156, so that
// a client cannot distinguish what belongs to others from what does not exist.
type Error = jsonrpc.Error

// CDP's codes beyond JSON-RPC's.
const (
	ServerError     = -32000
	SessionNotFound = -32001
)

func serverError(text string) *Error   { return &Error{Code: ServerError, Message: text} }
func invalidParams(text string) *Error { return &Error{Code: jsonrpc.InvalidParams, Message: text} }

// NotAllowed refuses a command that no session of a shared browser may send.
func NotAllowed() *Error { return serverError("Not allowed in a shared browser") }

// NoMethod answers a method that the target does not have.
func NoMethod(method string) *Error {
	return &Error{Code: jsonrpc.MethodNotFound, Message: "'" + method + "' wasn't found"}
}

// NoSession answers a message with an unknown sessionId, without that.
func NoSession() *Error {
	return &Error{Code: SessionNotFound, Message: "Session with given id not found."}
}

// NoTarget answers a method that names an unknown target.
func NoTarget(method string) *Error {
	if method == "Browser.getWindowForTarget" {
		return serverError("No target with given id")
	}
	return invalidParams("No target with given id found")
}

// NoContext answers a method that names an unknown browser context.
func NoContext(method, id string) *Error {
	switch method {
	case "Target.disposeBrowserContext":
		return serverError("Failed to find context with id " + id)
	case "Target.createTarget":
		return serverError("Failed to find browser context with id " + id)
	}
	return invalidParams("Failed to find browser context for id " + id)
}

// NoWindow answers the methods that take a windowId.
func NoWindow() *Error { return serverError("Browser window not found") }

// NoDownload answers Browser.cancelDownload.
func NoDownload() *Error { return invalidParams("No download item found for the given GUID") }

// NotFlat answers a request for a session whose messages are strings inside
// other messages, where no rule could read them.
func NotFlat() *Error {
	return invalidParams("Only flatten protocol is supported with browser level auto-attach")
}

// Failure returns the error answer to a command, as Chrome writes it.
func Failure(c Command, e *Error) []byte {
	out := []byte("{")
	if c.ID != nil {
		out = slices.Concat(out, []byte(`"id":`), c.ID, []byte(","))
	}
	out = append(out, `"error":{"code":`...)
	out = strconv.AppendInt(out, int64(e.Code), 10)
	text, _ := json.Marshal(e.Message)
	out = slices.Concat(out, []byte(`,"message":`), text, []byte("}"))
	if e.Code == SessionNotFound {
		c.Session = ""
	}
	return closeMessage(out, c)
}

// Result returns the answer to a command that did not go to Chrome.
func Result(c Command, result json.RawMessage) []byte {
	return closeMessage(slices.Concat([]byte(`{"id":`), c.ID, []byte(`,"result":`), result), c)
}

// closeMessage adds the session and the closing brace.
func closeMessage(out []byte, c Command) []byte {
	if c.Session != "" {
		session, _ := json.Marshal(c.Session)
		out = slices.Concat(out, []byte(`,"sessionId":`), session)
	}
	return append(out, '}')
}

// NoFile answers a command that names a file that the session may not use.
func NoFile(name string) *Error { return invalidParams("files: " + notYours(name).Error()) }

// NoDirectory answers a command that names a directory in which the session may
// not put downloads.
func NoDirectory(dir, why string) *Error {
	return invalidParams(fmt.Sprintf("downloadPath: cannot put downloads into %q: %s; name a directory of your own, "+
		"or one that --download-root allows", dir, why))
}
