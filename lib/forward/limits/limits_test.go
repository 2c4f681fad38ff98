package limits

import (
	"net/netip"
	"strings"
	"testing"
)

func TestServer(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		pattern, scheme, host string
		port                  int
		is                    bool
	}{
		{"https://example.com", "", "example.com", 443, true},
		{"https://example.com/", "", "EXAMPLE.com.", 443, true},
		{"https://example.com", "", "example.com", 8443, false},
		{"https://example.com", "", "www.example.com", 443, false},
		{"https://example.com", "", "example.com.evil.test", 443, false},
		{"https://example.com", "http", "example.com", 80, false},
		{"https://example.com:8080", "http", "example.com", 8080, false},
		{"https://*.example.com", "", "a.b.example.com", 443, true},
		{"https://*.example.com", "", "example.com", 443, false},
		{"https://*.example.com", "", "badexample.com", 443, false},
		{"http://localhost:3000", "http", "localhost", 3000, true},
		{"http://localhost:3000", "", "localhost", 3000, true}, // ws:
		{"ws://localhost:3000", "http", "localhost", 3000, true},
		{"http://localhost:*", "http", "localhost", 9, true},
		{"example.com", "http", "example.com", 80, true},
		{"example.com", "", "example.com", 9443, true},
		{"*", "", "any.test", 1, true},
		{"https://shop-*.test", "", "shop-1.test", 443, true},
		{"127.0.0.1", "http", "[::ffff:127.0.0.1]", 80, true},
		{"http://[::1]:8080", "http", "[0:0::1]", 8080, true},
		{"[::1]", "", "::1", 443, true},
	} {
		if err := CheckPattern(x.pattern); err != nil {
			t.Errorf("%s: %v", x.pattern, err)
		}
		allow, block := Limits{Allow: []string{x.pattern}}, Limits{Block: []string{"other.test", x.pattern}}
		if err := allow.Server(x.scheme, x.host, x.port); (err == nil) != x.is {
			t.Errorf("--allow-origins %s of %s://%s:%d: %v", x.pattern, x.scheme, x.host, x.port, err)
		}
		if err := block.Server(x.scheme, x.host, x.port); (err != nil) != x.is {
			t.Errorf("--block-origins %s of %s://%s:%d: %v", x.pattern, x.scheme, x.host, x.port, err)
		}
	}
	both := Limits{Allow: []string{"*.example.com"}, Block: []string{"ads.example.com"}}
	err := both.Server("", "ads.example.com", 443)
	if err == nil || !strings.HasPrefix(err.Error(), "--block-origins: ") {
		t.Errorf("an origin that is allowed and blocked: %v", err)
	}
	if (Limits{}).Any() || !both.Any() {
		t.Error("Any does not tell whether there is a rule")
	}
}

func TestBadPatterns(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"":                         "no host",
		"https://a.test/path":      "has a path",
		"https://a.test?q":         "has a path",
		"https://a.test,b.test":    "more than one",
		"a.test b.test":            "more than one",
		"ftp://a.test":             `scheme "ftp"`,
		"*://a.test":               `scheme "*"`,
		"https://a.test:0":         `port "0"`,
		"https://a.test:http":      `port "http"`,
		"https://a.test:65536":     `port "65536"`,
		"https://u@a.test":         "'@' in its host",
		"https://a..test":          "no host",
		"https://.a.test":          "no host",
		"https://bücher.test":      "xn--",
		"127.1":                    "127.0.0.1",
		"0x7f.0.0.1":               "127.0.0.1",
		"2130706433":               "127.0.0.1",
		"::1":                      "[2001:db8::1]",
		"https://[::1":             "[2001:db8::1]",
		"https://[::1%25eth0]:443": "",
	} {
		err := CheckPattern(pattern)
		if err == nil && want != "" || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", pattern, err, want)
		}
	}
}

func TestPrivate(t *testing.T) {
	t.Parallel()
	private := Limits{Private: true}
	for address, want := range map[string]string{
		"127.8.8.8": "loopback", "::1": "loopback", "::ffff:127.0.0.1": "loopback", "::7f00:1": "loopback",
		"64:ff9b::a9fe:a9fe": "metadata", "2002:a00:1::1": "private", "10.1.2.3": "private",
		"172.31.255.255": "private",
		"192.168.1.1":    "private", "100.127.0.1": "private", "fd12::1": "private", "169.254.1.1": "link-local",
		"fe80::1%eth0": "link-local", "169.254.169.254": "metadata", "fd00:ec2::254": "metadata", "0.0.0.0": "machine",
		"::": "machine", "224.0.0.1": "multicast", "ff02::1": "multicast", "255.255.255.255": "reserved",
		"8.8.8.8": "", "172.32.0.1": "", "100.128.0.1": "", "2606:4700::1": "", "64:ff9b::808:808": "",
		"2002:808:808::1": "", "::ffff:8.8.8.8": "",
	} {
		err := private.Address(netip.MustParseAddr(address))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	if err := (Limits{}).Address(netip.MustParseAddr("127.0.0.1")); err != nil {
		t.Error(err)
	}
}

func FuzzCheckPattern(f *testing.F) {
	f.Add("https://*.example.com:8443", "a.example.com")
	f.Add("http://[::1]:*", "::1")
	f.Fuzz(func(t *testing.T, pattern, host string) {
		if CheckPattern(pattern) == nil {
			Limits{Allow: []string{pattern}, Private: true}.Server("http", host, 80)
		}
	})
}
