package policy

import (
	"strings"

	"btools/lib/jsonrpc"
)

// While says what becomes of a command of a client while a person has control of its session.
type While int

const (
	// Goes is done: it reads, or sets up.
	Goes While = iota
	// Waits acts, moves the page, or changes what it is: it waits for the end of control.
	Waits
	// Script is Waits, unless the person lets scripts go on.
	Script
	// Serves is done also behind a command that waits: what waits for it would stop.
	Serves
	// Setup is Goes for a page that is paused until it has been set up, else Script.
	Setup
)

// whiles are the methods, or domains as "Domain.*", that do not go on as they are.
var whiles = func() map[string]While {
	all := map[string]While{}
	for w, methods := range map[While]string{
		Waits: `Input.* WebAuthn.* FedCm.* DeviceAccess.* Autofill.trigger WebMCP.invokeTool
			Animation.seekAnimations Animation.setPaused Animation.setTiming
			Browser.cancelDownload Browser.close
			CSS.addRule CSS.createStyleSheet CSS.setContainerQueryText CSS.setContainerQueryConditionText
			CSS.setEffectivePropertyValueForNode CSS.setKeyframeKey CSS.setMediaText CSS.setNavigationText
			CSS.setPropertyRulePropertyName CSS.setRuleSelector CSS.setScopeText CSS.setStyleSheetText
			CSS.setStyleTexts CSS.setSupportsText
			CacheStorage.deleteCache CacheStorage.deleteEntry
			DOM.copyTo DOM.focus DOM.forceShowInterest DOM.forceShowPopover DOM.markUndoableState DOM.moveTo DOM.redo
			DOM.removeAttribute DOM.removeNode DOM.scrollIntoViewIfNeeded DOM.setAttributesAsText DOM.setAttributeValue
			DOM.setFileInputFiles DOM.setNodeName DOM.setNodeValue DOM.setOuterHTML DOM.undo
			DOMStorage.clear DOMStorage.removeDOMStorageItem DOMStorage.setDOMStorageItem
			Debugger.pause Debugger.restartFrame Debugger.setReturnValue Debugger.setScriptSource
			Debugger.setVariableValue
			FindInPage.findFirst FindInPage.findNext FindInPage.findPrev FindInPage.stop
			IndexedDB.clearObjectStore IndexedDB.deleteDatabase IndexedDB.deleteObjectStoreEntries
			Network.clearBrowserCache Network.clearBrowserCookies Network.deleteCookies
			Network.deleteDeviceBoundSession Network.replayXHR Network.setCookie Network.setCookies
			Overlay.setInspectMode
			Page.bringToFront Page.clearCompilationCache Page.close Page.crash Page.generateTestReport
			Page.handleJavaScriptDialog Page.navigate Page.navigateToHistoryEntry Page.reload
			Page.resetNavigationHistory Page.setDocumentContent Page.setWebLifecycleState Page.stopLoading
			Page.waitForDebugger
			Runtime.terminateExecution
			ServiceWorker.deliverPushMessage ServiceWorker.dispatchPeriodicSyncEvent
			ServiceWorker.dispatchSyncEvent ServiceWorker.skipWaiting ServiceWorker.startWorker
			ServiceWorker.stopAllWorkers ServiceWorker.stopWorker ServiceWorker.unregister
			ServiceWorker.updateRegistration
			Storage.clearCookies Storage.clearDataForOrigin Storage.clearDataForStorageKey
			Storage.clearPrivateVerificationTokens Storage.clearTrustTokens Storage.deletePrivateVerificationToken
			Storage.deleteStorageBucket Storage.runBounceTrackingMitigations Storage.setCookies
			Target.activateTarget Target.closeTarget Target.createTarget Target.disposeBrowserContext`,
		Script: `Debugger.evaluateOnCallFrame Runtime.callFunctionOn Runtime.evaluate Runtime.runScript`,
		Serves: `Btools.requestHuman Btools.waitUntilFree Debugger.resume
			Fetch.continueRequest Fetch.continueResponse Fetch.continueWithAuth Fetch.failRequest Fetch.fulfillRequest
			Page.screencastFrameAck Runtime.releaseObject Runtime.releaseObjectGroup
			Runtime.runIfWaitingForDebugger Target.detachFromTarget`,
	} {
		for _, m := range strings.Fields(methods) {
			all[m] = w
		}
	}
	return all
}()

// InPrivate reports whether a command is done while a person is private: it tells nothing of pages.
func InPrivate(c Command) bool { return c.Method == "Browser.getVersion" || During(c) == Serves }

// During returns what becomes of a command while a person has control.
func During(c Command) While {
	if c.Method == "Page.addScriptToEvaluateOnNewDocument" && jsonrpc.Get(c.Params, "runImmediately") != nil {
		return Setup
	}
	if w, ok := whiles[c.Method]; ok {
		return w
	}
	domain, _, _ := strings.Cut(c.Method, ".")
	return whiles[domain+".*"]
}
