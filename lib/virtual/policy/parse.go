package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"

	"btools/lib/jsonrpc"
)

// Command is a client's message. ID and Params are slices of the parsed
// message.
type Command struct {
	ID      json.RawMessage // a plain integer of 32 bits; nil: the answer has none
	Method  string
	Session string          // "": the connection's own
	Params  json.RawMessage // an object; nil: none
}

// Parse decodes a message as Decode does, and checks the params: if the table or a rule inspects
// those of a method, no object in them has the same name twice.
func Parse(message []byte) (Command, *Error) {
	c, refused := Decode(message)
	if refused == nil && c.Params != nil && isInspected(c.Method) {
		if err := checkUnique(c.Params, 0); err != nil {
			refused = invalidParams("Invalid parameters: " + err.Error())
		}
	}
	return c, refused
}

// Decode decodes a message as Chrome does, or refuses it, so that Chrome
// executes exactly what was checked. It accepts less than Chrome: only a plain
// integer as id (Chrome accepts 1e3, and answers 1000), no array as params, no
// \v or \f between members. Params may be malformed in a way that makes Chrome
// refuse the whole message.
//
// If there is an error, the command has an ID if Chrome's answer would have it.
func Decode(message []byte) (Command, *Error) {
	var c Command
	var method, session, params, id json.RawMessage
	var refused *Error
	refuse := func(code int, text string) {
		if refused == nil {
			refused = &Error{Code: code, Message: text}
		}
	}
	err := jsonrpc.Members(message, func(name, value json.RawMessage) error {
		var field *json.RawMessage
		switch {
		case nameIs(name, "id"):
			field = &id
		case nameIs(name, "method"):
			field = &method
		case nameIs(name, "sessionId"):
			field = &session
		case nameIs(name, "params"):
			field = &params
		default:
			refuse(jsonrpc.InvalidRequest, "Message has property other than 'id', 'method', 'sessionId', 'params'")
			return nil
		}
		if *field != nil {
			refuse(jsonrpc.ParseError, "CBOR: duplicate map key")
			return nil
		}
		*field = value
		return nil
	})
	switch {
	case err != nil && !beginsWith(message, '{'):
		return c, &Error{Code: jsonrpc.InvalidRequest, Message: "Message must be an object"}
	case err != nil:
		return c, &Error{Code: jsonrpc.ParseError, Message: "JSON: " + err.Error()}
	case !isInt32(id):
		return c, &Error{Code: jsonrpc.InvalidRequest, Message: "Message must have integer 'id' property"}
	}
	c.ID = id
	var ok bool
	if c.Method, ok = decodeString(method); !ok || c.Method == "" {
		refuse(jsonrpc.InvalidRequest, "Message must have string 'method' property")
	}
	if c.Session, ok = decodeString(session); !ok && session != nil {
		refuse(jsonrpc.InvalidRequest, "Message may have string 'sessionId' property")
	}
	if !beginsWith(params, '{') && params != nil && string(params) != "null" {
		refuse(jsonrpc.InvalidRequest, "Message may have object 'params' property")
	}
	if refused != nil {
		return c, refused
	}
	if beginsWith(params, '{') {
		c.Params = params
	}
	return c, nil
}

// beginsWith reports whether a text begins with the byte, after white space.
func beginsWith(b []byte, with byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && b[0] == with
}

// nameIs reports whether a member's name, still encoded, is the word.
func nameIs(name []byte, word string) bool {
	if isLiteral(name) {
		return string(name[1:len(name)-1]) == word
	}
	s, ok := decodeString(name)
	return ok && s == word
}

// decodeString decodes a string. It accepts less than Chrome: \v and control
// characters are refused.
func decodeString(value json.RawMessage) (string, bool) {
	if !beginsWith(value, '"') {
		return "", false
	}
	if isLiteral(value) {
		return string(value[1 : len(value)-1]), true
	}
	var s string
	return s, json.Unmarshal(value, &s) == nil
}

// isLiteral reports whether an encoded string contains no escapes.
func isLiteral(quoted []byte) bool {
	for _, c := range quoted {
		if c < ' ' || c > '~' || c == '\\' {
			return false
		}
	}
	return true
}

// isInt32 reports whether a value is an integer as Chrome would write it.
func isInt32(value json.RawMessage) bool {
	if len(value) == 0 || len(value) > len("-2147483648") {
		return false
	}
	n := 0
	digits := bytes.TrimPrefix(value, []byte("-"))
	for _, c := range digits {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int(c-'0')
	}
	negative := len(digits) < len(value)
	if len(digits) == 0 || digits[0] == '0' && (len(digits) > 1 || negative) {
		return false
	}
	return n <= math.MaxInt32 || negative && n == -math.MinInt32
}

// Limits of inspected params, which bound the time and the memory of the
// inspection: the depth of nesting, and the members of an object. CDP's own
// params nest 5 deep.
const (
	maxDepth   = 16
	maxMembers = 10_000
)

var (
	errDeep  = errors.New("they nest too deep for a shared browser")
	errMany  = errors.New("an object has too many members for a shared browser")
	errTwice = errors.New("a name appears twice in an object")
	errText  = errors.New("a malformed string")
)

// checkUnique refuses what could be read in two ways. Of two members with the
// same name, Chrome takes the last one.
func checkUnique(value json.RawMessage, depth int) error {
	switch {
	case depth > maxDepth:
		return errDeep
	case beginsWith(value, '"'):
		if !isLiteral(value) && !json.Valid(value) {
			return errText
		}
	case beginsWith(value, '['):
		for v := range jsonrpc.Elements(value) {
			if err := checkUnique(v, depth+1); err != nil {
				return err
			}
		}
	case beginsWith(value, '{'):
		var few [8]string
		names := few[:0]
		if err := jsonrpc.Members(value, func(name, v json.RawMessage) error {
			s, ok := decodeString(name)
			switch {
			case !ok:
				return errText
			case len(names) == maxMembers:
				return errMany
			}
			names = append(names, s)
			return checkUnique(v, depth+1)
		}); err != nil {
			return err
		}
		slices.Sort(names)
		if len(slices.Compact(names)) < len(names) {
			return errTwice
		}
	}
	return nil
}
