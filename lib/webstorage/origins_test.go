package webstorage

import "testing"

func TestSiteOf(t *testing.T) {
	for origin, want := range map[string]string{
		"https://example.com":            "example.com",
		"http://www.shop.example.com:81": "example.com",
		"https://a.co.uk":                "co.uk", // more than the site
		"http://localhost:8080":          "localhost",
		"http://127.0.0.1:1":             "127.0.0.1",
		"http://[::1]:1":                 "::1",
		"":                               "",
	} {
		if got := SiteOf(origin); got != want {
			t.Errorf("the site of %q is %q, want %q", origin, got, want)
		}
	}
}
