package child

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"btools/lib/lazy"
	"btools/lib/mcp/oauth"
	"btools/lib/run"
	"btools/lib/shellwords"
	"btools/lib/wsl"
)

// Builtin names the server with tools for browsing in bmcp itself, which is
// the child if none is configured.
const Builtin = "builtin"

// Playwright is the child for browsers that only Playwright drives, if none is
// configured, at the version that it is tested with.
const Playwright = "@playwright/mcp@0.0.83"

// InstallBrowser returns the command that installs a browser of Playwright in the
// revision that this child drives, which differs with each version.
func InstallBrowser(kind string) string { return "npx " + Playwright + " install-browser " + kind }

// PlaywrightNote returns what a person must know of a browser that such a child launches.
func PlaywrightNote(kind string) string {
	return fmt.Sprintf("Playwright drives only a %s of its own, not one that bfind lists; %q installs it", kind,
		InstallBrowser(kind))
}

// Prefix says which tools of a child have its name in front.
type Prefix string

const (
	PrefixAuto   Prefix = ""       // only those whose name an earlier child has
	PrefixAlways Prefix = "always" // all of them
	PrefixNever  Prefix = "never"  // none: what an earlier child has is left out
)

// Spec is a child MCP server as it is configured.
type Spec struct {
	Name    string
	Argv    []string // the program, or the package, and its arguments
	Package bool     // Argv[0] is an npm package
	Builtin bool     // it is the server in bmcp itself
	Prefix  Prefix

	URL       string // of a server that runs elsewhere; "": it is a program
	Headers   map[string]string
	TokenFile string
	Login     *oauth.Store // of logins, used for a URL without another token; nil: none is

	drives bool
}

var nameRule = lazy.Regexp(`^[a-zA-Z][a-zA-Z0-9_-]{0,19}$`)

// ValidName reports whether a child can have the name.
func ValidName(name string) bool { return nameRule().MatchString(name) }

// Command is the child that a command line starts, as it is. Without a name it has
// that of its program.
func Command(name string, argv []string) Spec { return newSpec(Spec{Name: name, Argv: argv}) }

func newSpec(c Spec) Spec {
	if c.Name == "" {
		c.Name = nameOf(c.Argv[0])
	}
	c.drives = c.Builtin || run.HasPlaceholder(c.Argv) || c.knownServer() != nil
	return c
}

// Drives reports whether the child is given the browser: by its arguments, with
// placeholders or by the flag that it is known to take.
func (c *Spec) Drives() bool { return c.drives }

// Parse reads [NAME=]SPEC, where SPEC is an npm package or a command, and its arguments,
// or a URL.
func Parse(spec string) (Spec, error) {
	c := Spec{}
	if name, rest, ok := strings.Cut(spec, "="); ok && nameRule().MatchString(name) {
		c.Name, spec = name, rest
	}
	if urlRule().MatchString(spec) {
		return Remote(c.Name, spec, nil, "")
	}
	var err error
	if c.Argv, err = shellwords.Split(spec); err != nil {
		return c, err
	}
	if len(c.Argv) == 0 {
		return c, fmt.Errorf("names no MCP server: it is %s, a package such as %s, a command, or a URL",
			Builtin, Playwright)
	}
	if c.Argv[0] == Builtin {
		if len(c.Argv) > 1 {
			return c, fmt.Errorf("%s takes no arguments: --tools chooses its tools", Builtin)
		}
		c.Builtin = true
		return newSpec(c), nil
	}
	rest, npx := afterNpx(c.Argv)
	c.Argv, c.Package = rest, npx || slices.Contains(packages, rest[0]) || packageRule().MatchString(rest[0])
	c = newSpec(c)
	if path, err := exec.LookPath(programOf(c.Argv[0])); err == nil && c.Package {
		c.Argv[0], c.Package = path, false
	}
	return c, nil
}

// packageRule is what only an npm package looks like: @SCOPE/NAME or
// NAME@VERSION. Any other name that is not a program is a mistake: whoever owns
// it at npm is not to run code here.
var packageRule = lazy.Regexp(`^(@[a-z0-9~][\w.~-]*/[a-z0-9~][\w.~-]*(@.+)?|[a-z0-9][\w.~-]*@[^/]+)$`)

// packages are those that are known by their bare names.
var packages = []string{"chrome-devtools-mcp"}

// programOf is the program on PATH that does for a package, "" if none does.
func programOf(pkg string) string {
	switch {
	case pkg == Playwright:
		return "playwright-mcp"
	case slices.Contains(packages, pkg):
		return pkg
	}
	return ""
}

// afterNpx is what npx is given to run, if that is all that it is given.
func afterNpx(argv []string) (rest []string, ok bool) {
	if argv[0] != "npx" {
		return argv, false
	}
	rest = argv[1:]
	for len(rest) > 0 && (rest[0] == "-y" || rest[0] == "--yes") {
		rest = rest[1:]
	}
	if len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return argv, false
	}
	return rest, true
}

// Check says why the child can't be run, nil if it may be: from WSL, Node.js
// can be that of Windows.
func (c *Spec) Check() error {
	if c.URL != "" {
		_, err := c.header()
		return err
	}
	if c.Builtin || wsl.Check(os.Getenv) == nil {
		return nil
	}
	program := c.Argv[0]
	if c.Package {
		program = "npx"
	}
	_, err := lookPath(program)
	return err
}

// nameOf is a short name for a package or a program: playwright for
// @playwright/mcp@1.
func nameOf(spec string) string {
	s := strings.TrimPrefix(spec, "@")
	s, _, _ = strings.Cut(s, "@")
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '.' })
	parts = slices.DeleteFunc(parts, func(p string) bool {
		return p == "mcp" || p == "js" || p == "mjs" || p == "py" ||
			p == "server"
	})
	if len(parts) == 0 {
		return "child"
	}
	name := parts[len(parts)-1]
	if strings.HasPrefix(spec, "@") {
		name = parts[0]
	}
	name = regexp.MustCompile(`[^a-zA-Z0-9_-]+`).ReplaceAllString(name, "_")
	if name = name[:min(20, len(name))]; !nameRule().MatchString(name) {
		return "child"
	}
	return name
}

// knownServer is a server whose flag for the endpoint is known.
type knownServer struct {
	pkg, program string
	flag         string
	flagBelow    string   // for an endpoint below a port's root; "": the same
	said         []string // flags that say it already
}

var known = []knownServer{
	{"@playwright/mcp", "playwright-mcp", "--cdp-endpoint=", "",
		[]string{"--cdp-endpoint", "--extension", "--browser", "--device"}},
	{"chrome-devtools-mcp", "chrome-devtools-mcp", "--browserUrl=", "--wsEndpoint=",
		// Puppeteer drops the path of the other
		[]string{"--browserUrl", "--browser-url", "-u", "--wsEndpoint", "--ws-endpoint", "-w", "--isolated",
			"--executablePath", "-e", "--channel", "--headless"}},
}

// runners run the server that the word after them names.
var runners = []string{"npx", "node", "nodejs", "bunx", "bun"}

// server is the word that names the server: a package, a program or a script.
func (c *Spec) server() string {
	words := c.Argv
	if !c.Package && slices.Contains(runners, strings.TrimSuffix(filepath.Base(words[0]), ".exe")) {
		for words = words[1:]; len(words) > 0 && strings.HasPrefix(words[0], "-"); {
			words = words[1:]
		}
	}
	if len(words) == 0 {
		return ""
	}
	return filepath.ToSlash(words[0])
}

// Shown is the word that tells a person which server it is: arguments may be
// secret, and so may be who fetches a package.
func (c *Spec) Shown() string {
	if c.URL != "" {
		return shownURL(c.URL)
	}
	words, _ := afterNpx(c.Argv)
	if len(words) > 1 && slices.Contains(runners, filepath.Base(words[0])) && !strings.HasPrefix(words[1], "-") {
		words = words[1:]
	}
	return regexp.MustCompile(`//[^/]*@`).ReplaceAllString(words[0], "//")
}

// isServer reports whether the word names a known server: its package at any
// version, its program, or a file of the package.
func isServer(word, pkg, program string) bool {
	name := path.Base(word)
	return word == pkg || strings.HasPrefix(word, pkg+"@") || name == program || name == program+".cmd" ||
		name == program+".js" ||
		strings.Contains(word, "/node_modules/"+pkg+"/")
}

// knownServer is what is known of the child, nil if nothing is or its arguments
// choose a browser already.
func (c *Spec) knownServer() *knownServer {
	server := c.server()
	for i := range known {
		k := &known[i]
		if !isServer(server, k.pkg, k.program) {
			continue
		}
		for _, a := range c.Argv {
			name, _, _ := strings.Cut(a, "=")
			if slices.Contains(k.said, name) {
				return nil
			}
		}
		return k
	}
	return nil
}

// endpointFlag is the flag that the child is known to take, "" if there is
// none or its arguments choose a browser already.
func (c *Spec) endpointFlag() string {
	if k := c.knownServer(); k != nil {
		return k.flag
	}
	return ""
}

// needsPort reports whether the child could not use an endpoint that is below a
// port's root: it takes a port, or an address whose path it may drop.
func (c *Spec) needsPort() bool {
	return slices.ContainsFunc(c.Argv, func(a string) bool {
		if strings.Contains(a, run.CDPEndpoint) {
			return !isServer(c.server(), "@playwright/mcp", "playwright-mcp")
		}
		return strings.Contains(a, run.CDPPort)
	})
}

// command is what is run for a browser, and the variables that name the browser. One
// that DevTools can't reach is left to the child.
func (c *Spec) command(b Endpoint) (argv, env []string) {
	at := run.Endpoint{ID: b.ID, HTTPURL: b.HTTPURL, WSURL: b.WSURL, Port: b.Port}
	argv = at.Expand(c.Argv)
	flag := c.endpointFlag()
	if b.HTTPURL == "" {
		if flag == "--cdp-endpoint=" && b.Type != "" {
			argv = append(argv, "--browser="+b.Type)
			if b.Headless {
				argv = append(argv, "--headless")
			}
			argv = append(argv, c.profile(b)...)
		}
		return argv, nil
	}
	k := c.knownServer()
	switch {
	case k == nil || run.HasPlaceholder(c.Argv):
	case b.isBelow() && k.flagBelow != "":
		argv = append(argv, k.flagBelow+b.WSURL)
	default:
		argv = append(argv, flag+b.HTTPURL)
	}
	if b.isBelow() {
		at.Port = 0 // which alone leads to no browser
	}
	return argv, at.Environ()
}

// profile has a Playwright that launches its browser give it a profile that no
// other child's browser has: its own default is one for all.
func (c *Spec) profile(b Endpoint) []string {
	for _, a := range c.Argv {
		if name, _, _ := strings.Cut(a, "="); slices.Contains([]string{"--isolated", "--user-data-dir"}, name) {
			return nil
		}
	}
	if b.Profile != "" {
		return []string{"--user-data-dir=" + b.Profile}
	}
	return []string{"--isolated"}
}

// Fingerprint names what decides on a child's tools, for their cache: a
// package, or the program with its version and the directory that it runs in,
// where the same words may mean another server.
func (c *Spec) Fingerprint() string {
	h := sha256.New()
	if c.URL != "" {
		fmt.Fprintf(h, "at %q %q ", c.URL, c.Headers) // which may say whose tools they are
		return hex.EncodeToString(h.Sum(nil)[:12])
	}
	if !c.Package {
		dir, _ := os.Getwd()
		fmt.Fprintf(h, "in %q ", dir)
	}
	for _, a := range c.Argv {
		fmt.Fprintf(h, "%q ", a)
		if c.Package {
			continue
		}
		if path, err := exec.LookPath(a); err == nil {
			if real, err := filepath.EvalSymlinks(path); err == nil {
				path = real
			}
			if st, err := os.Stat(path); err == nil {
				fmt.Fprintf(h, "%s %d %d ", path, st.Size(), st.ModTime().UnixNano())
			}
		} else if st, err := os.Stat(a); err == nil {
			fmt.Fprintf(h, "%d %d ", st.Size(), st.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
