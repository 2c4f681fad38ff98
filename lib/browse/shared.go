package browse

import "strconv"

// Scripts are what is loaded into a world of its own in each document: btools.run calls
// one of its functions by name. Browsers of all kinds run them.
func Scripts() string { return agentScript() }

// Address completes an address as a person would type it: example.org.
func Address(typed string) (string, error) { return normalize(typed) }

// Functions are two functions of an element for code of an agent: it is an expression,
// or else it is statements.
func Functions(code string) (expression, statements string) { return asFunction(code), asBody(code) }

// Ref returns the numbers of a target that is a ref of a snapshot: of its frame, 0 for
// the page itself, and of the element.
func (t Target) Ref() (frame, element int, ok bool) {
	m := refRule().FindStringSubmatch(string(t))
	if m == nil {
		return 0, 0, false
	}
	frame, _ = strconv.Atoi(m[1])
	element, _ = strconv.Atoi(m[2])
	return frame, element, true
}
