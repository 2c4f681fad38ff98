package har

import (
	"encoding/json"
	"mime"
	"slices"
	"strings"

	"btools/lib/jsonrpc"
)

// leftOut is in the place of what an archive leaves out.
const leftOut = "***"

// withoutLogins replaces the values by which somebody else could be who the browser was: those of cookies and of
// headers that authorize, and of passwords in addresses and in the bodies of requests.
func (e *entry) withoutLogins() {
	for _, all := range [][]cookie{e.Request.Cookies, e.Response.Cookies} {
		for i := range all {
			all[i].Value = leftOut
		}
	}
	e.Request.Headers, e.Response.Headers = plainHeaders(e.Request.Headers), plainHeaders(e.Response.Headers)
	e.Request.URL, e.Response.RedirectURL = plainURL(e.Request.URL), plainURL(e.Response.RedirectURL)
	if e.Initiator != nil {
		e.Initiator.URL = plainURL(e.Initiator.URL)
	}
	plainPairs(e.Request.Query)
	if p := e.Request.Post; p != nil {
		plainPairs(p.Params)
		p.Text = plainBody(p.Text)
	}
}

// plainHeaders returns headers without the values that authorize.
func plainHeaders(all []pair) []pair {
	all = slices.Clone(all)
	for i, h := range all {
		switch strings.ToLower(h.Name) {
		case "authorization", "proxy-authorization", "cookie", "set-cookie":
			all[i].Value = leftOut
		case "location", "referer":
			all[i].Value = plainURL(h.Value)
		}
	}
	return all
}

// plainURL returns an address without passwords. Browsers omit the one before the host.
func plainURL(url string) string {
	if at, query, found := strings.Cut(url, "?"); found {
		url = at + "?" + plainForm(query)
	}
	return url
}

// isPassword reports whether a field of this name has a password.
func isPassword(name string) bool {
	name = strings.ToLower(name)
	return name == "pass" || slices.ContainsFunc([]string{"passw", "passphrase", "pwd"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

func plainPairs(all []pair) {
	for i, p := range all {
		if isPassword(p.Name) {
			all[i].Value = leftOut
		}
	}
}

// plainForm returns the parameters of a URL or form without passwords.
func plainForm(text string) string {
	all := strings.Split(text, "&")
	for i, part := range all {
		if name, _, found := strings.Cut(part, "="); found && isPassword(unescape(name)) {
			all[i] = name + "=" + leftOut
		}
	}
	return strings.Join(all, "&")
}

// plainBody returns the body of a request without passwords: a form, in parts or not, or JSON, whatever its type says.
func plainBody(text string) string {
	if boundary, _, found := strings.Cut(text, "\r\n"); found && strings.HasPrefix(boundary, "--") {
		all := strings.Split(text, boundary)
		for i, part := range all {
			head, _, found := strings.Cut(part, "\r\n\r\n")
			for line := range strings.SplitSeq(head, "\r\n") {
				_, value, _ := strings.Cut(line, ":")
				if _, params, err := mime.ParseMediaType(value); err == nil && found && isPassword(params["name"]) {
					all[i] = head + "\r\n\r\n" + leftOut + "\r\n"
				}
			}
		}
		return strings.Join(all, boundary)
	}
	if json.Valid([]byte(text)) {
		return string(plainJSON(json.RawMessage(strings.TrimSpace(text))))
	}
	return plainForm(text)
}

// plainJSON returns JSON without passwords.
func plainJSON(raw json.RawMessage) json.RawMessage {
	switch {
	case raw[0] == '[':
		var all []json.RawMessage
		for element := range jsonrpc.Elements(raw) {
			all = append(all, plainJSON(element))
		}
		return jsonrpc.Array(all)
	case raw[0] != '{':
		return raw
	}
	out := raw
	jsonrpc.Members(raw, func(name, value json.RawMessage) error {
		n := jsonrpc.String(name)
		if isPassword(n) && value[0] != '{' {
			value = jsonrpc.Quote(leftOut)
		} else {
			value = plainJSON(value)
		}
		out = jsonrpc.Set(out, n, value)
		return nil
	})
	return out
}
