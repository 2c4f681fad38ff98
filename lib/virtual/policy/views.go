package policy

// views are the methods by which a person looks at pages: none acts, runs a script or moves a page.
var views = map[string]bool{
	"Browser.getVersion": true, "Btools.take": true, "Btools.give": true, "Btools.requestHuman": true,

	"Target.setDiscoverTargets": true, "Target.getTargets": true, "Target.getTargetInfo": true,
	"Target.attachToTarget": true, "Target.detachFromTarget": true,

	"Page.enable": true, "Page.disable": true, "Page.getFrameTree": true, "Page.getLayoutMetrics": true,
	"Page.getNavigationHistory": true, "Page.captureScreenshot": true, "Page.startScreencast": true,
	"Page.stopScreencast": true, "Page.screencastFrameAck": true,

	// The page in words, for persons who do not see the picture, and which of them are in which frame.
	"Accessibility.getFullAXTree": true, "DOM.getFrameOwner": true,
}

// Views reports whether a person who looks at a session may send a method.
func Views(method string) bool { return views[method] }
