package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"btools/lib/jsonrpc"
)

// param is a rule for one parameter of a method. A dot in the path leads into
// an object, "*" stands for each element of an array, and "" for all
// parameters.
type param struct {
	method string
	path   string
	check  check // nil: the parameter is removed
}

// check returns an error if a value is refused. roots are the directories whose
// files the session may name.
type check func(value json.RawMessage, roots []string) error

// params are all parameters that are checked, besides the ids that the table's
// Own and Context check.
var params = []param{
	// Addresses.
	{"Page.navigate", "url", checkURL},
	{"Target.createTarget", "url", checkURL},
	{"Network.loadNetworkResource", "url", checkURL},
	{"Page.getResourceContent", "url", checkURL},
	{"Fetch.continueRequest", "url", checkFetchURL},

	// Files of the host. A file that is dropped on a page opens as a file: page in
	// a new tab, and that page may open any other file.
	{"DOM.setFileInputFiles", "files", checkFiles},
	{"Input.dispatchDragEvent", "data.files", refuseFiles},
	{"Page.handleFileChooser", "files", checkFiles},

	// Native keys control Chrome's own window: Ctrl+N opens a window outside all
	// sessions, F6 has crashed Chrome.
	{"Input.dispatchKeyEvent", "nativeVirtualKeyCode", nil},

	// Values that crash Chromium 156, or stop it.
	{"Emulation.setDeviceMetricsOverride", "", checkMetrics},
	{"Emulation.setDeviceMetricsOverride", "viewport", checkClip},
	{"Emulation.setDeviceMetricsOverride", "devicePosture.type", oneOf("continuous", "folded")},
	{"Page.setDeviceMetricsOverride", "", checkMetrics},
	{"Page.setDeviceMetricsOverride", "viewport", checkClip},
	{"Page.setDeviceMetricsOverride", "devicePosture.type", oneOf("continuous", "folded")},
	{"Page.captureScreenshot", "clip", checkClip},
	{"Page.navigate", "transitionType", noneOf("auto_subframe", "manual_subframe")},
	{"Page.printToPDF", "paperWidth", inRange(0.01, 1e6)},
	{"Page.printToPDF", "paperHeight", inRange(0.01, 1e6)},
	{"Browser.setWindowBounds", "bounds.windowState", oneOf("normal", "minimized", "maximized", "fullscreen")},
	{"Browser.setWindowBounds", "bounds", checkWindow},
	{"Browser.setContentsSize", "", checkWindow},
	{"Target.createTarget", "", checkWindow},
	{"Input.synthesizeTapGesture", "tapCount", inRange(0, 100)}, // it queues all of them at once
	{"Input.dispatchKeyEvent", "timestamp", inRange(0, 1e11)},
	{"Input.dispatchMouseEvent", "timestamp", inRange(0, 1e11)},
	{"Input.dispatchTouchEvent", "timestamp", inRange(0, 1e11)},
	{"Input.emulateTouchFromMouseEvent", "timestamp", inRange(0, 1e11)},
	{"Input.imeSetComposition", "replacementStart", inRange(0, 1<<31-1)},
	{"Input.imeSetComposition", "replacementEnd", inRange(0, 1<<31-1)},
	{"Storage.overrideQuotaForOrigin", "quotaSize", inRange(0, 1<<53)},

	// Sessions whose messages no rule could read.
	{"Target.attachToTarget", "", requireFlat},
	{"Target.setAutoAttach", "", requireFlatIfOn},
}

// rules are the params by their method.
var rules = func() map[string][]param {
	all := map[string][]param{}
	for _, p := range params {
		all[p.method] = append(all[p.method], p)
	}
	return all
}()

// Check checks the parameters of a command that Parse returned. It returns the
// params to forward: the original ones, or a copy without those that must not
// reach Chrome. File names must be below one of the roots, which are absolute
// and contain no symbolic links.
func Check(c Command, roots []string) (json.RawMessage, *Error) {
	kept := c.Params
	for _, p := range rules[c.Method] {
		if p.check == nil {
			kept = jsonrpc.Delete(kept, p.path)
			continue
		}
		var path []string
		what := "Invalid parameters: "
		if p.path != "" {
			path = strings.Split(p.path, ".")
			what += p.path + ": "
		}
		if err := forEach(kept, path, func(v json.RawMessage) error { return p.check(v, roots) }); err != nil {
			return nil, invalidParams(what + err.Error())
		}
	}
	return kept, nil
}

// forEach calls f for each value at a path.
func forEach(value json.RawMessage, path []string, f func(json.RawMessage) error) error {
	switch {
	case value == nil:
		return nil
	case len(path) == 0:
		return f(value)
	case path[0] == "*":
		for v := range jsonrpc.Elements(value) {
			if err := forEach(v, path[1:], f); err != nil {
				return err
			}
		}
		return nil
	}
	return forEach(jsonrpc.Get(value, path[0]), path[1:], f)
}

func checkURL(value json.RawMessage, _ []string) error      { return checkString(value, URL) }
func checkFetchURL(value json.RawMessage, _ []string) error { return checkString(value, fetchURL) }

// checkString checks a string. Chrome itself refuses other values.
func checkString(value json.RawMessage, judge func(string) error) error {
	s, ok := decodeString(value)
	if !ok && beginsWith(value, '"') {
		return errText
	}
	return judge(s)
}

func checkFiles(value json.RawMessage, roots []string) error {
	var paths []string
	if json.Unmarshal(value, &paths) != nil {
		return fmt.Errorf("they are not file names")
	}
	return Files(paths, roots)
}

func refuseFiles(value json.RawMessage, _ []string) error {
	for range jsonrpc.Elements(value) {
		return errors.New("cannot drop files in a shared browser; DOM.setFileInputFiles can put them into a form")
	}
	return nil
}

// Files returns an error for the first file that is not below one of the roots.
// It compares names: the caller resolves links.
func Files(paths, roots []string) error {
	for _, p := range paths {
		if !isBelow(p, roots) {
			return notYours(p)
		}
	}
	return nil
}

func notYours(path string) error {
	return fmt.Errorf("cannot read %q: it is not a file in a directory of this session; --upload-root allows others",
		path)
}

// IsWithin reports whether an absolute path is one of the roots or below one. It
// compares names.
func IsWithin(path string, roots []string) bool {
	return slices.Contains(roots, filepath.Clean(path)) || isBelow(path, roots)
}

func isBelow(path string, roots []string) bool {
	if !filepath.IsAbs(path) || strings.ContainsRune(path, 0) {
		return false
	}
	for _, root := range roots {
		rel, err := filepath.Rel(root, path)
		if err == nil && rel != "." && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// inRange refuses numbers out of range. Chrome itself refuses values that are
// not numbers.
func inRange(low, high float64) check {
	return func(value json.RawMessage, _ []string) error {
		n, err := strconv.ParseFloat(string(value), 64)
		if err == nil && low <= n && n <= high || !isNumber(value) {
			return nil
		}
		return fmt.Errorf("must be %v to %v in a shared browser", low, high)
	}
}

// oneOf refuses other strings. Chrome itself refuses values that are not strings.
func oneOf(words ...string) check {
	return func(value json.RawMessage, _ []string) error {
		if s, ok := decodeString(value); !beginsWith(value, '"') || ok && slices.Contains(words, s) {
			return nil
		}
		return fmt.Errorf("must be %s in a shared browser", strings.Join(words, " or "))
	}
}

// noneOf refuses these strings.
func noneOf(words ...string) check {
	return func(value json.RawMessage, _ []string) error {
		if s, _ := decodeString(value); slices.Contains(words, s) {
			return fmt.Errorf("cannot be %s in a shared browser", s)
		}
		return nil
	}
}

func isNumber(value json.RawMessage) bool {
	return len(value) > 0 && (value[0] == '-' || '0' <= value[0] && value[0] <= '9')
}

// requireFlat refuses sessions that are not flat.
func requireFlat(params json.RawMessage, _ []string) error {
	if string(jsonrpc.Get(params, "flatten")) != "true" {
		return errors.New("flatten must be true in a shared browser")
	}
	return nil
}

func requireFlatIfOn(params json.RawMessage, _ []string) error {
	if string(jsonrpc.Get(params, "autoAttach")) != "true" {
		return nil
	}
	return requireFlat(params, nil)
}
