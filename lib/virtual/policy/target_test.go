package policy

import "testing"

func TestCheckTarget(t *testing.T) {
	for _, test := range []struct {
		method, typ string
		crashed, ok bool
	}{
		{"Page.printToPDF", "page", false, true},
		{"Page.printToPDF", "page", true, false},
		{"Page.printToPDF", "", false, false},
		{"Input.synthesizePinchGesture", "iframe", true, false},
		{"Input.synthesizeScrollGesture", "page", false, true},
		{"Page.captureScreenshot", "page", true, true},
		{"Network.setCookies", "page", true, true},
		{"Network.setCookies", "iframe", false, true},
		{"Network.setCookies", "worker", false, false},
		{"Network.setCookies", "", false, false},
		{"Network.setCookie", "service_worker", false, true},
	} {
		err := CheckTarget(test.method, func() (string, bool) { return test.typ, test.crashed })
		if (err == nil) != test.ok {
			t.Errorf("%s on a %s, crashed %v: %v", test.method, test.typ, test.crashed, err)
		}
	}
}
