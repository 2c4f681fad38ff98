package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"btools/lib/jsonrpc"
)

// param is a rule for one parameter of a method. A path with a dot names one
// in an object, "*" each element of an array; "" is all of the params.
type param struct {
	method string
	path   string
	check  check // nil: it is removed
}

// check reports why a value is refused. The roots are the directories whose
// files the session may name.
type check func(value json.RawMessage, roots []string) error

// params are all parameters that are judged, besides the ids that the table's
// Own and Context judge.
var params = []param{
	// Addresses.
	{"Page.navigate", "url", address},
	{"Target.createTarget", "url", address},
	{"Network.loadNetworkResource", "url", address},
	{"Page.getResourceContent", "url", address},
	{"Fetch.continueRequest", "url", request},

	// Files of the host. One that is dropped on a page opens as a file: page in a
	// new tab, and such a page may go on to any other file.
	{"DOM.setFileInputFiles", "files", files},
	{"Input.dispatchDragEvent", "data.files", noFiles},
	{"Page.handleFileChooser", "files", files},

	// A native key is one of Chrome's own window: Ctrl+N opens a window beyond
	// every session, F6 has ended Chrome.
	{"Input.dispatchKeyEvent", "nativeVirtualKeyCode", nil},

	// Numbers that end Chromium 156.
	{"Input.imeSetComposition", "replacementStart", between(0, 1<<31-1)},
	{"Input.imeSetComposition", "replacementEnd", between(0, 1<<31-1)},
	{"Storage.overrideQuotaForOrigin", "quotaSize", between(0, 1<<53)},

	// Sessions whose messages no rule could read.
	{"Target.attachToTarget", "", flat},
	{"Target.setAutoAttach", "", flatIfOn},
}

// rules are the params by their method.
var rules = func() map[string][]param {
	all := map[string][]param{}
	for _, p := range params {
		all[p.method] = append(all[p.method], p)
	}
	return all
}()

// Check judges the parameters of a command that Parse returned. It returns the
// params to forward: those that came, or, where some must not reach Chrome, a
// copy without them. File names must lie below one of the roots, which are
// absolute and have no symbolic links.
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
		if err := walk(kept, path, func(v json.RawMessage) error { return p.check(v, roots) }); err != nil {
			return nil, invalid(what + err.Error())
		}
	}
	return kept, nil
}

// walk calls f for each value at a path.
func walk(value json.RawMessage, path []string, f func(json.RawMessage) error) error {
	switch {
	case value == nil:
		return nil
	case len(path) == 0:
		return f(value)
	case path[0] == "*":
		for v := range jsonrpc.Elements(value) {
			if err := walk(v, path[1:], f); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(jsonrpc.Get(value, path[0]), path[1:], f)
}

func address(value json.RawMessage, _ []string) error { return each(value, URL) }
func request(value json.RawMessage, _ []string) error { return each(value, fetched) }

// each judges a string. Other values are Chrome's to refuse.
func each(value json.RawMessage, judge func(string) error) error {
	s, ok := text(value)
	if !ok && opens(value, '"') {
		return errText
	}
	return judge(s)
}

func files(value json.RawMessage, roots []string) error {
	var paths []string
	if json.Unmarshal(value, &paths) != nil {
		return fmt.Errorf("they are not file names")
	}
	return Files(paths, roots)
}

func noFiles(value json.RawMessage, _ []string) error {
	for range jsonrpc.Elements(value) {
		return errors.New("cannot drop files in a shared browser; DOM.setFileInputFiles can put them into a form")
	}
	return nil
}

// Files reports the first file that is not below one of the roots. It compares
// names: links are the caller's to follow.
func Files(paths, roots []string) error {
	for _, p := range paths {
		if !below(p, roots) {
			return fmt.Errorf("cannot read %q: it is not in a directory of this session", p)
		}
	}
	return nil
}

func below(path string, roots []string) bool {
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

// between refuses numbers out of bounds. What is no number is Chrome's to
// refuse.
func between(low, high float64) check {
	return func(value json.RawMessage, _ []string) error {
		n, err := strconv.ParseFloat(string(value), 64)
		if err == nil && low <= n && n <= high || !number(value) {
			return nil
		}
		return fmt.Errorf("must be %v to %v in a shared browser", low, high)
	}
}

func number(value json.RawMessage) bool {
	return len(value) > 0 && (value[0] == '-' || '0' <= value[0] && value[0] <= '9')
}

// flat refuses sessions that are not flat.
func flat(params json.RawMessage, _ []string) error {
	if string(jsonrpc.Get(params, "flatten")) != "true" {
		return errors.New("flatten must be true in a shared browser")
	}
	return nil
}

func flatIfOn(params json.RawMessage, _ []string) error {
	if string(jsonrpc.Get(params, "autoAttach")) != "true" {
		return nil
	}
	return flat(params, nil)
}
