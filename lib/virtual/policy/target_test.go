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
		err := CheckTarget(Command{Method: test.method}, func() Target {
			return Target{Type: test.typ, Crashed: test.crashed}
		})
		if (err == nil) != test.ok {
			t.Errorf("%s on a %s, crashed %v: %v", test.method, test.typ, test.crashed, err)
		}
	}
	large := Command{Method: "Page.captureScreenshot",
		Params: []byte(`{"clip":{"width":5000,"height":5000,"scale":1}}`)}
	for scale, ok := range map[float64]bool{0: true, 1: true, 1.5: true, 2: false} {
		err := CheckTarget(large, func() Target { return Target{Type: "page", Scale: scale} })
		if (err == nil) != ok {
			t.Errorf("a clip of 25 megapixels at scale %v: %v", scale, err)
		}
	}
}
