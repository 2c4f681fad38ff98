//go:build linux

package cmd_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// method is a literal that looks like a command or an event of the Chrome DevTools Protocol.
var method = regexp.MustCompile("[\"'`]([A-Z][A-Za-z]+\\.[a-z][A-Za-z]+)[\"'`]")

// old are the names that cdproto leaves out: deprecated ones, and those that only older Chromes
// have. WebDriverBiDiServer.json is a file of Firefox, SKILL.md one of agents, Inspector.target,
// Page.frame, Page.javascriptDialog and Runtime.executionContext begin names, and those of Btools are our own.
const old = `
	Browser.addPrivacySandboxCoordinatorKeyConfig Browser.grantPermissions Debugger.setScriptSource IO.resolveBlob
	Network.continueInterceptedRequest Network.emulateNetworkConditions Network.setRequestInterception
	Network.requestIntercepted
	Page.clearDeviceMetricsOverride Page.downloadProgress Page.downloadWillBegin Page.handleFileChooser
	Page.setDeviceMetricsOverride Page.setDownloadBehavior Security.handleCertificateError
	Security.setOverrideCertificateErrors Storage.clearSharedStorageEntries Storage.deleteSharedStorageEntry
	Storage.getAffectedUrlsForThirdPartyCookieMetadata Storage.getInterestGroupDetails
	Storage.getRelatedWebsiteSets Storage.getSharedStorageEntries Storage.getSharedStorageMetadata
	Storage.getStorageKeyForFrame Storage.resetSharedStorageBudget Storage.sendPendingAttributionReports
	Storage.setAttributionReportingLocalTestingMode Storage.setAttributionReportingTracking
	Storage.setInterestGroupAuctionTracking Storage.setInterestGroupTracking Storage.setSharedStorageEntry
	Storage.setSharedStorageTracking Target.sendMessageToTarget
	Btools.asked Btools.command Btools.control Btools.emulate Btools.give Btools.private Btools.requestHuman Btools.take
	Btools.waitUntilFree Btools.whyFailed Inspector.target Page.frame Page.javascriptDialog Runtime.executionContext
	WebDriverBiDiServer.json SKILL.md`

// Each name of a command or an event is one of cdproto: a misspelt one is answered by an
// error that some callers do not look at, or is an event that never comes.
func TestNamesOfProtocol(t *testing.T) {
	t.Parallel()
	literals := func(dir string, is func(path string) bool, found func(path, name string)) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err == nil && d.IsDir() && d.Name() == "node_modules":
				return filepath.SkipDir
			case err != nil || d.IsDir() || !is(path):
				return err
			}
			b, err := os.ReadFile(path)
			for _, m := range method.FindAllStringSubmatch(string(b), -1) {
				found(path, m[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	known := map[string]bool{}
	literals(golist(t, "-m", "-f", "{{.Dir}}", "github.com/chromedp/cdproto")[0],
		func(path string) bool { return strings.HasSuffix(path, ".go") },
		func(_, name string) { known[name] = true })
	left := map[string]bool{}
	for name := range strings.FieldsSeq(old) {
		known[name], left[name] = true, true
	}
	used := 0
	for _, dir := range []string{"../lib", "../scripts", "."} {
		literals(dir, func(path string) bool {
			ext := filepath.Ext(path)
			return ext == ".js" || ext == ".go" && !strings.HasSuffix(path, "_test.go")
		}, func(path, name string) {
			if used++; !known[name] {
				t.Errorf("%s: the protocol has no %s", path, name)
			}
			delete(left, name)
		})
	}
	if len(left) > 0 {
		t.Errorf("nothing names %v any more", slices.Sorted(maps.Keys(left)))
	}
	if used < 300 || len(known) < 800 {
		t.Errorf("%d names were looked for among %d", used, len(known))
	}
}
