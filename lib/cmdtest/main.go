//go:build linux

package cmdtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Bin is a directory with the built programs, the fake browser and the fake
// child server.
var Bin string

// Race says that the programs are built for -race, which costs memory and time.
var Race = os.Getenv("RACE") != ""

// Root is the directory of the project.
var Root = root()

func root() string {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir + "/go.mod"); err == nil {
			return dir
		}
	}
	panic("tests run in a directory of the project")
}

// Main runs the tests of a package on the programs in $BTOOLS_TEST_BIN, or
// builds them first. It returns the exit code.
func Main(m *testing.M) int {
	// A signal that nohup has ignored is ignored by what we start as well; one
	// that is caught is not.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	// A newer Node.js than Debian has, by npm: it starts a client in three quarters
	// of the time, which it has compiled before.
	modules := Root + "/scripts/clients/node_modules"
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	os.Setenv("PATH", modules+"/node-linux-"+arch+"/bin:"+os.Getenv("PATH"))
	os.Setenv("NODE_COMPILE_CACHE", modules+"/.cache/node")
	if Bin = os.Getenv("BTOOLS_TEST_BIN"); Bin != "" {
		return runTests(m)
	}
	dir, err := os.MkdirTemp("", "bt-bin-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	Bin = dir
	args := []string{"build", "-ldflags=-w", "-tags", "urfave_cli_no_docs", "-o", dir}
	if Race {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./cmd/...", "./scripts/fakebrowser", "./scripts/fakechild")...)
	build.Dir, build.Stderr = Root, os.Stderr
	if err := build.Run(); err != nil {
		return 1
	}
	return runTests(m)
}

// runTests runs the tests and, if one fails, says what they lacked.
func runTests(m *testing.M) (code int) {
	code = m.Run()
	var missing []string
	for _, program := range []string{"chromium", "chromium-headless-shell", "firefox-esr", "node", "npm", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if code != 0 && len(missing) > 0 {
		fmt.Printf("cmdtest: not installed, and needed by tests: %s: run make deps\n", strings.Join(missing, ", "))
	}
	return code
}

// Clients returns the directory of the clients of others, in which npm has
// installed them.
func Clients(t testing.TB) string {
	t.Helper()
	dir := Root + "/scripts/clients"
	if _, err := os.Stat(dir + "/node_modules"); err != nil {
		t.Fatal("the npm packages of scripts/clients are not installed: run make deps")
	}
	return dir
}
