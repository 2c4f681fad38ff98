package policy

import "bytes"

// MaxSmall bounds a message of a client, in bytes, unless its method carries more.
const MaxSmall = 16 << 20

// large are the methods whose parameters may be larger: they carry files, scripts,
// documents and bodies. A client writes the method before the parameters.
var large = [][]byte{
	[]byte(`"CSS.setStyleSheetText"`),
	[]byte(`"DOM.setAttributeValue"`),
	[]byte(`"DOM.setAttributesAsText"`),
	[]byte(`"DOM.setNodeValue"`),
	[]byte(`"DOM.setOuterHTML"`),
	[]byte(`"DOMStorage.setDOMStorageItem"`),
	[]byte(`"Debugger.evaluateOnCallFrame"`),
	[]byte(`"Debugger.setScriptSource"`),
	[]byte(`"Fetch.continueRequest"`),
	[]byte(`"Fetch.fulfillRequest"`),
	[]byte(`"Input.insertText"`),
	[]byte(`"Network.continueInterceptedRequest"`),
	[]byte(`"Page.addScriptToEvaluateOnNewDocument"`),
	[]byte(`"Page.setDocumentContent"`),
	[]byte(`"Runtime.callFunctionOn"`),
	[]byte(`"Runtime.compileScript"`),
	[]byte(`"Runtime.evaluate"`),
	[]byte(`"Storage.setSharedStorageEntry"`),
}

// IsLarge reports whether a message that begins so may have more than MaxSmall.
func IsLarge(head []byte) bool {
	for _, method := range large {
		if bytes.Contains(head, method) {
			return true
		}
	}
	return false
}
