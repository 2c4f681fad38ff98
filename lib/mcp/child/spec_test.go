package child

import (
	"slices"
	"strings"
	"testing"
)

// Only what is a known server gets the flag for its browser.
func TestKnownServers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	const playwright, devtools = "--cdp-endpoint=", "--browserUrl="
	for spec, want := range map[string]string{
		"@playwright/mcp":                                                           playwright,
		"@playwright/mcp@latest":                                                    playwright,
		"npx -y @playwright/mcp@0.0.83 --caps=vision":                               playwright,
		"npx --no-install playwright-mcp":                                           playwright,
		"/opt/bin/playwright-mcp --caps=vision":                                     playwright,
		"node /x/node_modules/@playwright/mcp/cli.js":                               playwright,
		"node --no-warnings ./playwright-mcp.js":                                    playwright,
		"chrome-devtools-mcp":                                                       devtools,
		"chrome-devtools-mcp@latest --no-usage-statistics":                          devtools,
		"node /x/node_modules/chrome-devtools-mcp/build/x":                          devtools,
		"@playwright/mcp --browser=firefox":                                         "",
		"chrome-devtools-mcp --isolated":                                            "",
		"files=server /home/x/my-playwright-tests":                                  "",
		"@modelcontextprotocol/server-filesystem /x/@playwright/mcp playwright-mcp": "",
		"@executeautomation/playwright-mcp-server":                                  "",
		"npx -y playwright":                                                         "",
		"node":                                                                      "",
		"node server.js /x/node_modules/@playwright/mcp/":                           "",
	} {
		c, err := Parse(spec)
		if err != nil || c.endpointFlag() != want {
			t.Errorf("%s: %q, %v, want %q", spec, c.endpointFlag(), err, want)
		}
		argv, _ := c.command(Endpoint{HTTPURL: "http://127.0.0.1:9222", Port: 9222})
		if given := slices.Contains(argv, want+"http://127.0.0.1:9222"); given != (want != "") {
			t.Errorf("%s: %q", spec, argv)
		}
	}
}

// What looks like a package is one, and what npx is given; nothing else is.
func TestPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for spec, want := range map[string]string{ // the package, or "" and the command
		"@a/b":                   "@a/b",
		"@a/b@^1.2 --x":          "@a/b@^1.2 --x",
		"some-mcp@1.0.0-beta.2":  "some-mcp@1.0.0-beta.2",
		"chrome-devtools-mcp":    "chrome-devtools-mcp",
		"npx some-mcp x":         "some-mcp x",
		"npx -y --yes some-mcp":  "some-mcp",
		"npx -p a b":             "!npx -p a b",
		"npx":                    "!npx",
		"uvx mcp-server-fetch":   "!uvx mcp-server-fetch",
		"./a@1":                  "!./a@1",
		"/x/@a/b":                "!/x/@a/b",
		"DEBUG=1 node server.js": "!1 node server.js",
		"--yes":                  "!--yes",
		"@/etc/x":                "!@/etc/x",
	} {
		c, err := Parse(spec)
		got := strings.Join(c.Argv, " ")
		if !c.Package {
			got = "!" + got
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", spec, got, err, want)
		}
	}
}

// The same words are another server in another directory, but for a package.
func TestFingerprint(t *testing.T) {
	print := func(spec string) string {
		c, err := Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		return c.Fingerprint()
	}
	command, pkg := print("sh -c x"), print("@a/b@1")
	t.Chdir(t.TempDir())
	if print("sh -c x") == command {
		t.Error("a command has one cache in all directories")
	}
	if print("@a/b@1") != pkg {
		t.Error("a package has a cache for each directory")
	}
	if print("sh -c x") == print("sh -c y") {
		t.Error("its arguments do not matter")
	}
}

// What is shown of a child has no argument in it.
func TestShown(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for spec, want := range map[string]string{
		"@a/b@1 --header 'Authorization: Bearer s3cr3t'": "@a/b@1",
		"node -e s3cr3t":        "node",
		"node server.js s3cr3t": "server.js",
		"npx --token s3cr3t x":  "npx",
		"npx -y git+https://s3cr3t:x@example.org/server.git x": "git+https://example.org/server.git",
		"sh -c s3cr3t": "sh",
	} {
		if c, err := Parse(spec); err != nil || c.Shown() != want {
			t.Errorf("%s: %s, %v, want %s", spec, c.Shown(), err, want)
		}
	}
}
