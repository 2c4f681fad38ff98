package policy

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every command of the protocol that cdproto knows has a line, or belongs to a
// domain of the page layer. A method that this names needs a line in table.go.
func TestTableHasEveryCommand(t *testing.T) {
	all := commands(t)
	if len(all) < 600 {
		t.Fatalf("cdproto has %d commands only", len(all))
	}
	for _, method := range all {
		domain, _, _ := strings.Cut(method, ".")
		_, named := methods[method]
		whole, listed := methods[domain+".*"]
		if !named && whole.page != Pass && !refused[domain] || !listed {
			t.Errorf("the table lacks %s", method)
		}
	}
}

// refused are the domains that are refused as a whole.
var refused = map[string]bool{
	"BluetoothEmulation": true, "Cast": true, "Extensions": true, "PWA": true, "SmartCardEmulation": true,
	"Tethering": true,
}

// commands are the methods of cdproto's Command constants.
func commands(t *testing.T) (all []string) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/chromedp/cdproto").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*", "*.go"))
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if c, ok := n.(*ast.ValueSpec); ok && len(c.Values) == 1 && strings.HasPrefix(c.Names[0].Name, "Command") {
				if v, ok := c.Values[0].(*ast.BasicLit); ok && v.Kind == token.STRING {
					if method, _ := strconv.Unquote(v.Value); strings.Contains(method, ".") { // else of an enumeration
						all = append(all, method)
					}
				}
			}
			return true
		})
	}
	return all
}

func TestTableIsInOrder(t *testing.T) {
	if len(methods) != len(table) {
		t.Errorf("%d lines for %d methods", len(table), len(methods))
	}
	for _, l := range table {
		domain, name, ok := strings.Cut(l.method, ".")
		if _, whole := methods[domain+".*"]; !ok || name == "" || !whole {
			t.Errorf("%s: its domain has no line", l.method)
		}
	}
	byDomain := func(a, b tableLine) int {
		domain := func(l tableLine) string { d, _, _ := strings.Cut(l.method, "."); return d }
		if domain(a) != domain(b) {
			return 0
		}
		return strings.Compare(a.method, b.method)
	}
	if !slices.IsSortedFunc(table, byDomain) {
		t.Error("a domain's methods are not in order")
	}
}

func TestEffects(t *testing.T) {
	for _, test := range []struct {
		method     string
		root, page Action
	}{
		{"Page.screencastFrameAck", NoUse, NoUse},
		{"Page.crash", 0, Crashes},
		{"Page.reload", 0, 0},
		{"Runtime.runIfWaitingForDebugger", 0, Resumes},
		{"DOM.setFileInputFiles", 0, Uploads},
	} {
		for effect := NoUse; effect <= Clips; effect <<= 1 {
			root, page := Lookup(test.method, false).Has(effect), Lookup(test.method, true).Has(effect)
			if root != (test.root == effect) || page != (test.page == effect) {
				t.Errorf("%s, effect %#x: %v and %v", test.method, int(effect), root, page)
			}
		}
	}
}

func TestLookup(t *testing.T) {
	for _, test := range []struct {
		method     string
		root, page Action
	}{
		{"Page.navigate", Missing, Pass},
		{"Page.methodOfTheFuture", Missing, Pass},
		{"Target.methodOfTheFuture", Refuse, Refuse},
		{"Browser.methodOfTheFuture", Refuse, Refuse},
		{"Domain.ofTheFuture", Refuse, Refuse},
		{"target.getTargets", Refuse, Refuse},
		{"Target.getTargets", Filter, Filter},
		{"Target.getTargets ", Refuse, Refuse},
		{"Target.*", Refuse, Refuse},
		{"Browser.close", Answer, Answer},
		{"Target.createTarget", Context, Context},
		{"Storage.getCookies", Context, Own},
		{"Emulation.addScreen", Refuse, Refuse},
		{"Fetch.enable", Refuse, Pass},
		{"getTargets", Missing, Missing},
		{"", Missing, Missing},
	} {
		if root, page := Lookup(test.method, false), Lookup(test.method, true); root.Action != test.root ||
			page.Action != test.page {
			t.Errorf("%s: %v and %v", test.method, root.Action, page.Action)
		}
	}
}

// Somebody has decided of each method what becomes of it while a person has control: testdata/waits.txt says so in the
// words of While, and "refused" of those that no client may send.
func TestDuring(t *testing.T) {
	b, err := os.ReadFile("testdata/waits.txt")
	if err != nil {
		t.Fatal(err)
	}
	decided := map[string]string{}
	for line := range strings.Lines(string(b)) {
		method, does, _ := strings.Cut(strings.TrimSpace(line), " ")
		decided[method] = does
	}
	known := map[string]bool{"Debugger.setScriptSource": true, "CSS.setContainerQueryText": true} // deprecated
	for _, m := range commands(t) {
		domain, _, _ := strings.Cut(m, ".")
		known[m], known[domain+".*"] = true, true
		does := [...]string{"goes", "waits", "script", "serves"}[During(Command{Method: m})]
		if Lookup(m, false).Action == Refuse && Lookup(m, true).Action == Refuse {
			does = "refused"
		}
		if decided[m] == "" {
			t.Errorf("decide whether %s waits while a person has control: add it to waits.go or not, "+
				"and to testdata/waits.txt", m)
		} else if decided[m] != does {
			t.Errorf("%s %s, and is to be %s", m, does, decided[m])
		}
	}
	for m := range whiles {
		if !known[m] && !strings.HasPrefix(m, "Btools.") {
			t.Errorf("waits.go names %s, which the protocol does not have", m)
		}
	}
	if now := During(Command{Method: "Page.addScriptToEvaluateOnNewDocument",
		Params: json.RawMessage(`{"source":"","runImmediately":true}`)}); now != Setup {
		t.Errorf("a script that runs at once is %v", now)
	}
}
