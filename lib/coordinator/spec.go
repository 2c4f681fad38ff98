package coordinator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"btools/lib/record"
	"btools/lib/words"
)

// DefaultChild is the child that is run if none is configured, at the version
// that it is tested with.
const DefaultChild = "@playwright/mcp@0.0.83"

// Prefixes of a child's tools.
const (
	PrefixAuto   = ""       // only those whose name an earlier child has
	PrefixAlways = "always" // all of them
	PrefixNever  = "never"  // none: what an earlier child has is left out
)

// Child is a child MCP server as it is configured.
type Child struct {
	Name   string
	Argv   []string
	Prefix string // auto, always or never
}

var nameRule = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,19}$`)

// ValidName reports whether a child can have the name.
func ValidName(name string) bool { return nameRule.MatchString(name) }

// ParseChild reads [NAME=]SPEC, where SPEC is an npm package or a command,
// and its arguments.
func ParseChild(spec string) (Child, error) {
	c := Child{}
	if name, rest, ok := strings.Cut(spec, "="); ok && nameRule.MatchString(name) {
		c.Name, spec = name, rest
	}
	words, err := words.Split(spec)
	if err != nil {
		return c, err
	}
	if len(words) == 0 {
		return c, fmt.Errorf("names no MCP server: it is a package such as %s, or a command", DefaultChild)
	}
	c.Argv = Command(words)
	if c.Name == "" {
		c.Name = nameOf(words[0])
	}
	return c, nil
}

// Command is what runs a specification: a program is run itself, a package by
// npx.
func Command(words []string) []string {
	if words[0] == DefaultChild {
		if path, err := exec.LookPath("playwright-mcp"); err == nil {
			return append([]string{path}, words[1:]...)
		}
	}
	path, err := exec.LookPath(words[0])
	dir, _ := os.Stat(words[0])
	switch {
	case strings.HasPrefix(words[0], "@"), dir != nil && dir.IsDir(), err != nil && !strings.Contains(words[0], "/"):
		return append([]string{"npx", "-y"}, words...)
	case err == nil:
		return append([]string{path}, words[1:]...)
	}
	return words
}

// nameOf is a short name for a package or a program: playwright for
// @playwright/mcp@1.
func nameOf(spec string) string {
	s := strings.TrimPrefix(spec, "@")
	s, _, _ = strings.Cut(s, "@")
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == '/' || r == '.' })
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "mcp" || p == "js" || p == "mjs" || p == "py" || p == "server" })
	if len(parts) == 0 {
		return "child"
	}
	name := parts[len(parts)-1]
	if strings.HasPrefix(spec, "@") {
		name = parts[0]
	}
	name = regexp.MustCompile(`[^a-zA-Z0-9_-]+`).ReplaceAllString(name, "_")
	if name = name[:min(20, len(name))]; !nameRule.MatchString(name) {
		return "child"
	}
	return name
}

// known are servers whose flag for the endpoint is known: what names them, the
// flag, and the flags that say it already.
var known = []struct {
	word, flag string
	said       []string
}{
	{"playwright", "--cdp-endpoint=", []string{"--cdp-endpoint", "--extension", "--browser", "--device"}},
	{"chrome-devtools-mcp", "--browserUrl=", []string{"--browserUrl", "--browser-url", "-u", "--wsEndpoint", "--ws-endpoint", "-w", "--isolated", "--executablePath", "-e", "--channel", "--headless"}},
}

var placeholders = []string{"{cdp_endpoint}", "{cdp_port}", "{ws_endpoint}"}

// takesEndpoint reports whether the child is given the browser by its
// arguments: with placeholders, or by the flag that it is known to take.
func (c *Child) takesEndpoint() bool { return c.hasPlaceholder() || c.endpointFlag() != "" }

func (c *Child) hasPlaceholder() bool {
	return slices.ContainsFunc(c.Argv, func(a string) bool {
		return slices.ContainsFunc(placeholders, func(p string) bool { return strings.Contains(a, p) })
	})
}

// endpointFlag is the flag that the child is known to take, "" if there is
// none or its arguments choose a browser already.
func (c *Child) endpointFlag() string {
	for _, k := range known {
		if !slices.ContainsFunc(c.Argv, func(a string) bool {
			return strings.Contains(filepath.Base(a), k.word) || strings.Contains(a, "@"+k.word)
		}) {
			continue
		}
		for _, a := range c.Argv {
			name, _, _ := strings.Cut(a, "=")
			if slices.Contains(k.said, name) {
				return ""
			}
		}
		return k.flag
	}
	return ""
}

// command is what is run for a browser, and its environment. A browser that
// DevTools can't reach is left to the child.
func (c *Child) command(b Browser) (argv, env []string) {
	sub := strings.NewReplacer("{cdp_port}", strconv.Itoa(b.Port), "{cdp_endpoint}", b.HTTPURL, "{ws_endpoint}", b.WSURL)
	flag := c.endpointFlag()
	for _, a := range c.Argv {
		argv = append(argv, sub.Replace(a))
	}
	env = os.Environ()
	if b.HTTPURL == "" {
		if flag == "--cdp-endpoint=" && b.Type != "" {
			argv = append(argv, "--browser="+b.Type)
			if b.Headless {
				argv = append(argv, "--headless")
			}
		}
		return argv, env
	}
	if flag != "" && !c.hasPlaceholder() {
		argv = append(argv, flag+b.HTTPURL)
	}
	env = append(env, "BTOOLS_PORT="+strconv.Itoa(b.Port), "BTOOLS_CDP_URL="+b.HTTPURL, "BTOOLS_WS_URL="+b.WSURL, "BTOOLS_ID="+b.ID)
	return argv, env
}

// fingerprint names the child's program and its version, for the cache of its
// tools.
func (c *Child) fingerprint() string {
	h := sha256.New()
	for _, a := range c.Argv {
		fmt.Fprintf(h, "%q ", a)
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

// Browser is where a child finds its browser.
type Browser struct {
	Pool, Instance string // "" without pools
	ID             string
	HTTPURL, WSURL string // that stay; "": the child is to start one itself
	Port           int
	Type           string
	Headless       bool
	Windows        bool // its child runs on Windows' Node.js, from WSL
}

func browserAt(i record.Instance) Browser {
	return Browser{ID: i.ID, HTTPURL: i.HTTPURL, WSURL: i.WSURL, Port: i.Port, Headless: i.Headless}
}
