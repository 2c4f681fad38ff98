package calls

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"btools/lib/control"
	"btools/lib/exit"
	"btools/lib/state"
	"btools/lib/tail"
)

// Socket is the name of the control socket beside the state file.
const Socket = "calls"

// Ready is the line that a service prints when it can be called.
const Ready = "ready"

// patience is how long services may take that end before they are called.
const patience = 10 * time.Second

// Client makes calls.
type Client struct {
	Store *state.Store
	// Start is the command that runs a service in the background; nil: none is started.
	Start func() (*exec.Cmd, error)

	conn *control.Client
}

// ErrNoService means that none runs.
var ErrNoService = errors.New("no service of bmcp call runs")

// Do has the service answer a request. One that is about to stop is replaced.
func (c *Client) Do(ctx context.Context, method string, params, result any) error {
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if c.conn == nil {
			if c.conn, err = c.connect(ctx); err != nil {
				return err
			}
		}
		if err = c.conn.Call(ctx, method, params, result); err == nil {
			return nil
		}
		var e *control.Error
		if errors.As(err, &e) && e.Code != control.Stopping {
			return e.Exit()
		}
		c.Close()
		if e == nil && !errors.Is(err, control.ErrNotBegun) {
			return failed(ctx, err)
		}
		if c.Start == nil {
			return ErrNoService
		}
		select { // it leaves its socket at once
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return exit.Errorf(exit.TryAgain, "%v", err)
}

// failed returns the error of a request that the service has not answered.
func failed(ctx context.Context, err error) error {
	var hangs *exit.Error
	switch {
	case ctx.Err() != nil:
		return err
	case errors.As(err, &hangs):
		return &exit.Error{Code: hangs.Code, Hint: hangs.Hint,
			Err: fmt.Errorf("cannot reach the service in the background: %w", hangs.Err)}
	}
	return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("the service in the background has ended during "+
		"this call: %w", err), Hint: "the next call starts another, and a new session"}
}

// Close ends the connection.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// connect connects to the service that runs, and starts one if there is none.
func (c *Client) connect(ctx context.Context) (*control.Client, error) {
	path := c.Store.SocketPath(Socket)
	for end := time.Now().Add(patience); ; {
		conn, err := control.Dial(ctx, path)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
			return conn, err
		}
		if c.Start == nil {
			return nil, ErrNoService
		}
		if err := c.start(ctx); err != nil {
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
func (c *Client) start(ctx context.Context) error {
	cmd, err := c.Start()
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
		return fmt.Errorf("cannot start the service of bmcp call: %w", err)
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
		Err: fmt.Errorf("the service of bmcp call does not start (%v): %s", err, strings.Join(tail.Text(<-said), "\n"))}
}
