package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"btools/lib/lazy"
	"btools/lib/owned"
)

// npm is what npx has fetched. npx itself never runs
// in the host's directory, as that may be a repository that somebody has just
// opened: npx takes a package and its configuration from there, and puts the
// node_modules/.bin of its directory, and of all above, in front of PATH, so
// that even "env node" would be a file of the repository.
type npm struct {
	mu      sync.Mutex
	fetched map[string]*fetched // by package
}

// fetched is the program of a package.
type fetched struct {
	done    chan struct{} // closed when the rest is known
	program string
	err     error
}

// npmDirectory is where npx runs, made if need be.
func (p *Programs) npmDirectory() (string, error) {
	if p.NpxDir == "" {
		return "", errors.New("there is no directory for npx to run in: set HOME or XDG_CACHE_HOME")
	}
	if err := os.MkdirAll(p.NpxDir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make the directory for npx to run in: %w", err)
	}
	return p.NpxDir, nil
}

// packageProgram is the program of a package, which npx fetches unless it has it. It
// is fetched once for all who wait for it.
func (p *Programs) packageProgram(ctx context.Context, pkg string, stderr *stderrTail) (string, error) {
	n := &p.npm
	for {
		n.mu.Lock()
		f := n.fetched[pkg]
		if f == nil {
			f = &fetched{done: make(chan struct{})}
			if n.fetched == nil {
				n.fetched = map[string]*fetched{}
			}
			n.fetched[pkg] = f
			n.mu.Unlock()
			f.program, f.err = p.fetch(ctx, pkg, stderr)
			close(f.done)
			return f.program, n.forget(pkg, f)
		}
		n.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		if n.forget(pkg, f) == nil {
			return f.program, nil
		}
		if !errors.Is(f.err, context.Canceled) { // of whose session has ended
			return "", f.err
		}
	}
}

// forget has a package that can't be run fetched again by who needs it next,
// and says why it can't.
func (n *npm) forget(pkg string, f *fetched) error {
	err := f.err
	if err == nil {
		_, err = exec.LookPath(f.program)
	}
	if err != nil {
		n.mu.Lock()
		if n.fetched[pkg] == f {
			delete(n.fetched, pkg)
		}
		n.mu.Unlock()
	}
	return err
}

// fetch has npx say where it keeps a package.
func (p *Programs) fetch(ctx context.Context, pkg string, stderr *stderrTail) (string, error) {
	dir, err := p.npmDirectory()
	if err != nil {
		return "", err
	}
	argv := []string{"npx", "-y", "--prefix=" + dir, "--package=" + pkg}
	if oneVersion().MatchString(pkg) { // of which there is nothing newer to ask for
		argv = append(argv, "--prefer-offline")
	}
	argv = append(argv, "--", "node", "-p", "process.env.PATH")
	cmd, err := hold(argv, append(os.Environ(), quietNpm), p.Stop)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, stderr
	npx, err := owned.Start(cmd, false)
	if err != nil {
		return "", fmt.Errorf("cannot run %s: %w", cmd.Path, err)
	}
	defer npx.Release()
	defer time.AfterFunc(noticeAfter, func() { p.Log.Info("npx fetches " + pkg) }).Stop()
	select {
	case err = <-npx.Ended:
	case <-ctx.Done():
		npx.Release()
		<-npx.Ended
		return "", fmt.Errorf("npx has not fetched %s: %w", pkg, context.Cause(ctx))
	}
	if err != nil && strings.Contains(stderr.tail.String(), " code E404") { // "npm ERR!" before npm 10
		return "", fmt.Errorf("npx cannot fetch %s: npm has no such package (%s has the tools of bmcp, %s those of "+
			"Playwright)", pkg, Builtin, Playwright)
	}
	if err != nil {
		return "", fmt.Errorf("npx cannot fetch %s: it %s", pkg, stderr.how(err))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	bin := filepath.SplitList(lines[len(lines)-1])[0]
	program, err := programIn(filepath.Dir(filepath.Dir(bin)))
	if err != nil {
		return "", fmt.Errorf("npx has fetched %s, but %w", pkg, err)
	}
	return filepath.Join(bin, program), nil
}

var oneVersion = lazy.Regexp(`.@\d+\.\d+\.\d+[^/]*$`)

// noticeAfter is how long something may take until a person is told what is
// waited for.
const noticeAfter = 2 * time.Second

// quietNpm has npm say nothing of its own newer versions.
const quietNpm = "npm_config_update_notifier=false"

// programIn is the name of the program of the one package that a directory of
// npx's has: by npx's rule, that of the package's name, or the only one.
func programIn(root string) (string, error) {
	var top struct{ Dependencies map[string]string }
	if err := readJSON(filepath.Join(root, "package.json"), &top); err != nil {
		return "", err
	}
	for name := range top.Dependencies {
		var pkg struct{ Bin json.RawMessage }
		if err := readJSON(filepath.Join(root, "node_modules", name, "package.json"), &pkg); err != nil {
			return "", err
		}
		var one string
		var many map[string]string
		if json.Unmarshal(pkg.Bin, &one) == nil && one != "" {
			return path.Base(name), nil
		}
		json.Unmarshal(pkg.Bin, &many)
		if _, ok := many[path.Base(name)]; ok {
			return path.Base(name), nil
		}
		targets := map[string]string{} // one may have several names
		for program, file := range many {
			targets[file] = program
		}
		if len(targets) != 1 {
			return "", fmt.Errorf("%s has %d programs, of which none has its name", name, len(targets))
		}
		for _, program := range targets {
			return program, nil
		}
	}
	return "", errors.New(root + " has no package")
}

func readJSON(file string, v any) error {
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", file, err)
	}
	return nil
}
