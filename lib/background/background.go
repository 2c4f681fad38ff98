// Package background is how a program starts a service of this user in the background when it is needed. What the
// service does, and how it is listed, is its own.
package background

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/proc"
	"btools/lib/tail"
)

// Ready is the line that a service prints when it can be called.
const Ready = "ready"

// Patience is how long services may take that end before they are called.
const Patience = 10 * time.Second

// Command returns the command that runs this program again as a service, with a name as its own. Nothing that a shell
// has open, such as its lock by flock, is the service's.
func Command(name string, args ...string) (*exec.Cmd, error) {
	path, err := proc.Executable()
	if err != nil {
		return nil, err
	}
	proc.HideInherited()
	cmd := exec.Command(path, args...)
	cmd.Args[0] = name
	cmd.SysProcAttr = proc.Detached()
	return cmd, nil
}

// Connect connects to the service at a socket, and starts it by the command if it does not run. The noun names the
// service in errors.
func Connect(
	ctx context.Context, path, noun string, command func() (*exec.Cmd, error),
) (*control.Client, error) {
	for end := time.Now().Add(Patience); ; {
		conn, err := control.Dial(ctx, path)
		if !client.IsGone(err) {
			return conn, err
		}
		if err := start(ctx, noun, command); err != nil {
			// Another one may have been first.
			if conn, again := control.Dial(ctx, path); again == nil {
				return conn, nil
			}
			var e *exit.Error
			if !errors.As(err, &e) || e.Code != exit.TryAgain || time.Now().After(end) || ctx.Err() != nil {
				return nil, err
			}
			time.Sleep(10 * time.Millisecond) // it is about to listen, or to end
		}
	}
}

// start starts a service, and returns when it can be called.
func start(ctx context.Context, noun string, command func() (*exec.Cmd, error)) error {
	cmd, err := command()
	if err != nil {
		return err
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	defer theirOut.Close()
	messages, theirMessages, err := os.Pipe()
	if err != nil {
		return err
	}
	defer messages.Close()
	defer theirMessages.Close()
	cmd.Stdout, cmd.Stderr = theirOut, theirMessages
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the service of %s: %w", noun, err)
	}
	theirOut.Close()
	theirMessages.Close()
	defer context.AfterFunc(ctx, func() { out.Close() })()
	said := make(chan string, 1)
	go func() {
		var all strings.Builder
		for lines := bufio.NewScanner(messages); lines.Scan(); {
			all.WriteString(lines.Text() + "\n")
		}
		said <- all.String()
	}()
	line, _ := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) == Ready {
		return cmd.Process.Release()
	}
	if ctx.Err() != nil { // it runs on, for others
		cmd.Process.Release()
		return context.Cause(ctx)
	}
	err = cmd.Wait()
	return &exit.Error{Code: max(cmd.ProcessState.ExitCode(), exit.Failed),
		Err: fmt.Errorf("the service of %s does not start (%v): %s", noun, err, strings.Join(tail.Text(<-said), "\n"))}
}
