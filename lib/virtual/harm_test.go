package virtual

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"btools/lib/cdp/wire"
	"btools/lib/jsonrpc"
	"btools/lib/websocket"
)

// Each of these crashes Chromium 156, or stops it for a minute, and with it the pages of
// all sessions.
func TestChromeSurvivesWhatEndsIt(t *testing.T) {
	t.Parallel()
	b := openChrome(t)
	s := newSession(t, b, Options{})
	p := connect(t, s, "")
	flat := map[string]any{"autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true}
	refused := func(session, method string, params any, with string) {
		t.Helper()
		m := p.call(session, method, params)
		if text := jsonrpc.GetString(m, "error", "message"); !strings.Contains(text, with) {
			t.Errorf("%s: %s", method, m)
		}
	}
	page := jsonrpc.GetString(p.must("", "Target.attachToTarget",
		map[string]any{"targetId": p.pages()[0], "flatten": true}), "sessionId")

	refused(page, "Emulation.setDisplayFeaturesOverride", map[string]any{"features": []any{}}, "Not allowed")
	refused(page, "Page.startScreenRecording", nil, "Not allowed")
	refused(page, "Page.stopScreenRecording", nil, "Not allowed")
	refused(page, "Storage.overrideQuotaForOrigin", map[string]any{"origin": "http://a.test", "quotaSize": -1},
		"quotaSize")
	refused(page, "Input.imeSetComposition",
		map[string]any{"text": "a", "selectionStart": 0, "selectionEnd": 0, "replacementStart": -1,
			"replacementEnd": 0},
		"replacementStart")

	refused(page, "Emulation.setDeviceMetricsOverride", map[string]any{"width": 1, "height": 1, "deviceScaleFactor": 1,
		"mobile": true, "devicePosture": map[string]any{"type": "x"}}, "devicePosture.type")
	refused(page, "Page.printToPDF", map[string]any{"paperWidth": 1e-10, "paperHeight": 1e-10}, "paperWidth")
	clip := func(side, scale float64) map[string]any {
		return map[string]any{"clip": map[string]any{"x": 0, "y": 0, "width": side, "height": side, "scale": scale}}
	}
	refused(page, "Page.captureScreenshot", clip(100, 1000), "megapixels")
	// What counts is the scale of the page, whichever client emulates it.
	scaled, own := attached(t, s)
	metrics := map[string]any{"width": 300, "height": 300, "deviceScaleFactor": 4, "mobile": false}
	scaled.must(own, "Emulation.setDeviceMetricsOverride", metrics)
	refused(page, "Page.captureScreenshot", clip(3000, 1), "megapixels")
	p.must(page, "Page.captureScreenshot", clip(10, 1))
	scaled.must(own, "Emulation.clearDeviceMetricsOverride", nil)
	p.must(page, "Page.captureScreenshot", clip(3000, 1))

	window := jsonrpc.Get(p.must("", "Browser.getWindowForTarget", map[string]any{"targetId": p.pages()[0]}),
		"windowId")
	refused("", "Browser.setContentsSize", map[string]any{"windowId": window, "height": 100_000}, "8192 pixels")
	refused("", "Browser.setWindowBounds",
		map[string]any{"windowId": window, "bounds": map[string]any{"height": 100_000}}, "8192 pixels")
	refused("", "Target.createTarget", map[string]any{"url": "about:blank", "newWindow": true, "height": 100_000},
		"8192 pixels")

	p.must(page, "Target.setAutoAttach", flat)
	p.must(page, "Runtime.evaluate", map[string]any{"expression": `w = new Worker("data:text/javascript,0"); 1`})
	worker := jsonrpc.GetString(p.event("Target.attachedToTarget", `"worker"`), "params", "sessionId")
	refused(worker, "Network.setCookies", map[string]any{"cookies": []any{}}, "Network.setCookies is for pages")
	p.must(page, "Network.setCookies", map[string]any{"cookies": []any{}})

	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.Write([]byte("<html>"))
	}))
	t.Cleanup(site.Close)
	p.must(page, "Page.enable", nil)
	p.must(page, "Page.navigate", map[string]any{"url": site.URL})
	p.event("Page.loadEventFired", page)
	p.must(page, "Runtime.evaluate", map[string]any{"awaitPromise": true, "expression": `new Promise(loaded => {
		const f = document.createElement("iframe")
		f.src = location.href.replace("127.0.0.1", "localhost")
		f.onload = () => loaded(1)
		document.body.append(f)
	})`})
	frame := jsonrpc.GetString(p.event("Target.attachedToTarget", `"iframe"`), "params", "sessionId")
	if m := p.call(frame, "Input.synthesizeScrollGesture", map[string]any{"x": 1, "y": 1}); strings.Contains(string(m),
		"Target crashed") {
		t.Errorf("a living frame: %s", m)
	}
	p.conn.Write(wire.Command("1000001", frame, "Page.crash", nil))
	refused(frame, "Input.synthesizeScrollGesture", map[string]any{"x": 1, "y": 1}, "Target crashed")
	p.event("Inspector.targetCrashed", frame)
	refused(frame, "Input.synthesizePinchGesture", map[string]any{"x": 1, "y": 1, "scaleFactor": 1}, "Target crashed")

	p.must(page, "Page.printToPDF", nil)
	p.conn.Write(wire.Command("1000000", page, "Page.crash", nil))
	refused(page, "Page.printToPDF", nil, "Target crashed")
	p.event("Inspector.targetCrashed", page)
	refused(page, "Page.printToPDF", nil, "Target crashed")
	p.must("", "Target.attachToTarget", map[string]any{"targetId": p.pages()[0], "flatten": true})
	refused(page, "Page.printToPDF", nil, "Target crashed")
	p.must(page, "Page.navigate", map[string]any{"url": "data:text/html,again"})
	p.event("Inspector.targetReloadedAfterCrash", "")
	// The watcher gets its own event of the crash.
	for strings.Contains(string(p.call(page, "Page.printToPDF", nil)), "Target crashed") {
	}
}

// A page that opens another dialog when it is to go elsewhere ends no browser with its client.
func TestChromeSurvivesDialogs(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Write([]byte(`<script>setTimeout(() => { alert("first"); alert("second") })</script>`))
	}))
	t.Cleanup(site.Close)
	b := openChrome(t)
	s := newSession(t, b, Options{})
	other := connect(t, s, "")
	other.must("", "Target.setDiscoverTargets", map[string]any{"discover": true})
	for _, end := range []string{"Page.disable", "Target.detachFromTarget", ""} {
		p := connect(t, s, "")
		page := jsonrpc.GetString(p.must("", "Target.createTarget", map[string]any{"url": "about:blank"}), "targetId")
		at := p.attach(page)
		p.must(at, "Page.enable", nil)
		p.must(at, "Page.navigate", map[string]any{"url": site.URL})
		p.event("Page.javascriptDialogOpening", "first")
		p.must(at, "Page.navigate", map[string]any{"url": site.URL + "/other"})
		p.event("Page.javascriptDialogOpening", "second")
		switch end {
		case "":
			p.conn.Close(websocket.Normal, "")
		case "Page.disable":
			p.begin(at, end, nil)
		default:
			p.begin("", end, map[string]any{"sessionId": at})
		}
		other.event("Target.targetDestroyed", page)
		other.must("", "Browser.getVersion", nil)
	}
	if err := b.sync(t.Context()); err != nil {
		t.Error(err)
	}
}

// A screenshot of one client leaves the emulation of another one as it is.
func TestScreenshotKeepsEmulation(t *testing.T) {
	t.Parallel()
	s := newSession(t, sharedBrowser(t), Options{})
	p, page := attached(t, s)
	other, own := attached(t, s)
	p.must(page, "Emulation.setDeviceMetricsOverride",
		map[string]any{"width": 300, "height": 200, "deviceScaleFactor": 2, "mobile": false})
	for _, params := range []map[string]any{nil, {"captureBeyondViewport": true},
		{"clip": map[string]any{"x": 0, "y": 0, "width": 100, "height": 100, "scale": 0.5}},
		{"captureBeyondViewport": true,
			"clip": map[string]any{"x": 0, "y": 0, "width": 100, "height": 400, "scale": 1}},
	} {
		other.must(own, "Page.captureScreenshot", params)
		got := p.must(page, "Runtime.evaluate", map[string]any{
			"expression": "[innerWidth, innerHeight, devicePixelRatio].join()"})
		if size := jsonrpc.GetString(got, "result", "value"); size != "300,200,2" {
			t.Errorf("after a screenshot with %v: %s", params, size)
		}
	}
}
