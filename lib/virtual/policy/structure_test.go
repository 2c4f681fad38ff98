package policy

import (
	"encoding/json"
	"strings"
	"testing"
)

// Of what happens while a person is private, clients get what pages, frames and contexts there are, and no text of
// them.
func TestStructure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, params, want string }{
		{"Page.frameNavigated", `{"frame":{"id":"F","loaderId":"L","url":` +
			`"https://user:pw@shop.example:8443/x?secret#secret","domainAndRegistry":"secret",` +
			`"securityOrigin":"https://shop.example:8443","urlFragment":"#secret",` +
			`"name":"secret","mimeType":"text/html","secureContextType":"Secure","gatedAPIFeatures":["a"]},` +
			`"type":"Navigation"}`,
			`{"frame":{"domainAndRegistry":"","gatedAPIFeatures":["a"],"id":"F","loaderId":"L",` +
				`"mimeType":"text/html","name":"","secureContextType":"Secure",` +
				`"securityOrigin":"https://shop.example:8443",` +
				`"url":"https://shop.example:8443/"},"type":"Navigation"}`},
		{"Page.frameAttached", `{"frameId":"F","parentFrameId":"P","stack":{"callFrames":[{"url":"secret"}]}}`,
			`{"frameId":"F","parentFrameId":"P"}`},
		{"Target.targetInfoChanged", `{"targetInfo":{"targetId":"T","type":"page","title":"secret",` +
			`"url":"data:secret","attached":true,"browserContextId":"C"}}`,
			`{"targetInfo":{"attached":true,"browserContextId":"C","targetId":"T","title":"",` +
				`"type":"page","url":"data:"}}`},
		{"Target.attachedToTarget", `{"sessionId":"S","waitingForDebugger":true,"targetInfo":` +
			`{"url":"about:blank#secret"}}`,
			`{"sessionId":"S","targetInfo":{"url":"about:"},"waitingForDebugger":false}`},
		{"Runtime.executionContextCreated", `{"context":{"id":7,"origin":"https://a.example","name":"secret",` +
			`"uniqueId":"-1.2","auxData":{"isDefault":true,"type":"default","frameId":"F"}}}`,
			`{"context":{"auxData":{"frameId":"F","isDefault":true,"type":"default"},"id":7,"name":"",` +
				`"origin":"https://a.example","uniqueId":"-1.2"}}`},
		{"Runtime.executionContextCreated", `{"context":{"name":"utility","auxData":{"type":"isolated"}}}`,
			`{"context":{"auxData":{"type":"isolated"},"name":"utility"}}`},
		{"Page.lifecycleEvent", `{"frameId":"F","name":"load","timestamp":123.4560}`,
			`{"frameId":"F","name":"load","timestamp":123.4560}`},
		{"Page.javascriptDialogOpening", `{"url":"http://a/?secret","message":"secret","type":"prompt",` +
			`"hasBrowserHandler":false,"defaultPrompt":"secret"}`,
			`{"defaultPrompt":"","hasBrowserHandler":false,"message":"","type":"prompt","url":"http://a/"}`},
		{"Browser.downloadProgress", `{"guid":"G","totalBytes":1,"state":"completed","filePath":"/secret"}`,
			`{"filePath":"","guid":"G","state":"completed","totalBytes":1}`},
	} {
		if got := string(Structure(c.method, json.RawMessage(c.params))); got != c.want {
			t.Errorf("%s: %s", c.method, got)
		}
	}
	for _, content := range strings.Fields(`Network.requestWillBeSent Runtime.consoleAPICalled Runtime.bindingCalled
		Runtime.exceptionThrown Log.entryAdded DOM.setChildNodes Page.screencastFrame Page.windowOpen
		Page.fileChooserOpened Page.downloadWillBegin Browser.downloadWillBegin Tracing.dataCollected
		Accessibility.nodesUpdated Target.receivedMessageFromTarget Fetch.requestPaused Debugger.scriptParsed
		Audits.issueAdded DOMStorage.domStorageItemAdded Input.dragIntercepted Console.messageAdded`) {
		if got := Structure(content, json.RawMessage(`{"text":"secret"}`)); got != nil {
			t.Errorf("%s: %s", content, got)
		}
	}
}
