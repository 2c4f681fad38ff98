package policy

import (
	"net/netip"
	"testing"
)

func TestLeadsTo(t *testing.T) {
	own := netip.MustParseAddr("127.0.0.1")
	for _, there := range []string{
		"http://127.0.0.1:9222/json/version", "http://localhost:9222", "HTTP://LOCALHOST.:9222/", "http://127.1:9222/",
		"http://2130706433:9222/", "http://0x7f.1:9222/", "http://0177.0.0.1:9222/", "http://127.9.9.9:9222/",
		"http://[::1]:9222/", "http://[::ffff:127.0.0.1]:9222/", "http://[0:0:0:0:0:0:0:1]:9222/", "http://0:9222/",
		"http://0.0.0.0:9222/", "http://[::]:9222/", "http://a.example:9222/", "http://user:1@localhost:9222/",
		`http:\\127.0.0.1:9222\json`, "http:127.0.0.1:9222/", "http:/127.0.0.1:9222/", "ws://127.0.0.1:9222/devtools",
		" \tht\ntp://127.0.0.1:92\r22/", "http://127.0.0.1:09222/", "view-source:http://127.0.0.1:9222/",
		"blob:http://127.0.0.1:9222/id", "https://127.0.0.1:9222/", "http://%31%32%37.0.0.1:9222/",
		"http://１２７.0.0.1:9222/", "http://127.0.0.1.:9222/", "http://127.0.0.1:9222?a", "http://127.0.0.1:9222#a",
	} {
		if !LeadsTo(there, own, 9222) {
			t.Errorf("%q is not refused", there)
		}
	}
	for _, elsewhere := range []string{
		"http://127.0.0.1:9223/", "http://127.0.0.1/", "http://localhost/", "https://example.com/", "about:blank",
		"data:text/html,http://127.0.0.1:9222/", "http://192.0.2.1:9222/", "http://[2001:db8::1]:9222/",
		"http://example.com/?http://127.0.0.1:9222/", "http://127.0.0.1:92222/", "", "javascript:1", "http://[::1]/",
	} {
		if LeadsTo(elsewhere, own, 9222) {
			t.Errorf("%q is refused", elsewhere)
		}
	}
	if !LeadsTo("http://192.0.2.1:80/", netip.MustParseAddr("192.0.2.1"), 80) ||
		!LeadsTo("http://192.0.2.1/", netip.MustParseAddr("192.0.2.1"), 80) {
		t.Error("a browser of another machine can be reached")
	}
}
