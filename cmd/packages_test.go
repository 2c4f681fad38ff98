//go:build linux

// Package cmd_test holds the project to its own order: what packages import and
// link, what pages name. The tests of a program are beside it.
package cmd_test

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"btools/lib/cmdtest"
)

// golist is what go list prints of the programs' build, a line each.
func golist(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list", "-tags", "urfave_cli_no_docs"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// programs are the names of the programs, each of which has its lists.
func programs(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, path := range golist(t, "./...") {
		if name, ok := strings.CutPrefix(path, "btools/cmd/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for what, list := range map[string]map[string][]string{"modules": modules, "never": never} {
		if have := slices.Sorted(maps.Keys(list)); !slices.Equal(have, names) {
			t.Errorf("%s are of %v, the programs are %v", what, have, names)
		}
	}
	return names
}

// Every package says what it is for.
func TestPackages(t *testing.T) {
	t.Parallel()
	for _, line := range golist(t, "-f", "{{if .GoFiles}}{{.ImportPath}}\t{{.Doc}}{{end}}", "../...") {
		if path, doc, _ := strings.Cut(line, "\t"); doc == "" && path != "" {
			t.Errorf("package %s has no comment", path)
		}
	}
}

// frame are the modules that every program links.
var frame = []string{"github.com/urfave/cli/v2", "github.com/xrash/smetrics", "golang.org/x/sys"}

// modules are the modules that a program links besides: a new one needs a
// reason in the message of its commit.
var modules = map[string][]string{
	"bfind": nil, "bport": nil, "blaunch": nil,
	"bproxy": {"golang.org/x/net"}, // SOCKS
	"bpool": {
		"golang.org/x/net",
		"github.com/BurntSushi/toml",
		// All for /metrics.
		"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common",
		"github.com/prometheus/procfs", "github.com/beorn7/perks", "github.com/cespare/xxhash/v2",
		"github.com/munnerz/goautoneg", "google.golang.org/protobuf",
		// Other hosts.
		"github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/nuid", "golang.org/x/crypto",
		"github.com/klauspost/compress",
	},
	"bmcp": {
		"golang.org/x/net",
		"github.com/BurntSushi/toml",
		"github.com/mark3labs/mcp-go", "github.com/google/jsonschema-go", "github.com/spf13/cast",
		"github.com/yosida95/uritemplate/v3", "golang.org/x/text",
		"github.com/tailscale/hujson", "go.yaml.in/yaml/v3", // the files of hosts, whose comments stay
		"github.com/jmespath/go-jmespath", // what agents look for in large results
		// The keys of a keyboard.
		"github.com/chromedp/chromedp", "github.com/chromedp/cdproto", "github.com/go-json-experiment/json",
		// The text of pages: Markdown, and the main text.
		"github.com/JohannesKaufmann/html-to-markdown/v2", "github.com/JohannesKaufmann/dom",
		"codeberg.org/readeck/go-readability/v2", "github.com/go-shiori/dom", "github.com/gogs/chardet",
		"github.com/andybalholm/cascadia", "github.com/itlightning/dateparse",
	},
}

// never are packages that a program must not link: those that a filter or a
// supervisor would pay for in memory and start, and those that are the business
// of a sibling, which is run as a process. Those of lib have its names.
var never = map[string][]string{
	"bfind":   {"net/http", "launch", "control"},
	"bport":   {"net/http", "launch", "control", "find"},
	"blaunch": {"net/http"},
	"bproxy":  {"find", "launch", "pool"},
	"bpool":   {"launch", "coordinator"},
	"bmcp":    {"launch", "proxy", "pool", "virtual"},
}

// A program links what it needs and nothing else.
func TestLinkedPackages(t *testing.T) {
	t.Parallel()
	for _, program := range programs(t) {
		var links []string
		for _, line := range golist(t, "-deps", "-f",
			"{{.ImportPath}}\t{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./"+program) {
			path, module, _ := strings.Cut(line, "\t")
			if slices.Contains(never[program], strings.TrimPrefix(path, "btools/lib/")) {
				t.Errorf("%s links %s", program, path)
			}
			if module != "" && !slices.Contains(links, module) {
				links = append(links, module)
			}
		}
		want := slices.Sorted(slices.Values(slices.Concat(frame, modules[program])))
		if slices.Sort(links); !slices.Equal(links, want) {
			t.Errorf("%s links the modules\n%s\nrather than\n%s", program, strings.Join(links, "\n"),
				strings.Join(want, "\n"))
		}
	}
}

// The command line is for commands: other packages give their errors an exit
// code by lib/exit.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, line := range golist(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "../lib/...") {
		imports := strings.Fields(line)
		name := strings.TrimPrefix(imports[0], "btools/lib/")
		if name == "cli" || name == "flags" || strings.HasSuffix(name, "/command") {
			continue
		}
		for _, i := range imports[1:] {
			if i == "btools/lib/cli" || i == "btools/lib/flags" || i == frame[0] {
				t.Errorf("%s imports %s", name, i)
			}
		}
	}
}

// initialized is what Go says of a package that it has initialized.
var initialized = regexp.MustCompile(`(?m)^init (btools/\S+) .* (\d+) bytes, \d+ allocs$`)

// A shell runs bmcp for each call, and waits for all that its packages do at the
// start: what few processes need is made at its first use.
func TestStart(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t).With("GODEBUG=inittrace=1")
	all := initialized.FindAllStringSubmatch(w.Run("bmcp", "--version").Err, -1)
	if len(all) == 0 {
		t.Error("no package is initialized")
	}
	for _, m := range all {
		if n, _ := strconv.Atoi(m[2]); n > 4<<10 {
			t.Errorf("%s allocates %d bytes at the start", m[1], n)
		}
	}
}

// mapped is a row of the map that names packages.
var mapped = regexp.MustCompile("(?m)^\\|[^|]*\\| ((?:`[a-z/]+` )+)\\|")

// The map of lib/ has each package, after those that it imports.
func TestMapOfLib(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(cmdtest.Root + "/lib/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, row := range mapped.FindAllStringSubmatch(string(text), -1) {
		order = append(order, strings.Fields(strings.ReplaceAll(row[1], "`", ""))...)
	}
	var have []string
	for _, line := range golist(t, "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "../lib/...") {
		imports := strings.Fields(strings.ReplaceAll(line, "btools/lib/", ""))
		name := imports[0]
		have = append(have, name)
		at := slices.Index(order, name)
		if at < 0 {
			t.Errorf("lib/README.md has no %s", name)
			continue
		}
		for _, i := range imports[1:] {
			if below := slices.Index(order, i); below > at {
				t.Errorf("%s imports %s, which stands below it in lib/README.md", name, i)
			}
		}
	}
	for _, name := range order {
		if !slices.Contains(have, name) {
			t.Errorf("lib/README.md has %s, which lib/ does not have", name)
		}
	}
}

// Whoever hands out the programs can hand out the licences of what is in them,
// and every module has one that is known to allow that.
func TestLicenses(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(cmdtest.Root + "/scripts/licenses").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := string(out)
	linked := slices.Concat(append(slices.Collect(maps.Values(modules)), frame)...)
	for _, m := range append(linked, "Go") {
		if !strings.Contains(text, "\n"+m+" ") {
			t.Errorf("the licence of %s is missing", m)
		}
	}
}

// rename-module changes what is imported, and no word of a protocol. A program
// that is built from a tag then knows its version, as one that go install makes.
func TestRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/copy"
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(line string) string {
		t.Helper()
		c := exec.Command("bash", "-ec", line)
		c.Dir, c.Env = dir, append(os.Environ(), "ROOT="+cmdtest.Root, "CGO_ENABLED=0")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	run(`(cd "$ROOT" && git ls-files -z | xargs -0 cp --parents -t "$OLDPWD"); git init -q; git add -A`)
	run("scripts/rename-module github.com/acme/btools")
	if left := run(`git grep -nw 'O[W]NER' -- ':!lib' ':!cmd/bproxy' ':!scripts/rename-module' || true`); left != "" {
		t.Errorf("left are\n%s", left)
	}
	if left := run(`grep -rnE '"btools/(cmd|lib|scripts)' --include=*.go . || true`); left != "" {
		t.Errorf("left are\n%s", left)
	}
	if meta := run(`grep -rh '"btools/pool"' lib/coordinator`); !strings.Contains(meta, "metaPool") {
		t.Errorf("the key of a pool is\n%s", meta)
	}
	run(`git config user.name t; git config user.email t@example.org; git add -A; git commit -qm t; git tag v0.9.8`)
	run("GOFLAGS=-buildvcs=true go build -trimpath -tags urfave_cli_no_docs -o ../bport ./cmd/bport")
	if got := run("../bport --version"); got != "bport 0.9.8\n" {
		t.Errorf("bport says %q", got)
	}
	commit := strings.TrimSpace(run("git rev-parse HEAD"))
	if got := run("../bport --version --output json"); !strings.Contains(got, `"revision":"`+commit+`"`) {
		t.Errorf("bport says %s", got)
	}
}

// An MCP host is told the version that --version prints.
func TestVersionOfServer(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	version := strings.TrimSpace(strings.TrimPrefix(w.Run("bmcp", "--version").Out, "bmcp "))
	r := w.Pipe(cmdtest.FirstRequest("2025-06-18")+"\n", "bmcp", "--no-child")
	if want := `"version":"` + version + `"`; !strings.Contains(r.Out, want) {
		t.Errorf("the server says %s, want %s", r.Out, want)
	}
}
