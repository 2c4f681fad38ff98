package policy

import (
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	for _, allowed := range []string{
		"http://a/", "HTTPS://a", " \x00\thttp://a", "ht\ntp://a", "about:blank", "about:blank#x", "About:srcdoc",
		"data:text/html,x",
		"blob:http://a/1", "javascript:1", "view-source:http://a/",
		"view-source: \tHTTP://a", "blob:null/1", "", "/etc/passwd", "a/b:c", "1a:b", ":",
	} {
		if err := URL(allowed); err != nil {
			t.Errorf("%q: %v", allowed, err)
		}
	}
	for _, refused := range []string{
		"file:///etc/passwd", " \tfile:///", "fi\nle:///", "FILE:/", "\x1ffile:", "view-source:file:///",
		"VIEW-SOURCE:file:///",
		"view-source: file:///", "view-source:\x01file:///", "view-source:", "view-source:/etc", "blob:file:///x",
		"blob:chrome://settings/x",
		"view-source:view-source:http://a", "view-source:chrome://quit", "chrome://quit", "Chrome:quit",
		"chrome-untrusted://x",
		"chrome-extension://x", "devtools://devtools/bundled/inspector.html", "about:settings", "about:BLANK",
		"about:blankx", "mailto:a@b", "ws://a", "filesystem:http://a/", "isolated-app://x", "C:\\x", "intent://x",
	} {
		if URL(refused) == nil {
			t.Errorf("%q is allowed", refused)
		}
	}
}

func TestFiles(t *testing.T) {
	roots := []string{"/tmp/up", "/srv/files/"}
	for _, allowed := range []string{"/tmp/up/a", "/tmp/up/../up/a", "/tmp/up/b/../a", "/srv/files/..a",
		"/srv//files/./a/b"} {
		if err := Files([]string{allowed}, roots); err != nil {
			t.Errorf("%q: %v", allowed, err)
		}
	}
	for _, refused := range []string{"", "a", "up/a", "/tmp/up", "/tmp/up/", "/tmp/up/..", "/tmp/up/../a", "/tmp/upper",
		"/tmp/up/a/../../x",
		"/etc/passwd", "/tmp/up/a\x00", "file:///tmp/up/a", "~/a"} {
		if Files([]string{"/tmp/up/a", refused}, roots) == nil {
			t.Errorf("%q is allowed", refused)
		}
	}
	if Files([]string{"/a"}, nil) == nil || Files(nil, nil) != nil {
		t.Error("without roots no file is allowed")
	}
}

func TestCheck(t *testing.T) {
	for _, test := range []struct{ method, params, kept, err string }{
		{"Page.navigate", `{"url":"http://a/"}`, `{"url":"http://a/"}`, ""},
		{"Page.navigate", `{"url":"f\u0069le:///"}`, "", "url: cannot open file:"},
		{"Page.navigate", `{"url":5}`, `{"url":5}`, ""},
		{"Page.navigate", ``, ``, ""},
		{"Page.reload", `{"url":"file:///"}`, `{"url":"file:///"}`, ""},
		{"Target.createTarget", `{"url":"chrome://quit"}`, "", "url: cannot open chrome:"},
		{"Fetch.continueRequest", `{"requestId":"1","url":"wss://a/"}`, `{"requestId":"1","url":"wss://a/"}`, ""},
		{"Fetch.continueRequest", `{"requestId":"1","url":"file:///a"}`, ``, "url: cannot open file:"},
		{"DOM.setFileInputFiles", `{"files":["/up/a"]}`, `{"files":["/up/a"]}`, ""},
		{"DOM.setFileInputFiles", `{"files":["/up/a","/etc/passwd"]}`, ``, `files: cannot read "/etc/passwd"`},
		{"DOM.setFileInputFiles", `{"files":"/etc/passwd"}`, ``, "files: they are not file names"},
		{"Input.dispatchDragEvent", `{"data":{"items":[],"files":["/etc/passwd"]}}`, ``,
			"data.files: cannot drop files"},
		{"Input.dispatchDragEvent", `{"data":{"items":[],"files":[]}}`, `{"data":{"items":[],"files":[]}}`, ""},
		{"Storage.overrideQuotaForOrigin", `{"quotaSize":-1}`, "", "quotaSize"},
		{"Storage.overrideQuotaForOrigin", `{"quotaSize":1e19}`, "", "quotaSize"},
		{"Storage.overrideQuotaForOrigin", `{"quotaSize":5e9}`, `{"quotaSize":5e9}`, ""},
		{"Input.dispatchDragEvent", `{"data":{"items":[]}}`, `{"data":{"items":[]}}`, ""},
		{"Input.dispatchKeyEvent", `{"type":"keyDown","nativeVirtualKeyCode":78,"key":"n"}`,
			`{"type":"keyDown","key":"n"}`, ""},
		{"Input.dispatchKeyEvent", `{"\u006eativeVirtualKeyCode":78}`, `{}`, ""},
		{"Input.imeSetComposition", `{"replacementStart":-1}`, "", "replacementStart"},
		{"Input.imeSetComposition", `{"replacementStart":0,"replacementEnd":1e1}`,
			`{"replacementStart":0,"replacementEnd":1e1}`, ""},
		{"Page.printToPDF", `{"paperWidth":1e-10,"paperHeight":11}`, "", "paperWidth: must be 0.01 to"},
		{"Page.printToPDF", `{"paperHeight":1e-320}`, "", "paperHeight"},
		{"Page.printToPDF", `{"paperHeight":2000}`, `{"paperHeight":2000}`, ""},
		{"Page.captureScreenshot", `{"clip":{"width":100,"height":100,"scale":1000}}`, "",
			"clip: a picture has at most"},
		{"Page.captureScreenshot", `{"clip":{"width":1e308,"height":1e308,"scale":1}}`, "", "clip"},
		{"Page.captureScreenshot", `{"clip":{"width":1e999,"height":1,"scale":0}}`, "", "clip"},
		{"Page.captureScreenshot", `{"clip":{"width":-9e4,"height":9e4,"scale":1}}`, "", "clip"},
		{"Page.captureScreenshot", `{"clip":{"width":10,"height":1e6,"scale":1}}`, "", "clip"},
		{"Page.captureScreenshot", `{"clip":{"width":1280,"height":50000,"scale":1}}`,
			`{"clip":{"width":1280,"height":50000,"scale":1}}`, ""},
		{"Page.captureScreenshot", `{"format":"png"}`, `{"format":"png"}`, ""},
		{"Emulation.setDeviceMetricsOverride", `{"width":8000,"height":8000,"deviceScaleFactor":3}`, "", "megapixels"},
		{"Emulation.setDeviceMetricsOverride", `{"width":0,"height":0,"deviceScaleFactor":100}`, "", "megapixels"},
		{"Emulation.setDeviceMetricsOverride", `{"width":1e6,"height":1e6}`, "", "megapixels"},
		{"Emulation.setDeviceMetricsOverride", `{"width":1280,"height":50000,"deviceScaleFactor":0}`,
			`{"width":1280,"height":50000,"deviceScaleFactor":0}`, ""},
		{"Emulation.setDeviceMetricsOverride", `{"devicePosture":{"type":"x"}}`, "", "devicePosture.type: must be"},
		{"Emulation.setDeviceMetricsOverride", `{"devicePosture":{"type":"folded"}}`,
			`{"devicePosture":{"type":"folded"}}`, ""},
		{"Page.navigate", `{"url":"http://a/","transitionType":"auto_\u0073ubframe"}`, "", "transitionType: cannot be"},
		{"Page.navigate", `{"url":"http://a/","transitionType":"link"}`,
			`{"url":"http://a/","transitionType":"link"}`, ""},
		{"Input.dispatchTouchEvent", `{"type":"touchStart","timestamp":-1.7976931348623157e308}`, "", "timestamp"},
		{"Input.dispatchTouchEvent", `{"type":"touchStart","timestamp":1795577000.5}`,
			`{"type":"touchStart","timestamp":1795577000.5}`, ""},
		{"Emulation.setDeviceMetricsOverride", `{"width":1,"viewport":{"width":1,"height":1,"scale":1e9}}`, "", "view"},
		{"Browser.setWindowBounds", `{"bounds":{"windowState":"x"}}`, "", "bounds.windowState: must be normal or"},
		{"Browser.setWindowBounds", `{"bounds":{"width":1e9,"height":1e9}}`, "", "bounds: a window has at most 8192"},
		{"Browser.setWindowBounds", `{"bounds":{"height":8193}}`, "", "bounds: a window has at most 8192"},
		{"Browser.setWindowBounds", `{"bounds":{"width":1920,"height":1080,"windowState":"normal"}}`,
			`{"bounds":{"width":1920,"height":1080,"windowState":"normal"}}`, ""},
		{"Browser.setContentsSize", `{"width":1e9,"height":1}`, "", "Emulation.setDeviceMetricsOverride gives"},
		{"Browser.setContentsSize", `{"width":-8193}`, "", "a window"},
		{"Browser.setContentsSize", `{"height":8192}`, `{"height":8192}`, ""},
		{"Target.createTarget", `{"url":"http://a/","width":2147483647,"height":2147483647}`, "", "a window"},
		{"Target.createTarget", `{"url":"http://a/","height":1e999}`, "", "a window"},
		{"Input.synthesizeTapGesture", `{"tapCount":2147483647}`, "", "tapCount"},
		{"Input.synthesizeTapGesture", `{"tapCount":2}`, `{"tapCount":2}`, ""},
		{"Target.attachToTarget", `{"targetId":"A"}`, "", "flatten"},
		{"Target.attachToTarget", `{"targetId":"A","flatten":true}`, `{"targetId":"A","flatten":true}`, ""},
		{"Target.setAutoAttach", `{"autoAttach":false}`, `{"autoAttach":false}`, ""},
		{"Target.setAutoAttach", `{"autoAttach":true,"flatten":false}`, ``, "flatten"},
	} {
		c := Command{Method: test.method}
		if test.params != "" {
			c.Params = []byte(test.params)
		}
		kept, err := Check(c, []string{"/up"})
		if err == nil && test.err != "" || err != nil && (test.err == "" || !strings.Contains(err.Message, test.err)) ||
			string(kept) != test.kept {
			t.Errorf("%s %s: %s, %v", test.method, test.params, kept, err)
		}
	}
}

// A rule whose method the table does not let through would be dead.
func TestRulesArePassed(t *testing.T) {
	for _, p := range params {
		if a := Lookup(p.method, true).Action; a == Refuse || a == Missing {
			t.Errorf("%s is judged and %v", p.method, a)
		}
	}
}
