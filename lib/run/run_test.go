package run

import (
	"slices"
	"strings"
	"testing"

	"btools/lib/record"
)

// A command learns of its browser by its arguments and by its environment.
func TestEndpoint(t *testing.T) {
	http, ws := "http://127.0.0.1:9222", "ws://127.0.0.1:9222/devtools/browser/1"
	for _, c := range []struct {
		name     string
		endpoint Endpoint
		args     string // of "{cdp_port} {cdp_endpoint} --ws={ws_endpoint} {other}"
		environ  string // sorted
	}{
		{"no browser", Endpoint{}, "0  --ws= {other}", ""},
		{"a browser", Endpoint{ID: "inst_1", HTTPURL: http, WSURL: ws, Port: 9222},
			"9222 " + http + " --ws=" + ws + " {other}",
			"BTOOLS_CDP_URL=" + http + " BTOOLS_ID=inst_1 BTOOLS_PORT=9222 BTOOLS_PROTOCOL=cdp BTOOLS_WS_URL=" + ws},
		{"Firefox", Endpoint{HTTPURL: http, WSURL: ws, Port: 9222, Protocol: record.BiDi},
			"9222 " + http + " --ws=" + ws + " {other}",
			"BTOOLS_CDP_URL= BTOOLS_ID= BTOOLS_PORT=9222 BTOOLS_PROTOCOL=bidi BTOOLS_WS_URL=" + ws},
		{"a browser below a port's root", Endpoint{HTTPURL: http + "/s/1", WSURL: ws},
			"0 " + http + "/s/1 --ws=" + ws + " {other}",
			"BTOOLS_CDP_URL=" + http + "/s/1 BTOOLS_ID= BTOOLS_PROTOCOL=cdp BTOOLS_WS_URL=" + ws},
	} {
		argv := []string{CDPPort, CDPEndpoint, "--ws=" + WSEndpoint, "{other}"}
		if got := strings.Join(c.endpoint.Expand(argv), " "); got != c.args {
			t.Errorf("%s: the arguments are %q, want %q", c.name, got, c.args)
		}
		if got := strings.Join(slices.Sorted(slices.Values(c.endpoint.Environ())), " "); got != c.environ {
			t.Errorf("%s: the environment is %q, want %q", c.name, got, c.environ)
		}
	}
}
