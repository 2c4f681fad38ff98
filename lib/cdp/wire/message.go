package wire

import (
	"encoding/json"
	"strconv"
)

// Command returns the message of a command. params is raw JSON, or a value to
// encode.
func Command(id, session, method string, params any) []byte {
	b := append([]byte(`{"id":`), id...)
	b = append(append(b, `,"method":`...), strconv.Quote(method)...)
	if raw, ok := params.(json.RawMessage); ok && raw != nil {
		b = append(append(b, `,"params":`...), raw...)
	} else if !ok && params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			panic(err) // of strings, numbers and maps of them
		}
		b = append(append(b, `,"params":`...), raw...)
	}
	return closeMessage(b, session)
}

// Event returns the message of an event.
func Event(session, method string, params any) []byte {
	raw, err := json.Marshal(params)
	if err != nil {
		panic(err) // of raw JSON that was read from Chrome, strings and booleans
	}
	b := append([]byte(`{"method":`), strconv.Quote(method)...)
	return closeMessage(append(append(b, `,"params":`...), raw...), session)
}

// closeMessage adds the session and the closing brace to an object.
func closeMessage(b []byte, session string) []byte {
	if session != "" {
		quoted, _ := json.Marshal(session)
		b = append(append(b, `,"sessionId":`...), quoted...)
	}
	return append(b, '}')
}

// IDOf returns the id of an answer. Chrome writes it first.
func IDOf(b []byte) (id int, ok bool) {
	const head = `{"id":`
	if len(b) <= len(head) || string(b[:len(head)]) != head {
		return 0, false
	}
	i := len(head)
	sign := 1
	if b[i] == '-' {
		sign, i = -1, i+1
	}
	for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		id, ok = id*10+int(b[i]-'0'), true
		if id > 1<<40 {
			return 0, false
		}
	}
	return sign * id, ok && i < len(b)
}
