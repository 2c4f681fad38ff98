// Package jsonrpc reads and relays JSON-RPC messages without decoding what
// they carry: a message is changed where it has to be, and every other byte
// stays as it came.
package jsonrpc

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Error codes of JSON-RPC.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
)

// Message is one message. It holds the bytes that it came as.
type Message struct {
	Raw    []byte
	ID     json.RawMessage // nil: none
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
	id     member
}

// IsRequest, IsNotification and IsResponse report the kind of the message.
func (m *Message) IsRequest() bool      { return m.Method != "" && m.ID != nil }
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }
func (m *Message) IsResponse() bool     { return m.Method == "" && (m.Result != nil || m.Error != nil) }

// Parse reads a message. It checks only brackets, quotes and literals. For an
// invalid message it returns the ID, if it found one.
func Parse(raw []byte) (*Message, error) {
	m := &Message{Raw: raw}
	bad, version := false, "2.0"
	err := members(raw, func(at member) bool {
		value := json.RawMessage(raw[at.value:at.end:at.end])
		switch at.key(raw) {
		case "id":
			m.ID, m.id = value, at
			if c := value[0]; c == '{' || c == '[' || c == 't' || c == 'f' {
				m.ID, bad = nil, true
			}
		case "method":
			if json.Unmarshal(value, &m.Method) != nil {
				bad = true
			}
		case "jsonrpc":
			version = String(value)
		case "params":
			m.Params = value
		case "result":
			m.Result = value
		case "error":
			m.Error = value
		}
		return true
	})
	if err != nil && m.ID == nil {
		return nil, err
	}
	if err != nil {
		return m, err
	}
	if m.Method != "" && version != "2.0" {
		return m, fmt.Errorf("it is not of JSON-RPC 2.0")
	}
	if bad || m.Method == "" && m.Result == nil && m.Error == nil {
		return m, fmt.Errorf("it is neither request, notification nor response")
	}
	return m, nil
}

// WithID is the message with another ID.
func (m *Message) WithID(id json.RawMessage) []byte {
	return splice(m.Raw, m.id.value, m.id.end, id)
}

// WithParams is the request with other parameters.
func (m *Message) WithParams(params json.RawMessage) *Message {
	other, _ := Parse(Set(m.Raw, "params", params))
	return other
}

// Request makes a request, or, with a nil ID, a notification.
func Request(id json.RawMessage, method string, params json.RawMessage) []byte {
	quoted, _ := json.Marshal(method)
	out := []byte(`{"jsonrpc":"2.0",`)
	if id != nil {
		out = slices.Concat(out, []byte(`"id":`), id, []byte(`,`))
	}
	out = slices.Concat(out, []byte(`"method":`), quoted)
	if params != nil {
		out = slices.Concat(out, []byte(`,"params":`), params)
	}
	return append(out, '}')
}

// Response makes the answer to a request.
func Response(id, result json.RawMessage) []byte {
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"result":`), result, []byte(`}`))
}

// Error is an error as it travels. Data may be nil.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ErrorOf is the error of a response, nil if it is none.
func ErrorOf(m *Message) error {
	if m.Error == nil {
		return nil
	}
	e := &Error{}
	if err := json.Unmarshal(m.Error, e); err != nil {
		e.Code, e.Message = InternalError, string(m.Error)
	}
	return e
}

// Failure makes the answer to a request that failed; the ID may be nil, if it
// is not known.
func Failure(id json.RawMessage, e *Error) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	b, _ := json.Marshal(e)
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"error":`), b, []byte(`}`))
}

// Quote is a string in JSON.
func Quote(s string) json.RawMessage {
	b, _ := json.Marshal(s) // which a string never fails
	return b
}

// Clip is the beginning of what came, for an error that says what is wrong with it.
func Clip(b []byte) string {
	if len(b) > 200 {
		return fmt.Sprintf("%q…", b[:200])
	}
	return fmt.Sprintf("%q", b)
}
