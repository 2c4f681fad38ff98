// The page has been opened while the extension runs.
chrome.runtime.sendMessage({action: 'launched'});
