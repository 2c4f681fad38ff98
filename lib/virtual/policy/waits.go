package policy

import "strings"

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
)

// whiles are the methods, or domains as "Domain.*", that do not go on as they are.
var whiles = func() map[string]While {
	all := map[string]While{}
	for w, methods := range map[While]string{
		Waits: `Input.* WebAuthn.* FedCm.* DeviceAccess.* Autofill.trigger WebMCP.invokeTool Debugger.pause
			Overlay.setInspectMode Browser.close
			Page.navigate Page.reload Page.navigateToHistoryEntry Page.stopLoading Page.close Page.crash
			Page.setDocumentContent Page.handleJavaScriptDialog Page.bringToFront
			Page.setWebLifecycleState
			DOM.focus DOM.setFileInputFiles DOM.scrollIntoViewIfNeeded DOM.setAttributeValue DOM.setAttributesAsText
			DOM.setNodeName DOM.setNodeValue DOM.setOuterHTML DOM.removeAttribute DOM.removeNode DOM.moveTo DOM.copyTo
			DOM.undo DOM.redo
			Target.createTarget Target.closeTarget Target.activateTarget Target.disposeBrowserContext
			Storage.clearCookies Storage.clearDataForOrigin Storage.clearDataForStorageKey Storage.setCookies
			Network.clearBrowserCookies Network.deleteCookies Network.setCookie Network.setCookies
			Network.clearBrowserCache
			DOMStorage.clear DOMStorage.removeDOMStorageItem DOMStorage.setDOMStorageItem
			IndexedDB.clearObjectStore IndexedDB.deleteDatabase IndexedDB.deleteObjectStoreEntries
			CacheStorage.deleteCache CacheStorage.deleteEntry`,
		Script: `Runtime.evaluate Runtime.callFunctionOn Runtime.runScript Debugger.evaluateOnCallFrame`,
		Serves: `Page.screencastFrameAck Fetch.continueRequest Fetch.continueResponse Fetch.continueWithAuth
			Fetch.fulfillRequest Fetch.failRequest Runtime.runIfWaitingForDebugger Runtime.releaseObject
			Runtime.releaseObjectGroup Target.detachFromTarget Btools.waitUntilFree`,
	} {
		for _, m := range strings.Fields(methods) {
			all[m] = w
		}
	}
	return all
}()

// During returns what becomes of a method while a person has control.
func During(method string) While {
	if w, ok := whiles[method]; ok {
		return w
	}
	domain, _, _ := strings.Cut(method, ".")
	return whiles[domain+".*"]
}
