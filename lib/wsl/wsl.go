// Package wsl reaches from WSL to the Windows that it runs on: the programs
// of Windows are started like those of Linux, but know other paths, get no
// descriptors but the three streams, and nothing of the environment.
//
// The Linux process that stands for one is its relay. When the relay ends,
// however that is, Windows ends the program, if it is one of the console; but
// not what the program has started.
package wsl

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// bound is how long a small program of Windows may take: the first one after a
// while takes a second.
const bound = 10 * time.Second

// Check says why there is no Windows to reach, nil if this is WSL.
func Check(getenv func(string) string) error {
	if getenv("WSL_DISTRO_NAME") != "" {
		return nil
	}
	b, err := os.ReadFile("/proc/sys/kernel/osrelease") // a service's environment does not name it
	if err == nil && bytes.Contains(bytes.ToLower(b), []byte("microsoft")) {
		return nil
	}
	return errors.New("this is not WSL: there is no Windows here")
}

// Explain gives an error from starting a program of Windows its reason.
func Explain(err error) error {
	if errors.Is(err, syscall.ENOEXEC) {
		return fmt.Errorf("%w: interop is off, so no program of Windows runs: set enabled=true under [interop] in "+
			"/etc/wsl.conf, then wsl --shutdown", err)
	}
	return err
}

// run runs a small program and returns what it prints, without the ends of
// lines of Windows.
func run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	text := strings.TrimSpace(strings.ReplaceAll(string(out), "\r\n", "\n"))
	if err != nil {
		return text, fmt.Errorf("cannot run %s: %w", name, Explain(err))
	}
	return text, nil
}

// Path is the path by which Windows knows a file or directory of this system.
// It must be on a drive of Windows.
func Path(ctx context.Context, name string) (string, error) {
	// A profile may not be there yet, which wslpath minds.
	dir, rest := filepath.Clean(name), ""
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
		dir, rest = filepath.Dir(dir), `\`+filepath.Base(dir)+rest
	}
	win, err := run(ctx, "wslpath", "-w", dir)
	if err != nil {
		return "", err
	}
	if win = strings.TrimSuffix(win, `\`); strings.HasPrefix(win, `\\`) || len(win) < 2 || win[1] != ':' {
		return "", fmt.Errorf("%s is not on a drive of Windows, such as /mnt/c", name)
	}
	return win + rest, nil
}

// Node is the command line that has Windows' Node.js do what this one does
// with Linux': npx, node, or a script for it. Another program is left as it
// is.
func Node(ctx context.Context, getenv func(string) string, argv []string) ([]string, error) {
	script := ""
	switch name := filepath.Base(argv[0]); name {
	case "npx", "node":
	default:
		if script = nodeScript(argv[0]); script == "" {
			return argv, nil
		}
	}
	if err := Check(getenv); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("cmd.exe"); err != nil {
		return nil, errors.New("cmd.exe is not on PATH: the directories of Windows are not, or its drive " +
			"is not mounted")
	}
	out, err := run(ctx, "cmd.exe", "/d", "/c", "where", "node")
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	win, _, _ := strings.Cut(out, "\n")
	if err != nil || !strings.HasSuffix(strings.ToLower(win), ".exe") {
		return nil, errors.New("Windows has no Node.js (its where finds no node): install it there")
	}
	node, err := run(ctx, "wslpath", "-u", win)
	if err != nil {
		return nil, err
	}
	dir := win[:strings.LastIndexByte(win, '\\')+1]
	switch {
	case script != "":
		// Node.js reads scripts from this system, too.
		if script, err = run(ctx, "wslpath", "-w", script); err != nil {
			return nil, err
		}
		return append([]string{node, script}, argv[1:]...), nil
	case filepath.Base(argv[0]) == "npx":
		// By itself: npx.cmd would go through cmd.exe, which takes arguments apart.
		if _, err := os.Stat(path.Join(path.Dir(node), "node_modules/npm/bin/npx-cli.js")); err != nil {
			return nil, fmt.Errorf("there is no npm beside %s", win)
		}
		return append([]string{node, dir + `node_modules\npm\bin\npx-cli.js`}, argv[1:]...), nil
	}
	return append([]string{node}, argv[1:]...), nil
}

// nodeScript is the file that a name stands for, if Node.js is to run it.
func nodeScript(name string) string {
	file, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	if file, err = filepath.EvalSymlinks(file); err != nil {
		return ""
	}
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	if bytes.HasPrefix(line, []byte("#!")) && bytes.Contains(line, []byte("node")) {
		return file
	}
	return ""
}
